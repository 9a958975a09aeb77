"""CUDA graphs of networks on the stand-in for CuPy, whose graphs do nothing until launched."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chainer_profile.engines.catalogue import ENGINES
from chainer_profile.engines.cuda_graph_engine import CudaGraphEngine
from chainer_profile.engines.protocol import EngineError, Network
from tests.fakes import process

START = """
import json
import chainer_profile, chainer, cupy, numpy as np
import chainer.functions as F
import chainer.links as L
from chainer_profile.engines import cublas
from chainer_profile.engines.cuda_graph_engine import CudaGraphEngine
from chainer_profile.engines.protocol import EngineError, Network
from tests.fake_cublas import FakeCublas

library = FakeCublas()
cublas.load_library = lambda version: library
chainer.get_device("@cupy:0").use()
rng = np.random.default_rng(0)

def array(*shape, dtype=np.float32):
    return cupy.array(rng.standard_normal(shape).astype(dtype))

def engine_of(model, *inputs, **changes):
    engine = CudaGraphEngine()
    engine.prepare(Network("net", model, inputs, (), **({"device": "gpu:0"} | changes)))
    return engine

def refusal(call):
    try:
        call()
    except EngineError as error:
        return str(error)

def net(function, *links):
    class Net(chainer.Chain):
        def __init__(self):
            super().__init__()
            with self.init_scope():
                for name, link in zip("ab", links):
                    setattr(self, name, link)
        def forward(self, *xs):
            return function(self, *xs)
    model = Net()
    model.to_device("@cupy:0")
    return model

found = {}
"""


def script(source: str) -> Any:
    """What a script finds out in a process with the stand-in."""
    result = process(["-c", f"{START}\n{source}\nprint(json.dumps(found))"])
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


def test_on_a_cpu_it_says_what_to_give():
    with pytest.raises(EngineError, match=r"^it needs a GPU: give --gpu 0$"):
        CudaGraphEngine().prepare(Network("net", None, (), ()))
    assert isinstance(ENGINES["cuda-graph"].make(), CudaGraphEngine)
    assert CudaGraphEngine().layers((), 3) is None


def test_a_replayed_network_gives_what_chainer_gives():
    found = script("""
from models.resnet_cifar import ResNetCIFAR
model = ResNetCIFAR()
model.to_device("@cupy:0")
many = net(lambda self, x, y: {"a": (self.a(x) + y, [F.relu(y)]), "b": x},
           L.Deconvolution2D(3, 3, 3, pad=1, groups=3))
x, y = array(2, 3, 8, 8), array(2, 3, 8, 8)
plain = {"tensordot": cupy.tensordot, "matmul": cupy.matmul, "dot": cupy.ndarray.dot}
for name, model, sets in (
    ("resnet", model, [(array(2, 3, 32, 32),) for _ in range(3)]),
    ("several", many, [(x, y), (y, x)]),
):
    engine = engine_of(model, *sets[0])
    cupy.fake.launches.clear()
    outputs = [engine.run(inputs) for inputs in sets]
    found[name] = {"graphs": cupy.fake.launches["graph"], "gemms": cupy.fake.launches["gemm"]}
    far = 0.0
    # All runs are made before: a later one leaves what an earlier one gave.
    for inputs, given in zip(sets, outputs):
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            expected = model(*inputs)
        if name == "several":
            expected = [expected["a"][0], expected["a"][1][0], inputs[0]]
        for a, b in zip([expected] if name == "resnet" else expected, given):
            b = b.get()
            assert not np.isnan(b).any()
            far = max(far, float(abs(getattr(a, "array", a).get() - b).max()))
    found[name] |= {"far": far, "outputs": len(given)}
found["version"] = engine.version
found["put back"] = [plain["tensordot"] is cupy.tensordot, plain["matmul"] is cupy.matmul,
                     plain["dot"] is cupy.ndarray.dot]
found["current stream"] = cupy.cuda.get_current_stream() is cupy.cuda.Stream.null
""")
    assert found["resnet"]["far"] < 1e-5
    assert found["several"]["far"] < 1e-5
    # Nothing but the graph is launched, once a run.
    assert (found["resnet"]["graphs"], found["resnet"]["gemms"]) == (3, 0)
    assert (found["several"]["graphs"], found["several"]["outputs"]) == (2, 3)
    assert found["put back"] == [True] * 3
    assert found["current stream"]
    assert found["version"] == "14.2.0"


def test_what_a_graph_cannot_hold_is_refused_in_one_line():
    found = script("""
x = array(2, 3)
linear = net(lambda self, x: self.a(x), L.Linear(3, 4))
waits = net(lambda self, x: self.a(x) * float(F.sum(x).array), L.Linear(3, 4))
calls = net(lambda self, x: chainer.Variable(cupy.einsum("ij,ij->ij", x, x)))
host = net(lambda self, x: np.zeros(3))
words = net(lambda self, x: "no array")
fails = net(lambda self, x: self.b(x))
for name, model in (("waits", waits), ("calls", calls), ("host", host), ("words", words),
                    ("fails", fails)):
    found[name] = refusal(lambda: engine_of(model, x))
    assert not cupy.fake.captures, name
engine = engine_of(linear, x)  # the device is as it was
found["after"] = float(abs(engine.run((x,))[0].get() - linear(x).array.get()).max())
found["shape"] = refusal(lambda: engine.run((array(3, 3),)))
found["type"] = refusal(lambda: engine.run((x.astype("d"),)))
found["bf16"] = refusal(lambda: engine_of(linear, x, precision="bf16"))
found["fp16"] = refusal(lambda: engine_of(linear, x, precision="fp16"))
half = net(lambda self, x: self.a(x), L.Linear(3, 4))
half.a.W.array, half.a.b.array = half.a.W.array.astype("e"), half.a.b.array.astype("e")
h = x.astype("e")
engine = engine_of(half, h, precision="fp16")
found["half"] = float(abs(engine.run((h,))[0].get() - half(h).array.get()).max())
""")
    assert found["waits"] == (
        "its forward pass cannot be captured, as where it waits for the device or reads a value "
        "from it, like float(loss): CUDARuntimeError: cudaErrorStreamCaptureUnsupported: "
        "operation not permitted when stream is capturing"
    )
    assert found["calls"] == (
        "the network calls what CuPy cannot capture: NotImplementedError: calling cuBLAS API "
        "during stream capture is currently unsupported"
    )
    assert found["host"] == "the network gives an array of the host"
    assert found["words"] == "the network gives a str, not arrays"
    assert found["fails"].startswith("it cannot run the network in a stream: ")
    assert found["after"] < 1e-6
    assert found["shape"] == "it was captured for inputs of 2x3 float32, not 3x3 float32"
    assert found["type"] == "it was captured for inputs of 2x3 float32, not 2x3 float64"
    assert found["bf16"] == "it computes as Chainer does, here in fp32: choose fp32"
    assert found["fp16"] == "it computes as Chainer does, here in fp32: choose fp32"
    assert found["half"] < 1e-2
    assert all("\n" not in text for text in found.values() if isinstance(text, str))


def test_memory_and_order_of_a_capture():
    found = script("""
# As strict as a capture can be: no memory may be taken from the device within it.
cuda, begin = cupy.cuda, cupy.cuda.Stream.begin_capture
modes = []
def strict(self, mode=None):
    modes.append((mode, self.is_non_blocking, cuda.get_current_stream() is self))
    begin(self, cuda.runtime.streamCaptureModeThreadLocal)
cuda.Stream.begin_capture = strict
x = array(2, 3)
model = net(lambda self, x: F.relu(self.a(x)), L.Linear(3, 4))
before = cupy.get_default_memory_pool().used_bytes()
engine = engine_of(model, x)
found["modes"] = list(modes)
found["taken"] = cupy.get_default_memory_pool().used_bytes() - before
found["workspace"] = library.workspace[1]
found["calls"] = library.calls[:5]
found["tf32"] = library.math_mode

# What a caller's stream has not done yet is waited for.
order = []
for owner, name in ((cuda.Event, "record"), (cuda.Stream, "wait_event"), (cuda.Graph, "launch"),
                    (cuda.Stream, "synchronize")):
    def noted(self, *args, name=name, call=getattr(owner, name)):
        order.append([name, self is engine._stream, args[:1] == (engine._stream,)])
        return call(self, *args)
    setattr(owner, name, noted)
engine.run((x,))
found["order"] = list(order)

taken = net(lambda self, x: self.a(x) + sum(self.kept), L.Linear(3, 4))
class Growing(list):
    def __iter__(self):
        self.append(array(1))  # more in every run, so that the warm-up's memory is not enough
        return super().__iter__()
taken.kept = Growing()
found["grows"] = refusal(lambda: engine_of(taken, x))
""")
    assert found["modes"] == [[None, True, True]]
    assert found["taken"] == 0
    assert found["workspace"] == 32 << 20
    assert found["calls"] == [
        "cublasCreate_v2",
        "cublasSetStream_v2",
        "cublasSetWorkspace_v2",
        "cublasSetMathMode",
        "cublasGemmStridedBatchedEx",
    ]
    assert found["tf32"] == 0
    assert found["order"] == [
        ["record", False, False],
        ["wait_event", True, False],
        ["launch", False, True],
        ["synchronize", True, False],
    ]
    assert "StreamCaptureUnsupported" in found["grows"]


def test_products_are_those_of_numpy():
    found = script("""
stream = cupy.cuda.Stream(non_blocking=True)
products = cublas.CapturedProducts(cupy, stream)
axes = ((1, 2, 3), (1, 2, 3))
cases = [  # name, arguments' shapes, what is done to them, more arguments
    ("tensordot", (2, 3, 2, 2, 4, 5), (6, 3, 2, 2), (axes,)),
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
]
def layouts(host):
    yield lambda x: x.astype("f")
    yield lambda x: x.astype("d")
    yield lambda x: x.astype("e")
    yield lambda x: np.asfortranarray(x.astype("f"))
    yield lambda x: np.repeat(x.astype("f"), 2, axis=-1)[..., ::2]
    yield lambda x: (x * 4).astype("i")
far, count, types = 0.0, 0, set()
with stream, products.instead_of_cupys():
    for name, a, b, more in cases:
        for left in layouts(a):
            for right in layouts(b):
                hosts = [f(rng.standard_normal(s)) for f, s in ((left, a), (right, b))]
                if hosts[0].dtype != hosts[1].dtype:
                    continue
                # Boxes keep strides; views of the device are made as these are.
                boxed = [cupy._array._box(host) for host in hosts]
                result = getattr(cupy, name)(*boxed, *more)
                expected = getattr(np, name)(*hosts, *more)
                assert result.shape == expected.shape, (name, a, b, more)
                assert result.dtype == expected.dtype, (name, result.dtype)
                size = max(1.0, float(abs(expected).max(initial=0)))
                error = float(abs(result.get() - expected).max(initial=0)) / size
                far = max(far, error / (1e-2 if result.dtype == "e" else 1e-5))
                count += 1
    a, b, out = array(4, 6), array(6, 3), cupy.empty((4, 3), "f")
    assert cupy.dot(a, b, out=out) is out
    assert float(abs(out.get() - a.get() @ b.get()).max()) < 1e-5
    assert float(abs(a.dot(b).get() - out.get()).max()) == 0
    for wrong in (lambda: cupy.matmul(a, a), lambda: cupy.tensordot(a, b, ((0,), (0,)))):
        try:
            wrong()
        except ValueError as error:
            continue
        raise AssertionError
    library.status = 14
    try:
        cupy.dot(a, b)
    except RuntimeError as error:
        found["status"] = str(error)
    library.status = 0
found |= {"far": far, "count": count, "gemms": library.calls.count("cublasGemmStridedBatchedEx")}
del products
found["last"] = library.calls[-1]
""")
    assert found["far"] <= 1
    assert found["count"] == 18 * (3 * 3 + 3)
    assert found["gemms"] > 100
    assert found["status"] == "cublasGemmStridedBatchedEx gives cuBLAS' status 14"
    assert found["last"] == "cublasDestroy_v2"


def test_on_a_gpu_it_gives_what_chainer_gives():
    cupy = pytest.importorskip("cupy")
    if not cupy.cuda.is_available():
        pytest.skip("there is no GPU")
    import chainer
    import numpy as np

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
    from chainer_profile.engines import cublas

    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(cublas.ctypes, "CDLL", missing)
    with pytest.raises(
        EngineError, match=r"^cuBLAS cannot be loaded: OSError: libcublas\.so\.12: cannot"
    ):
        cublas.load_library(12090)
