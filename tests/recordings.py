"""Make recordings with different fields, change saved files, and compare recordings."""

import dataclasses
import json

import numpy as np

from chainer_profile.record.recording import (
    Calibration,
    Conditions,
    Counted,
    Counters,
    Environment,
    Gpu,
    GpuState,
    Inside,
    LinkCalls,
    MachineLimits,
    MemoryUse,
    PhaseMemory,
    Rank,
    Recording,
    Settings,
    Stack,
    StackFrame,
)
from tests.conftest import make_recording
from tests.refusing import refusal

#: Names of the fields of a recording that are arrays.
ARRAYS = tuple(item.name for item in dataclasses.fields(Recording) if "axes" in item.metadata)


def assert_same(a, b):
    """Check that two recordings are equal, and that the arrays of the second are int64."""
    for name in {field.name for field in dataclasses.fields(Recording)} - set(ARRAYS):
        assert getattr(a, name) == getattr(b, name)
    for name in ARRAYS:
        first, second = getattr(a, name), getattr(b, name)
        if first is None:
            assert second is None
        else:
            assert second.dtype == np.int64
            np.testing.assert_array_equal(first, second)


def loading_error(path):
    """Return the error message of a recording file that cannot be loaded, without its name."""
    text = refusal(Recording.load, path)
    assert text.startswith((f"{path}: ", f"{path} "))
    return text.removeprefix(str(path)).removeprefix(":").removeprefix(" ")


def training_recording(**changes):
    """Make a recording of 4 trials with 3 rows and 3 phases."""
    fields = {
        "phases": ("update", "forward", "backward"),
        "framework_ns": np.arange(12, dtype=np.int64).reshape(4, 3) * 1000,
        "links": (LinkCalls("/", "Net", 1, 0), LinkCalls("/conv1", "Convolution2D", 2, 432)),
    }
    recording = make_recording(n_layers=3, n_trials=4, n_clean=5)
    return dataclasses.replace(recording, **fields | changes)


def gpu_recording(**changes):
    """Make a recording of a training on a GPU: 4 trials with 3 rows, and 2 held trials."""
    size = 4 * 3
    gpu = Gpu(1, "A GPU", "9.0", 80 << 30, "575.1", "12.9", "12.8", "8.9.7", tf32=True)
    before = GpuState(1980, 1980, 2619, 31, 118.5, ())
    after = GpuState(1200, 1980, None, 83, 690.25, ("power cap", "sync boost"))
    fields = {
        "host_ns": np.arange(size).reshape(4, 3) + 100,
        "gap_ns": np.arange(size).reshape(4, 3) + 200,
        "launch_ns": np.arange(4) + 300,
        "clean_cpu_ns": np.arange(5) + 600,
        "span_ns": np.arange(4) + 400,
        "held_ns": np.arange(6).reshape(2, 3) + 500,
        "held_span_ns": np.arange(2) + 2**33,  # more than 32 bits
        "settings": Settings(device="gpu:1", dtype="mixed16", keep_memory=True),
        "environment": Environment(cupy="13.6.0", gpu=gpu),
        "conditions": Conditions(gpu_before=before, gpu_after=after),
    }
    return training_recording(**fields | changes)


def rank_recording(**changes):
    """Make a recording of rank 1 of 2 on a GPU. Two of its three rows are collectives."""
    recording = gpu_recording()
    first, *rows = recording.layers
    collectives = [dataclasses.replace(row, phase="communication") for row in rows]
    arrived_ns = np.arange(8, dtype=np.int64).reshape(4, 2) + 2**33
    fields = {
        "layers": (first, *collectives),
        "iteration": np.array([7, 107, 207, 307]),
        "calls": np.array([[1, 2, 0], [1, 0, 1], [0, 1, 1], [1, 1, 1]]),
        "arrived_ns": arrived_ns,
        "left_ns": arrived_ns + 700,
        "rank": Rank(1, 2, "a host"),
    }
    return dataclasses.replace(recording, **fields | changes)


def with_all_fields(recording):
    """Add all optional fields to a recording."""
    first, n = recording.layers[0], len(recording.layers)
    stacks = (
        Stack((0, 1), 1e-3, 200, row=0),
        Stack((1,), 1e-4, 0, function=first.function),
        Stack((1,), 1e-4, 150),
    )
    frames = (StackFrame("f", "a.py", 3, "x = y", own=True), StackFrame("g", "b.py"))
    work = {"flops": 9, "macs": 2, "nbytes_read": 8, "nbytes_written": 8, "output_nbytes": 8}
    values = (9,) * n, (5,) * len(recording.phases), (99,) * 2
    return dataclasses.replace(
        recording,
        layers=tuple(dataclasses.replace(layer, **work) for layer in recording.layers),
        limits=MachineLimits("k", "cpu", "now", 2, 1e11, None, 1e10, 9e9, 1 << 20),
        conditions=Conditions(40.0, 100.0, 0.1, calibrations=(Calibration(1e-3, 1e-3),) * 2),
        memory=MemoryUse((9,) * n, (1,) * n, 99, 9, 50, 0, 3, (PhaseMemory("forward", 9, -5),)),
        counters=Counters(2, (Counted("wall_ns", *values), Counted("page_faults", *values, 0.5))),
        inside=Inside("a tool", 500, 1.0, 10, frames, stacks, ("a note",)),
    )


def rewrite(path, change_meta=None, **arrays):
    """Change a saved recording.

    Args:
        path: The file.
        change_meta: Changes the metadata in place, or returns other metadata.
        arrays: Arrays to replace, by name; None removes an array.
    """
    with np.load(path) as archive:
        content = {name: archive[name] for name in archive.files}
    if change_meta is not None:
        meta = json.loads(content["meta"].tobytes())
        meta = change_meta(meta) or meta
        content["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    content = {k: v for k, v in (content | arrays).items() if v is not None}
    np.savez(path, **content)


#: Values for a field in a JSON file, most of which no run writes.
JSON_VALUES = [
    *(None, -1, 0, 1, 2**31, 2**63, -(2**63), 2**70, float("nan"), float("inf"), -0.5, 1e308),
    *("", "x", "a\nb", "\x1b[2J", [], {}, True, [-1], [None], [[1]], "/"),
]


def json_paths(node, path=()):
    """List the paths of all values below a node of parsed JSON."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    paths = []
    for key, value in items:
        paths.append((*path, key))
        if isinstance(value, dict | list):
            paths += json_paths(value, (*path, key))
    return paths
