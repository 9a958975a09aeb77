"""CUPTI for the stand-in for CuPy."""

import cupy

from tests.fake_cupti import FakeCupti

_cupti = FakeCupti(cupy.queue)
globals().update({name: getattr(_cupti, name) for name in dir(_cupti) if name[0] != "_"})
