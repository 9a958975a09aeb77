"""The stand-in for CuPy in tests/fake_cupy: it computes what NumPy does, and its rules hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chainer_profile.record.recording import Recording
from tests.fakes import ROOT, process


def python(*words: str, cwd: Path | None = None, **env: Any) -> str:
    """What a process prints that finds the stand-in; Chainer looks for CuPy only at its import."""
    result = process(list(words), cwd, **env)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def script(source: str, **env: Any) -> Any:
    """What a script prints as JSON."""
    return json.loads(python("-c", source, **env))


NETWORKS = """
import json
import chainer_profile, chainer, numpy as np
import chainer.functions as F
import chainer.links as L
import cupy
from models.resnet_cifar import ResNetCIFAR

class Others(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(3, 4, 3, stride=2, pad=2, dilate=2)
            self.deconv = L.Deconvolution2D(4, 4, 4, stride=2, pad=1)
            self.fc = L.Linear(None, 10)

    def forward(self, x):
        h = F.max_pooling_2d(self.conv(x), 3, stride=2, pad=1, cover_all=False)
        h = F.sigmoid(self.deconv(F.max_pooling_2d(h, 2)) * 0.5)
        return self.fc(F.average_pooling_2d(h, 3, stride=2, pad=1))

def mlp():
    return chainer.Sequential(L.Linear(None, 20), F.relu, L.Linear(20, 10))

HOST = chainer.get_device("@numpy")

def steps(build, optimizer, batch, device):
    # Outputs in test mode, gradients, losses, then the parameters behind a few steps.
    np.random.seed(0)
    net, rng = build(), np.random.default_rng(1)
    x = rng.standard_normal((batch, 3, 32, 32), np.float32)
    t = rng.integers(-1, 10, batch).astype(np.int32)
    t[0] = 3
    net(x[:1])  # makes what is left open
    net.to_device(device)
    device.use()
    x, t = device.send((x, t))
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        found = [net(x).array]
    optimizer = optimizer().setup(net)
    optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(0.01))
    for _ in range(2):
        loss = F.softmax_cross_entropy(net(x), t)
        net.cleargrads()
        loss.backward()
        found += [loss.array, *(param.grad for _, param in sorted(net.namedparams()))]
        optimizer.update()
    found += [param.array for _, param in sorted(net.namedparams())]
    found += [link.avg_var for link in net.links() if isinstance(link, L.BatchNormalization)]
    assert all(isinstance(array, device.xp.ndarray) for array in found)
    return [HOST.send(array) for array in found]

def far(build, optimizer, batch):
    # The largest difference, as a part of the array's largest value or of 0.01.
    both = [
        steps(build, optimizer, batch, chainer.get_device(name)) for name in ("@numpy", "@cupy:0")
    ]
    pairs = list(zip(*both))
    assert all(a.shape == b.shape and a.dtype == b.dtype for a, b in pairs)
    return max(float(abs(a - b).max() / max(abs(a).max(), 0.01)) for a, b in pairs)

momentum = lambda: chainer.optimizers.MomentumSGD(0.01)
print(json.dumps({
    "mlp": far(mlp, momentum, 4),
    "adam": far(mlp, lambda: chainer.optimizers.Adam(0.01), 4),
    "resnet": far(lambda: ResNetCIFAR(20, identity_shortcuts=True), momentum, 4),
    "single": far(lambda: ResNetCIFAR(20), lambda: chainer.optimizers.SGD(1e-4), 1),
    "others": far(Others, momentum, 2),
    "kernels": sorted(cupy.fake.launches),
}))
"""


def test_networks_give_what_they_give_on_numpy() -> None:
    found = script(NETWORKS)
    kernels = {"im2col", "col2im", "bn_fwd", "bn_bwd", "update_mean_var", "momentum_sgd", "adam"}
    assert kernels < set(found.pop("kernels"))
    assert set(found) == {"mlp", "adam", "resnet", "single", "others"}
    assert max(found.values()) < 1e-3, found


ARRAYS = """
import json, pickle
import numpy as np, cupy, cupyx

def said(call):
    try:
        return repr(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}"

host = np.arange(6, dtype=np.float32).reshape(2, 3)
x = cupy.asarray(host)
y = x + 1
y[:, 0] = 7
y[1, 1] = y[0, 2] * 2
z = cupy.zeros(3, np.int32)
cupyx.scatter_add(z, cupy.array([0, 2, 2]), 5)
kernel = cupy.ElementwiseKernel("T x", "T y", "y = x", "unheard_of")
relu_backward = cupy.ElementwiseKernel("T y, T gy", "T gx", "", "relu_bwd")
large = cupy.ones((600, 600), np.float32)
print(json.dumps({
    "products": [
        float(cupy.matmul(large, large, out=cupy.zeros_like(large))[0, 0]),
        float(cupy.matmul(large, large)[0, 0]),
        float(cupy.matmul(large[:300], large, out=large[:300] * 0)[0, 0]),
        float((large @ large)[0, 0]),
    ],
    "results": [
        type(value).__name__ + str(value.shape)
        for value in (x.sum(), x[0, 1], x.T, np.exp(x), cupy.maximum(1, x), x.mean(axis=0))
    ],
    "values": [y.tolist(), z.tolist(), float(x.max()), cupy.asnumpy(x[x > 3]).tolist()],
    "same": x.astype(np.float32, copy=False) is x and cupy.asarray(x) is x,
    "apart": bool((host == x.get()).all()) and not cupy.may_share_memory(x, y),
    "views": cupy.may_share_memory(x.T.reshape(-1), x) is False and x.T.base is not None,
    "pickle": pickle.loads(pickle.dumps(x)).tolist() == host.tolist(),
    "modules": [cupy.get_array_module(a).__name__ for a in (host, x)],
    "errors": [
        said(lambda: x + host),
        said(lambda: host + x),
        said(lambda: np.asarray(x)),
        said(lambda: x.set(host.astype(int))),
        said(lambda: kernel(x)),
        said(lambda: relu_backward(x, x.astype(float))),
        said(lambda: cupy.RawKernel("", "unheard_of")((1,), (1,), ())),
        said(lambda: cupy.no_such_name),
    ],
}))
"""


def test_arrays_are_on_their_side() -> None:
    found = script(ARRAYS)
    shapes = ["()", "()", "(3, 2)", "(2, 3)", "(2, 3)", "(3,)"]
    assert found["results"] == ["ndarray" + shape for shape in shapes]
    assert found["values"] == [[[7, 2, 3], [7, 6, 6]], [5, 0, 10], 5, [4, 5]]
    assert found["products"] == [0, 600, 600, 600]
    assert found["same"]
    assert found["apart"]
    assert found["views"]
    assert found["pickle"]
    assert found["modules"] == ["numpy", "cupy"]
    assert found["errors"] == [
        "TypeError: Unsupported type <class 'numpy.ndarray'>",
        "TypeError: Unsupported type <class 'numpy.ndarray'>",
        "TypeError: Implicit conversion to a NumPy array is not allowed. "
        "Please use `.get()` to construct a NumPy array explicitly.",
        "TypeError: int64 array cannot be set to float32 array",
        "NotImplementedError: the CuPy stand-in has no kernel 'unheard_of' of 2 arguments",
        "TypeError: Type is mismatched. T float64 float32",
        "NotImplementedError: the CuPy stand-in has no kernel 'unheard_of' of 0 arguments",
        "AttributeError: module 'cupy' has no attribute 'no_such_name'",
    ]


CHAINER = """
import json
import chainer_profile, chainer, numpy as np
import chainer.functions as F
from chainer.backends import cuda
import cupy

host = np.ones((1, 2), np.float32)
device = chainer.get_device("@cupy:1")
there = device.send(host)
try:
    F.add(there, host)
except TypeError as error:
    message = str(error)
print(json.dumps([
    cuda.available, cuda.cudnn_enabled, str(chainer.backend.get_device_from_array(there)),
    str(chainer.backend.get_device_from_array(host)), message.splitlines()[0],
    "stand-in" in str(chainer._runtime_info._get_runtime_info()),
]))
"""


def test_chainer_tells_the_device_from_the_host() -> None:
    found = script(CHAINER, FAKE_CUPY_DEVICES=2)
    assert found[:4] == [True, False, "@cupy:1", "@numpy"]
    assert found[4] == "incompatible array types are mixed in the forward input (_ + _)."
    assert found[5]


EVENTS = """
import json
import cupy

cupy.fake.clock = clock = cupy.fake.StandingClock(1_000_000)
x = cupy.zeros(3)
clock.advance(20_000)
a, b, c, new = (cupy.cuda.Event() for _ in range(4))
found = [new.done]

def elapsed(start, end):
    try:
        return cupy.cuda.get_elapsed_time(start, end)
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return str(error)

a.record()
for _ in range(3):
    x += 1  # the device is behind the host from the second one on
x.T, x[1:], cupy.empty(3)  # nothing to do for the device
b.record(cupy.cuda.get_current_stream())
found += [a.done, b.done, elapsed(a, b), elapsed(a, new)]
cupy.fake.kernel_ns = 2_000
clock.advance(5_000)
x += 1
c.record()
cupy.cuda.runtime.deviceSynchronize()
found += [clock.now_ns(), b.done, elapsed(a, b), elapsed(b, c), elapsed(c, a)]
hold = cupy.RawKernel("__global__ void hold(long long nanoseconds) {}", "hold")
hold((1,), (1,), (cupy.int64(7_000_000),))
a.record()
found += [a.done, cupy.cuda.Stream.null.done]
float(x[0])  # waits for the device: its copy comes last
found += [clock.now_ns(), a.done, x.tolist()]
cupy.cuda.nvtx.RangePush("layer")
cupy.cuda.nvtx.RangePop()
cupy.cuda.runtime.profilerStart()
found += [cupy.fake.log]
print(json.dumps(found))
"""


def test_events_tell_the_time_of_the_queue() -> None:
    not_ready = "cudaErrorNotReady: device not ready"
    not_recorded = "cudaErrorInvalidResourceHandle: invalid resource handle"
    ms = [float(np.float32(value)) for value in (0.03, 0.002, -0.032)]
    assert script(EVENTS) == [
        *[True, True, False, not_ready, not_recorded],
        *[1_052_000, True, *ms],
        *[False, False],
        *[8_054_000, True, [4, 4, 4]],
        ["RangePush layer", "RangePop", "profilerStart"],
    ]


REAL_TIME = """
import json, time
import cupy

cupy.RawKernel("", "hold")((1,), (1,), (cupy.int64(30_000_000),))
event = cupy.cuda.Event()
event.record()
early = event.done
start = time.perf_counter()
event.synchronize()
done = event.done, cupy.cuda.get_current_stream().done
print(json.dumps([early, *done, time.perf_counter() - start > 0.015]))
"""


def test_waiting_takes_its_time() -> None:
    assert script(REAL_TIME) == [False, True, True, True]


MEMORY = """
import json
import numpy as np, cupy

seen = []

class Hook(cupy.cuda.MemoryHook):
    def malloc_postprocess(self, **kwargs):
        seen.append((kwargs["size"], kwargs["mem_size"]))

    def free_postprocess(self, **kwargs):
        seen.append(-kwargs["mem_size"])

pool = cupy.get_default_memory_pool()
def state():
    free, total = cupy.cuda.runtime.memGetInfo()
    return pool.used_bytes(), pool.free_bytes(), total - free

def refused(call):
    try:
        call()
    except cupy.cuda.memory.OutOfMemoryError as error:
        return [str(error), isinstance(error, MemoryError)]

cupy.empty(5000, np.uint8)  # no hook sees it
found = [state()]
with Hook():
    x = cupy.zeros((10, 100), np.float32)
    copy = x.T[3:].reshape(970)  # of a transposed array, so no view
    copy, part = None, x.reshape(-1)[1:]
    x += 1
    x = None
    part = cupy.ascontiguousarray(part)  # itself; still all of the block
    found += [list(seen), state()]
    y = cupy.zeros(4096, np.uint8) + np.uint8(1)
    part = None
found += [seen[-1], state()]
cupy.zeros(1)  # after the hook
pool.free_all_blocks()
found += [len(seen), state()]
found += [refused(lambda: cupy.empty(60_000, np.uint8))]
pool.set_limit(size=10_000)
found += [refused(lambda: cupy.empty(6_000, np.uint8)), pool.get_limit()]
pool.set_limit()
y = None
found += [cupy.empty(60_000, np.uint8).nbytes, state()]
print(json.dumps(found))
"""


def test_memory_is_counted_by_blocks() -> None:
    assert script(MEMORY, FAKE_CUPY_MEMORY=64_000) == [
        [0, 5120, 5120],
        [[4000, 4096], [3880, 4096], -4096],
        [4096, 9216, 13312],
        -4096,
        [4096, 13312, 17408],
        7,
        [4096, 0, 4096],
        ["Out of memory allocating 60,416 bytes (allocated so far: 4,096 bytes).", True],
        [
            "Out of memory allocating 6,144 bytes "
            "(allocated so far: 4,096 bytes, limit set to: 10,000 bytes).",
            True,
        ],
        10_000,
        60_000,
        [0, 60_416, 60_416],
    ]


DEVICES = """
import json
import cupy

runtime, found = cupy.cuda.runtime, [cupy.__version__]
for ask in (
    runtime.getDeviceCount,
    lambda: cupy.empty(3).device.id,
    lambda: cupy.cuda.Device(7).use(),
    lambda: runtime.getDeviceProperties(0)["name"].decode(),
    lambda: [cupy.cuda.Device(0).pci_bus_id, cupy.cuda.Device(0).compute_capability],
):
    try:
        found.append(ask())
    except runtime.CUDARuntimeError as error:
        found.append([str(error), error.status])
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    ("devices", "answers"),
    [
        (
            "2",
            [
                *[2, 0, ["cudaErrorInvalidDevice: invalid device ordinal", 101]],
                *["Fake GPU 0", ["0000:01:00.0", "90"]],
            ],
        ),
        ("0", [["cudaErrorNoDevice: no CUDA-capable device is detected", 100]] * 5),
        (
            "-1",
            [
                [
                    "cudaErrorInsufficientDriver: "
                    "CUDA driver version is insufficient for CUDA runtime version",
                    35,
                ]
            ]
            * 5,
        ),
    ],
)
def test_devices_as_the_environment_has_them(devices: str, answers: list[Any]) -> None:
    found = script(DEVICES, FAKE_CUPY_DEVICES=devices, FAKE_CUPY_VERSION="13.6.0")
    version, *answered = found
    assert version == "13.6.0"
    # Without a device, its compute capability is all that is not asked of it.
    assert answered == answers


def test_the_profiler_runs_on_it(tmp_path: Path) -> None:
    words = ["--gpu", "0", "--trials", "3", "--warmups", "1", "--clean-trials", "1", "--no-machine"]
    # So little memory leaves out the calibration, whose copies of 256 MiB take their time here.
    env = {"FAKE_CUPY_KERNEL_NS": 20_000, "FAKE_CUPY_MEMORY": 100_000_000}
    python(str(ROOT / "profile.py"), *words, "-qo", "run", cwd=tmp_path, **env)
    recording = Recording.load(tmp_path / "run" / "recording.npz")
    assert len(recording.self_ns) == 3
    assert recording.environment.cupy == "14.2.0"
