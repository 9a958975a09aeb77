"""CUDA graphs on the stand-in for CuPy, whose graphs do nothing until launched."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from chainer_profile.engines import cublas
from chainer_profile.engines.catalogue import ENGINES
from chainer_profile.engines.cuda_graph_engine import CudaGraphEngine
from chainer_profile.engines.protocol import EngineError, Network
from tests.fake_cublas import FakeCublas
from tests.fakes import process

RNG = np.random.default_rng(0)


@pytest.fixture
def library(cupy, monkeypatch):
    made = FakeCublas(cupy)
    monkeypatch.setattr(cupy, "memory_nbytes", 1 << 30)  # the workspace takes 32 MiB
    monkeypatch.setattr(cublas, "load_library", lambda version: made)
    return made


@pytest.fixture
def array(cupy) -> Callable[..., Any]:
    return lambda *shape: cupy.array(RNG.standard_normal(shape).astype("f"))


class Net:
    """A network on the device, without Chainer, which takes no stand-in here."""

    def __init__(self, forward, *arrays):
        self.forward = forward
        self.arrays = arrays

    def params(self, include_uninit):
        return self.arrays

    def __call__(self, *xs):
        return self.forward(*xs)


def engine_of(model, *inputs, **changes):
    engine = CudaGraphEngine()
    engine.prepare(Network("net", model, inputs, (), **({"device": "gpu:0"} | changes)))
    return engine


def refusal(call, *args, **kwargs):
    with pytest.raises(EngineError) as caught:
        call(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_on_a_cpu_it_says_what_to_give():
    with pytest.raises(EngineError, match=r"^it needs a GPU: give --gpu 0$"):
        CudaGraphEngine().prepare(Network("net", None, (), ()))
    assert isinstance(ENGINES["cuda-graph"].make(), CudaGraphEngine)
    assert CudaGraphEngine().layers((), 3) is None


ON_CHAINER = """
import json
import chainer_profile, chainer, cupy, numpy as np
import chainer.functions as F
import chainer.links as L
from chainer_profile.engines import cublas
from chainer_profile.engines.cuda_graph_engine import CudaGraphEngine
from chainer_profile.engines.protocol import Network
from tests.fake_cublas import FakeCublas

library = FakeCublas(cupy)
cublas.load_library = lambda version: library

class Net(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.a = L.Linear(3, 3)

    def forward(self, x, y):
        return {"a": (self.a(x) + y, [F.relu(y)]), "b": x}

model = Net().to_device("@cupy:0")
rng = np.random.default_rng(0)
x, y = (cupy.array(rng.standard_normal((2, 3)).astype("f")) for _ in range(2))
before = dict(vars(cupy)), dict(vars(cupy.ndarray))
current, engine = cupy.cuda.get_current_stream(), CudaGraphEngine()
engine.prepare(Network("net", model, (x, y), (), device="gpu:0"))
cupy.launches.clear()
# All runs are made before: a later one leaves what an earlier one gave.
outputs = [engine.run(inputs) for inputs in ((x, y), (y, x))]
found = {"graphs": cupy.launches["graph"], "gemms": cupy.launches["gemm"], "far": []}
for inputs, given in zip(((x, y), (y, x)), outputs):
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        expected = model(*inputs)
    expected = [expected["a"][0].array, expected["a"][1][0].array, inputs[0]]
    found["far"] += [float(abs(a - b).max()) for a, b in zip(expected, given, strict=True)]
found["put back"] = before == (dict(vars(cupy)), dict(vars(cupy.ndarray)))
found["current stream"] = cupy.cuda.get_current_stream() is current
found["version"] = engine.version
print(json.dumps(found))
"""


def test_a_replayed_network_gives_what_chainer_gives():
    result = process(["-c", ON_CHAINER])
    assert (result.returncode, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert len(found["far"]) == 6
    # Not a number where the graph was not launched.
    assert all(far < 1e-6 for far in found.pop("far"))
    # Nothing but the graph is launched, once a run.
    assert (found.pop("graphs"), found.pop("gemms")) == (2, 0)
    assert found == {"put back": True, "current stream": True, "version": "14.2.0"}


def test_what_a_graph_cannot_hold_is_refused_in_one_line(cupy, library, array):
    def fail(x):
        raise ValueError("broken\non purpose")

    def stop(x):
        if cupy.cuda.Graph.capturing is not None:
            raise KeyboardInterrupt
        return x

    x, w = array(2, 3), array(3, 4)
    for forward, expected in (
        (
            lambda x: x * float(x.sum()),
            "its forward pass cannot be captured, as where it waits for the device or reads a "
            "value from it, like float(loss): CUDARuntimeError: cudaErrorStreamCaptureUnsupported: "
            "operation not permitted when stream is capturing",
        ),
        (
            lambda x: cupy.einsum("ij,ij->ij", x, x),
            "the network calls what CuPy cannot capture: NotImplementedError: calling cuBLAS API "
            "during stream capture is currently unsupported",
        ),
        (lambda x: np.zeros(3), "the network gives an array of the host"),
        (lambda x: "no array", "the network gives a str, not arrays"),
        (fail, "it cannot run the network in a stream: ValueError: broken on purpose"),
    ):
        assert refusal(engine_of, Net(forward), x) == expected
        assert cupy.cuda.Graph.capturing is None
    with pytest.raises(KeyboardInterrupt):
        engine_of(Net(stop), x)
    assert cupy.cuda.Graph.capturing is None
    net = Net(lambda x: x.dot(w), w)
    engine = engine_of(net, x)  # the device is as it was
    np.testing.assert_allclose(engine.run((x,))[0].get(), x.get() @ w.get(), rtol=1e-5)
    for inputs, found in (((array(3, 3),), "3x3 float32"), ((x.astype("d"),), "2x3 float64")):
        message = f"it was captured for inputs of 2x3 float32, not {found}"
        assert refusal(engine.run, inputs) == message
    for precision in ("bf16", "fp16"):
        message = "it computes as Chainer does, here in fp32: choose fp32"
        assert refusal(engine_of, net, x, precision=precision) == message
    half = w.astype("e")
    engine = engine_of(Net(lambda x: x.dot(half), half), x.astype("e"), precision="fp16")
    found = engine.run((x.astype("e"),))[0].get()
    np.testing.assert_allclose(found, x.get() @ w.get(), atol=1e-2)


def test_memory_of_a_capture(cupy, library, array, monkeypatch):
    # The stand-in is as strict as a capture can be: no memory may be taken from the device.
    begin, streams = cupy.cuda.Stream.begin_capture, []

    def begin_capture(self):
        streams.append((self.is_non_blocking, cupy.cuda.get_current_stream() is self))
        begin(self)

    monkeypatch.setattr(cupy.cuda.Stream, "begin_capture", begin_capture)
    x, w = array(2, 3), array(3, 4)
    before = cupy.get_default_memory_pool().used_bytes()
    engine = engine_of(Net(lambda x: cupy.maximum(x.dot(w) + 1, 0), w), x)
    assert streams == [(True, True)]
    assert cupy.get_default_memory_pool().used_bytes() == before
    assert engine.run((x,))[0].shape == (2, 4)
    assert (library.workspace, library.math_mode) == (32 << 20, 0)
    assert library.calls[:5] == [
        "cublasCreate_v2",
        "cublasSetStream_v2",
        "cublasSetWorkspace_v2",
        "cublasSetMathMode",
        "cublasGemmStridedBatchedEx",
    ]
    kept = []

    def grows(x):
        kept.append(x + 1)  # more in every run, so that the warm-up's memory is not enough
        return x

    assert "StreamCaptureUnsupported" in refusal(engine_of, Net(grows), x)


def test_a_run_waits_for_the_callers_stream(cupy, array, monkeypatch):
    x, order = array(2, 3), []
    engine = engine_of(Net(lambda x: x + 1), x)
    stream = cupy.cuda.Stream
    for owner, name in (
        (type(engine._arrived), "record"),
        (stream, "wait_event"),
        (cupy.cuda.Graph, "launch"),
        (stream, "synchronize"),
    ):

        def noted(self, *args, name=name):
            order.append((name, self is engine._stream, args[:1] == (engine._stream,)))

        monkeypatch.setattr(owner, name, noted)
    engine.run((x,))
    assert order == [
        ("record", False, False),
        ("wait_event", True, False),
        ("launch", False, True),
        ("synchronize", True, False),
    ]


AXES = ((1, 2, 3), (1, 2, 3))
LAYOUTS = {
    "single": lambda x: x.astype("f"),
    "double": lambda x: x.astype("d"),
    "half": lambda x: x.astype("e"),
    "by columns": lambda x: np.asfortranarray(x.astype("f")),
    "every other": lambda x: np.repeat(x.astype("f"), 2, axis=-1)[..., ::2],
    "integers": lambda x: (x * 4).astype("i"),
}


@pytest.mark.parametrize(
    ("name", "a", "b", "more"),
    [
        ("tensordot", (2, 3, 2, 2, 4, 5), (6, 3, 2, 2), (AXES,)),
        ("tensordot", (4, 6, 3, 3), (2, 4, 5, 5), ((0, 1),)),
        ("tensordot", (4, 6), (6, 3), (1,)),
        ("tensordot", (4, 6), (6, 3), (((-1,), (0,)),)),
        ("tensordot", (2,), (3,), (0,)),
        ("tensordot", (4, 0), (0, 3), (1,)),
        ("matmul", (4, 6), (6, 3), ()),
        ("matmul", (5, 4, 6), (6, 3), ()),
        ("matmul", (4, 6), (5, 6, 3), ()),
        ("matmul", (2, 1, 4, 6), (5, 6, 3), ()),
        ("matmul", (6,), (6, 3), ()),
        ("matmul", (5, 4, 6), (6,), ()),
        ("matmul", (6,), (6,), ()),
        ("matmul", (4, 0), (0, 3), ()),
        ("matmul", (1, 6), (6, 1), ()),
        ("dot", (4, 6), (6, 3), ()),
        ("dot", (6,), (6,), ()),
        ("dot", (2, 4, 6), (6, 3), ()),
    ],
)
def test_products_are_those_of_numpy(cupy, library, name, a, b, more):
    stream = cupy.cuda.Stream(non_blocking=True)
    products = cublas.CapturedProducts(cupy, stream)
    pairs = [
        [LAYOUTS[kind](RNG.standard_normal(shape)) for kind, shape in ((left, a), (right, b))]
        for left in LAYOUTS
        for right in LAYOUTS
    ]
    for hosts in pairs:
        if hosts[0].dtype != hosts[1].dtype:
            continue
        with stream, products.instead_of_cupys():
            # Boxes keep strides; views of the device are made as these are.
            found = getattr(cupy, name)(*map(cupy._box, hosts), *more).get()
        expected = getattr(np, name)(*hosts, *more)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        atol = (1e-2 if found.dtype == "e" else 1e-5) * max(1, abs(expected).max(initial=0))
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
    # Empty arrays need none, and CuPy itself multiplies integers and more than two dimensions.
    n_gemms = library.calls.count("cublasGemmStridedBatchedEx")
    assert n_gemms == (0 if 0 in a or (name == "dot" and len(a) > 2) else 11)


def test_products_into_an_array_and_errors(cupy, library, array):
    stream = cupy.cuda.Stream(non_blocking=True)
    products = cublas.CapturedProducts(cupy, stream)
    a, b, out = array(4, 6), array(6, 3), cupy.empty((4, 3), "f")
    with stream, products.instead_of_cupys():
        assert cupy.dot(a, b, out=out) is out
        np.testing.assert_allclose(out.get(), a.get() @ b.get(), atol=1e-5)
        assert (a.dot(b).get() == out.get()).all()
        with pytest.raises(ValueError, match="mismatch"):
            cupy.matmul(a, a)
        with pytest.raises(ValueError, match="mismatch"):
            cupy.tensordot(a, b, ((0,), (0,)))
        library.status = 14
        with pytest.raises(
            RuntimeError, match=r"^cublasGemmStridedBatchedEx gives cuBLAS' status 14$"
        ):
            cupy.dot(a, b)
        library.status = 0
    del products
    assert library.calls[-1] == "cublasDestroy_v2"


def test_on_a_gpu_it_gives_what_chainer_gives():
    cupy = pytest.importorskip("cupy")
    if not cupy.cuda.is_available():
        pytest.skip("there is no GPU")
    import chainer

    from models.resnet_cifar import ResNetCIFAR

    model = ResNetCIFAR()
    model.to_device("@cupy:0")
    chainer.get_device("@cupy:0").use()
    first, second = (cupy.random.randn(4, 3, 32, 32).astype("f") for _ in range(2))
    engine = CudaGraphEngine()
    engine.prepare(Network("resnet20", model, (first,), (), "gpu:0"))
    given = [engine.run((x,))[0] for x in (first, second)]
    for x, y in zip((first, second), given, strict=True):
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            expected = model(x).array.get()
        np.testing.assert_allclose(y.get(), expected, rtol=0, atol=1e-4 * abs(expected).max())


def test_without_cublas_it_says_so(monkeypatch):
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(cublas.ctypes, "CDLL", missing)
    with pytest.raises(
        EngineError, match=r"^cuBLAS cannot be loaded: OSError: libcublas\.so\.12: cannot"
    ):
        cublas.load_library(12090)
