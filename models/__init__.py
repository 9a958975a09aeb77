"""The networks that come with the profiler; :mod:`models.registry` has their names.

Importing this package imports neither Chainer nor NumPy: a network's module is
imported when the network is built.
"""

from .registry import REGISTRY, ModelEntry

__all__ = ["REGISTRY", "ModelEntry"]
