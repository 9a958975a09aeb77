"""Chainer's CUDA kernels and the API of CuPy, of the wheels that are installed; without a GPU.

Every kernel is caught as Chainer makes it for ``--gpu 0`` on the stand-in, compiled for a GPU, and
run on the CPU, where what it gives must be what Chainer computes with NumPy. A process of its own
does it, in which the stand-in is CuPy. Nothing here is timed.
"""

import ast
import contextlib
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from functools import partial
from operator import attrgetter
from pathlib import Path

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer import gradient_check
from chainer import optimizer_hooks as hooks
from chainer.training.updaters import multiprocess_parallel_updater
from chainer.utils.type_check import InvalidType

from chainer_profile.compat import EDITS, edited
from chainer_profile.measure.devices import CudaQueue, move_to_gpu
from chainer_profile.measure.steps import make_step
from models import REGISTRY
from tests import ROOT, needs
from tests.costs import cases
from tests.costs.cases import CASES, real
from tests.costs.test_update import RULES
from tests.fake_queue import FakeEvent

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="CuPy is not installed"),
]

#: Relative to the largest number of an array: some kernels compute with float, whatever the type.
TOLERANCES = {"float16": 2e-2, "float32": 1e-3, "float64": 1e-6}
#: Cases that do not run on the stand-in, and why; none of them has a kernel.
WITHOUT = {
    **dict.fromkeys(("inv", "batch_inv", "batch_det", "cholesky"), "calls cuBLAS or cuSOLVER"),
    "as_strided": "looks into CuPy's pool of memory",
    "diagonal": "writes into a view that NumPy gives to be read",
    "einsum_trace": "compares the base of a view",
    "classification_summary": "ends a slice by an array, which CuPy refuses: give label_num",
}
#: Gradients of float32 that differ from those of float64 by a fifth, on the CPU alone.
ROUNDED = {("resnet50", "train, float32"): 0.5}
NETWORKS = ("resnet20", "se-resnet9-fixup", "resnet50")
HOOKS = (
    *(hooks.WeightDecay(0.1), hooks.Lasso(0.1), hooks.GradientLARS(), hooks.GradientNoise(0.1)),
    *(hooks.GradientClipping(0.1), hooks.GradientHardClipping(-0.1, 0.1)),
)
LABELS = np.array([0, 1, 2, 1], np.int32)
TREE = L.BinaryHierarchicalSoftmax.create_huffman_tree({0: 3, 1: 2, 2: 1})
#: Links whose kernels no case of tests/costs calls, and their arguments.
LINKS = {
    "hierarchical softmax": (lambda: L.BinaryHierarchicalSoftmax(3, TREE), real(4, 3), LABELS),
    "negative sampling": (lambda: L.NegativeSampling(3, [3, 2, 1], 2), real(4, 3), LABELS),
    "embedding": (lambda: L.EmbedID(4, 3, ignore_label=1), LABELS),
}
#: Functions of Chainer's that make a kernel, and which argument is its name.
KERNEL_NAMES = {"elementwise": 3, "reduce": 6, "raw": 1}
#: Modules of CuPy's by their names in Chainer and in this package.
MODULES = {
    **dict.fromkeys(("cupy", "_cupy", "xp"), "cupy"),
    "cupyx": "cupyx",
    "runtime": "cupy.cuda.runtime",
}
#: Names that CuPy may lack, and why that is no fault.
LACKED = {
    **dict.fromkeys(
        ("cupy.cudnn", "cupy.cuda.cudnn", "cupy.cudnn.create_spatial_transformer_descriptor"),
        "Chainer asks whether there is cuDNN",
    ),
    **dict.fromkeys(
        ("cupyx.scipy.linalg", "cupyx.scipy.linalg.solve_triangular"),
        "imports cuBLAS, which need not be installed for these tests",
    ),
    **dict.fromkeys(
        (
            f"cupy.{name}: got an unexpected keyword argument 'device'"
            for name in ("array", "zeros")
        ),
        "is for ChainerX",
    ),
}
#: Names of kernels that nothing here calls, and why.
UNCALLED = {
    "groupnorm_y": "needs cuDNN",
    "div_by_size": "needs NCCL",
    "lars": "is for a module that is never the array's: Chainer calls CuPy's functions instead",
}


# -- in a process of its own


def run_function(call, arrays, dtype, xp):
    """A function's outputs and gradients."""
    cast = [a.astype(dtype) if getattr(a, "dtype", a) in ("f", "d") else a for a in arrays]
    ran = cases.run(call, *cast, xp=xp)
    return [y.array for y in ran.ys] + [*ran.grads]


def device_of(xp):
    return "@numpy" if xp is np else "@cupy:0"


def run_update(optimizer, dtype, xp):
    """A parameter after two updates, and the state of its rule."""
    param = chainer.Parameter(real(2, 3).astype(dtype))
    param.to_device(device_of(xp))
    rule = param.update_rule = optimizer.create_update_rule()
    for _ in range(2):
        param.grad = xp.asarray(real(2, 3).astype(dtype))
        param.update()
    return [param.array, *(value for _, value in sorted((rule.state or {}).items()))]


def linear(xp):
    """A link with gradients."""
    link = L.Linear(3, 2)
    for param in link.params():
        param.grad = real(*param.shape).astype("f")
    link.to_device(device_of(xp))
    return link


def gradients(link, *more):
    return [param.grad for _, param in sorted(link.namedparams())] + [*more]


def run_hook(function, xp):
    """Gradients after a hook of an optimizer."""
    link = linear(xp)
    optimizer = chainer.optimizers.SGD(0.1).setup(link)
    optimizer.add_hook(function)
    optimizer.call_hooks()
    return gradients(link)


def run_link(make, arrays, dtype, xp):
    """The output of a link, and its gradients."""
    with chainer.using_config("dtype", np.dtype(dtype)):
        model = make()
    model.to_device(device_of(xp))
    y = F.sum(model(*(xp.asarray(a.astype(dtype) if a.dtype.kind == "f" else a) for a in arrays)))
    model.cleargrads()
    y.backward()
    return gradients(model, y.array)


def run_gather(xp):
    """The gradients of a link in one array, and the link that has them from there."""
    model = linear(xp)
    if xp is np:
        return [np.concatenate([grad.ravel() for grad in gradients(model)]), *gradients(model)]
    all_of_them = multiprocess_parallel_updater.gather_grads(model)
    model.cleargrads()
    for param in model.params():
        param.grad = xp.zeros(param.shape, "f")
    multiprocess_parallel_updater.scatter_grads(model, all_of_them)
    return [all_of_them, *gradients(model)]


def run_differences(xp):
    """Gradients as Chainer's tests of functions compute them."""
    x, gy = (xp.asarray(real(2, 3)) for _ in range(2))
    return [
        gradient_check.numerical_grad(
            lambda: (x * x,), (x,), (gy,), detect_nondifferentiable=detect
        )[0]
        for detect in (False, True)  # by two points, and by four
    ]


def compile_only(xp):
    """Kernels that only compile: those in a language of NVIDIA's, or of many threads."""
    if xp is not np:
        from chainermn.communicators import _memory_utility

        _memory_utility._cupy_batched_pack_params()
        _memory_utility._cupy_batched_unpack_params()
        CudaQueue(xp).hold(1)
    return []


def run_network(name, phase, dtype, xp):
    """Output of a network, or gradients, state and averages after a step of its training."""
    with chainer.using_config("dtype", np.dtype(dtype)):
        model = REGISTRY[name].build()
    x = np.random.normal(size=(2, *REGISTRY[name].input_shape)).astype(dtype)
    for param in model.params():  # none stays 0, as some of Fixup's are
        param.array += np.random.normal(scale=0.01, size=param.shape).astype(dtype)
    if xp is not np:
        x, _ = move_to_gpu(model, x, 0)
    step = make_step(phase, model, (x,), loss="auto", optimizer=None)
    with step.configured():
        y = step()
    if phase == "forward":
        return [y.array]
    states = [p.update_rule.state["v"] for _, p in sorted(model.namedparams())]
    averages = {
        f"{path}/{key}": getattr(part, key)
        for path, part in model.namedlinks()
        for key in part._persistent
    }
    return gradients(model, *states, *(averages[key] for key in sorted(averages)))


def checks():
    """Checks to run on both sides: a group, a name, and a type, which has a tolerance."""
    for dtype in TOLERANCES:
        for name, (call, arrays) in CASES.items():
            if name not in WITHOUT:
                yield dtype, name, dtype, partial(run_function, call, arrays, dtype)
        for name, (optimizer, _) in RULES.items() if dtype != "float16" else ():  # most refuse it
            yield dtype, f"optimizer {name}", dtype, partial(run_update, optimizer, dtype)
        for name, (make, *arrays) in LINKS.items():
            yield dtype, f"link {name}", dtype, partial(run_link, make, arrays, dtype)
    for function in HOOKS:
        yield "float32", f"hook {function.name}", "float32", partial(run_hook, function)
    yield "float32", "gathered gradients", "float32", run_gather
    yield "float32", "gradients by differences", "float64", run_differences
    yield "float32", "raw kernels", "float32", compile_only
    for name in NETWORKS:
        for phase in ("forward", "train"):
            for dtype in ("float32", "float64"):
                yield name, f"{phase}, {dtype}", dtype, partial(run_network, name, phase, dtype)


def seeded(run, xp):
    np.random.seed(0)
    cases.RNG.bit_generator.state = np.random.default_rng(0).bit_generator.state
    cases.A = xp.array
    return run(xp)


def failure(run, tolerance):
    """Why a check fails; empty if it passes, None if this type is not for this function."""
    cupy = sys.modules["cupy"]
    try:
        expected = seeded(run, np)
    except InvalidType:
        return None
    try:
        for want, have in zip(expected, seeded(run, cupy), strict=True):
            if want is not None or have is not None:
                have = have.host if isinstance(have, cupy.ndarray) else have
                atol = tolerance * max(np.abs(want).max(initial=0), 1e-3)
                np.testing.assert_allclose(have, want, rtol=0, atol=atol)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def child(compiler, group):
    """Write the results of a group's checks and kernels, and numbers of kernels."""
    failures, unequal, kernels = {}, set(), compiler.kernels
    for other, name, dtype, run in checks():
        if other == group:
            before = {source: kernel.n_runs for source, kernel in kernels.items()}
            failures[name] = failure(run, ROUNDED.get((group, name), TOLERANCES[dtype]))
            if failures[name]:
                unequal |= {s for s, k in kernels.items() if k.n_runs > before.get(s, 0)}
    ran = {source for source, kernel in kernels.items() if kernel.n_runs}
    counts = {
        "made": len(kernels),
        "compiled": sum(not kernel.fault for kernel in kernels.values()),
        "only compiled": sum(kernel.door is None for kernel in kernels.values()),
        "run": len(ran),
        "equal": len(ran - unequal),
    }
    names = sorted({kernel.name for kernel in kernels.values()})
    stand_in = sys.modules["cupy"]
    classes = {
        "ndarray": stand_in.ndarray,
        "cuda.Device": stand_in.Device,
        "cuda.Event": FakeEvent,
        "cuda.MemoryHook": stand_in.MemoryHook,
        "cuda.MemoryPool": stand_in.Pool,
        "cuda.Stream": stand_in.Stream,
    }
    methods = [
        f"{name}.{method}"
        for name, cls in classes.items()
        for method in dir(cls)
        if not method.startswith("_")
        and inspect.isfunction(getattr(cls, method))
        and not hasattr(attrgetter(name)(compiler.cupy), method)
    ]
    report = {"failures": failures, "counts": counts, "names": names, "methods": methods}
    json.dump(report, sys.stdout)


# -- calls of CuPy


def nodes(*packages):
    """Every node of the packages' source, as this package edits it, with its file."""
    for package in packages:
        home = Path(importlib.util.find_spec(package).origin).parent
        for path in home.rglob("*.py"):
            module = ".".join(path.relative_to(home.parent).with_suffix("").parts)
            module, source = module.removesuffix(".__init__"), path.read_text()
            source = edited(module, source) if module in EDITS else source
            for node in ast.walk(ast.parse(source)):
                yield path, node


def names_in(*packages):
    """The names of kernels that are written out in their source."""
    names = set()
    for path, node in nodes(*packages):
        if isinstance(node, ast.Call) and path.name != "cuda.py":
            place = KERNEL_NAMES.get(getattr(node.func, "attr", ""), len(node.args))
            names |= {a.value for a in node.args[place : place + 1] if isinstance(a, ast.Constant)}
    return names


def name_of(node):
    """An attribute of CuPy's as CuPy names it, such as ``cupy.cuda.Event``; of others none."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    parts.insert(0, getattr(node, "id", ""))
    places = [i for i, part in enumerate(parts[:-1]) if part in MODULES]
    return ".".join([MODULES[parts[places[-1]]], *parts[places[-1] + 1 :]]) if places else ""


def signature_of(value):
    """A signature; Cython writes it, with types, in the first line of the docstring."""
    with contextlib.suppress(TypeError, ValueError):
        return inspect.signature(value)
    line = re.match(r"[\w.]*\(([^[\n]*)\)", value.__doc__ or "")
    params = []
    for word in re.split(r",\s*", line[1] if line else "*args, **kwargs"):
        left, default, _ = word.partition("=")
        name = left.split()[-1] if left else ""
        if name not in ("", "self", r"\*"):
            params.append(f"{name}=None" if default else name)
    return inspect.signature(eval(f"lambda {', '.join(params)}: None"))


def faults():
    """Names that CuPy lacks, and calls that it does not take, by their places."""
    importlib.import_module("cupyx.scipy.special")

    places = defaultdict(list)
    for path, node in nodes("chainer_profile", "chainer", "chainermn"):
        name = name_of(node.func if isinstance(node, ast.Call) else node)
        if not name or "engines" in path.parts:  # whose runtimes are others
            continue
        place = f"{path.parent.name}/{path.name}:{node.lineno}"
        try:
            value = attrgetter(name.partition(".")[2])(sys.modules[name.partition(".")[0]])
        except (AttributeError, ImportError):
            places[name].append(place)
            continue
        if isinstance(node, ast.Call) and not any(isinstance(a, ast.Starred) for a in node.args):
            keywords = {word.arg: word for word in node.keywords if word.arg}
            try:
                signature_of(value).bind(*node.args, **keywords)
            except TypeError as error:
                places[f"{name}: {error}"].append(place)
    json.dump(places, sys.stdout)


# -- the tests


def report_of(script):
    """The report of a process with Chainer as this package edits it, and the installed CuPy."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = os.environ | {"PYTHONPATH": path, "FAKE_CUPY_MEMORY": str(1 << 40)}
    command = [sys.executable, "-W", "ignore", "-c", f"import chainer_profile\n{script}"]
    result = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("group", [*TOLERANCES, *NETWORKS])
def test_kernels_compile_and_give_the_results_of_the_cpu(group, subtests):
    needs.program("g++", package="g++")
    report = report_of(
        "from tests.gpu.kernels import start; compiler = start()\n"
        f"from tests.gpu.test_kernels import child; child(compiler, {group!r})"
    )
    print(group, report["counts"])
    for name, why in report["failures"].items():
        with subtests.test(name):
            assert not why, why
            # A function takes float32, if it does not take other types.
            assert why is not None or group != "float32"
    counts = report["counts"]
    assert counts["made"] == counts["compiled"] == counts["run"] + counts["only compiled"] > 5
    assert counts["run"] == counts["equal"]
    assert not report["methods"]  # that the stand-in has, and CuPy has not
    if group == "float32":
        literal = names_in("chainer", "chainermn")
        assert len(literal) > 100
        assert literal - set(report["names"]) == UNCALLED.keys()


def test_cupy_has_all_names_that_are_called():
    lacked = report_of("from tests.gpu.test_kernels import faults; faults()")
    assert {name: at for name, at in lacked.items() if name not in LACKED} == {}
