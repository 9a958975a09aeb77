"""Kernels that compute every shape, even if Chainer or NumPy would be faster."""

import importlib.util

import pytest

from chainer_profile.kernels import convolutions, functions, numpy_kernels
from chainer_profile.kernels.layouts import Layout, Order


@pytest.fixture(scope="module")
def all_shapes():
    with pytest.MonkeyPatch.context() as patch:
        for name in vars(functions):
            if name.startswith("_FEW_"):
                patch.setattr(functions, name, 0)
        for name in ("convolution", "gradient_w", "deconvolution"):
            layout_for = getattr(convolutions, f"layout_for_{name}")
            patch.setattr(
                convolutions,
                f"layout_for_{name}",
                lambda *shapes, layout_for=layout_for: (
                    layout_for(*shapes) or Layout(Order.FIRST, shapes[-1])
                ),
            )
        if importlib.util.find_spec("torch") is not None:
            from chainer_profile.kernels import torch_kernels

            for name in ("_MIN_MACS", "_MIN_PIXELS", "_MIN_CHANNELS"):
                patch.setattr(torch_kernels, name, 0)
            for name in ("_MIN_NORMALIZED", "_MIN_STATISTICS", "_MIN_GRADIENTS"):
                patch.setattr(torch_kernels, name, 2)
            patch.setattr(numpy_kernels, "_MANY_PIXELS", 4)
        yield
