"""Chainer wants to import it."""


class PerformanceWarning(RuntimeWarning):
    """Something is slow."""
