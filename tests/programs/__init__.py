"""Programs in the style of Chainer's official examples.

Each is a file of this folder; it imports Chainer alone, makes its data, and writes only into the
folder of its option ``--out``.
"""
