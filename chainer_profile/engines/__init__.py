"""The same network under other engines: :mod:`.protocol` says what an engine is.

``profile.py engines`` measures them; :mod:`.catalogue` knows those that come with the profiler.
They are in :mod:`.runtimes`; :mod:`.onnx` exports a network for those that are no Chainer.
"""
