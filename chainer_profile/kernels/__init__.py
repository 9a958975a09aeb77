"""Chainer's CPU functions made faster, only when asked: see :func:`.accelerate.accelerate`."""
