"""accelerate() in a process: how it is enabled, falls back to Chainer, and is undone."""

import subprocess
import sys
from contextlib import nullcontext
from itertools import product
from unittest.mock import Mock

import chainer
import chainer.functions as F
import numpy as np
import pytest

import chainer_profile
from chainer_profile.basics.errors import UsageError
from chainer_profile.engines.protocol import leaves
from chainer_profile.kernels import accelerate as module
from chainer_profile.kernels import functions, memory, numpy_kernels
from chainer_profile.kernels.accelerate import accelerate
from tests import ROOT
from tests.engines.random_networks import random_network

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _nothing_stays():
    def owned():
        places = functions.replacements(numpy_kernels)
        return [vars(owner).get(name, getattr(owner, name)) for owner, name, _ in places]

    before = owned()
    yield
    assert all(now is was for now, was in zip(owned(), before, strict=True))
    assert not module._ACTIVE


def test_missing_kernels_are_refused(monkeypatch):
    assert chainer_profile.accelerate is accelerate
    with pytest.raises(UsageError, match="unknown kernels 'fast': choose numpy or torch"):
        accelerate("fast")
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "chainer_profile.kernels.torch_kernels", raising=False)
    with pytest.raises(UsageError, match=r"PyTorch cannot be imported .*pip install torch"):
        accelerate("torch")


@pytest.mark.usefixtures("all_shapes")
def test_kernels_run_for_their_types_and_chainer_for_other_types(monkeypatch):
    kernels = Mock()
    for name in ("convolution", "deconvolution", "convolution_gradient_w", "max_pooling"):
        kernels.attach_mock(Mock(wraps=getattr(numpy_kernels, name)), name)
        monkeypatch.setattr(numpy_kernels, name, getattr(kernels, name))
    x, w = RNG.normal(size=(2, 3, 6, 6)).astype("f"), RNG.normal(size=(4, 3, 3, 3)).astype("f")
    variables = chainer.Variable(x), chainer.Variable(w)
    with accelerate():
        F.sum(F.max_pooling_2d(F.convolution_2d(*variables, stride=2), 2)).backward()
    names = [name for name, *_ in kernels.mock_calls]
    assert names == ["convolution", "max_pooling", "deconvolution", "convolution_gradient_w"]
    kernels.reset_mock()
    for of_x, of_w in (("float16", "float16"), ("float32", "float64"), ("float32", "float16")):
        arrays = x.astype(of_x), w.astype(of_w)
        with accelerate():
            accelerated = F.convolution_2d(*arrays).array
        assert not kernels.mock_calls
        np.testing.assert_array_equal(accelerated, F.convolution_2d(*arrays).array)


@pytest.mark.usefixtures("all_shapes")
def test_backward_outside_accelerate_works_for_a_graph_built_inside():
    """Use accelerate() for neither, one or both of the forward and backward passes."""
    x = RNG.normal(size=(4, 3, 8, 8))
    grads = []
    for forward, backward in product((nullcontext, accelerate), repeat=2):
        rng = np.random.default_rng(1)
        w, gamma = (chainer.Parameter(rng.normal(size=size)) for size in ((5, 3, 3, 3), (5,)))
        with forward():
            h = F.batch_normalization(F.convolution_2d(x, w, pad=1), gamma, np.zeros(5))
            h = F.average_pooling_2d(F.max_pooling_2d(F.relu(h), 3, 2, 1), 2)
            loss = F.sum(h * h)
        with backward():
            loss.backward()
        grads.append([w.grad, gamma.grad])
    for accelerated in grads[1:]:
        for ours, theirs in zip(accelerated, grads[0], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12 * abs(theirs).max())


@pytest.mark.usefixtures("all_shapes")
def test_random_networks_have_the_same_outputs_and_gradients(subtests):
    for seed in range(40):
        with subtests.test(seed=seed), chainer.using_config("train", False):
            model, inputs = random_network(seed)
            both = []
            for block in (nullcontext(), accelerate()):
                model.cleargrads()
                with block:
                    outputs = [y for y in leaves(model(*inputs)) if y.dtype.kind == "f"]
                    for y in outputs:
                        y.grad = np.resize(np.cos(np.arange(997)), y.shape).astype(y.dtype)
                    chainer.backward(outputs)
                gradients = [param.grad for _, param in sorted(model.namedparams())]
                both.append([*(y.array for y in outputs), *gradients])
            for theirs, ours in zip(*both, strict=True):
                assert (ours is None) == (theirs is None)
                if theirs is None:
                    continue
                assert ours.dtype == theirs.dtype
                tolerance = {"d": 1e-9, "f": 1e-3, "e": 5e-2}[theirs.dtype.char]
                largest = abs(theirs[np.isfinite(theirs)]).max(initial=1e-30)
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * largest)


# -- memory


def test_memory_is_not_kept_on_other_systems(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not memory.keep(object())
    with accelerate() as fast:
        assert not fast.keeps_memory


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is Linux's")
def test_kept_memory_is_reused_and_returned_at_the_end():
    """Measure page faults for large arrays, and resident memory, in a separate process."""
    code = (
        "import resource, numpy as np, psutil\n"
        "from chainer_profile.kernels.memory import keeping_memory\n"
        "def faults():\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    for _ in range(20): np.ones(1 << 20)\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
        "first, mib, resident = faults(), 1 << 20, psutil.Process().memory_info\n"
        "try:\n"
        "    with keeping_memory():\n"
        "        with keeping_memory(): faults()\n"
        "        second = faults()\n"
        "        before = resident().rss\n"
        "        blocks = [np.ones(16 * mib, np.uint8) for _ in range(16)]\n"
        "        above = np.ones(16 * mib, np.uint8)\n"
        "        del blocks\n"
        "        held = resident().rss - before\n"
        "except Exception: print(0)\n"
        "else: print(1, first, second, held // mib, (resident().rss - before) // mib)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    kept, *numbers = map(int, ran.stdout.split())
    if not kept:
        pytest.skip("no glibc")
    first, second, held_mib, left_mib = numbers
    assert second < first / 10
    assert held_mib > 250
    assert left_mib < 40  # the block in use, and glibc's overhead
