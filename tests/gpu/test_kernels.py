"""Chainer's CUDA kernels and calls of CuPy work with the installed wheels; no GPU is needed.

Chainer makes each kernel for ``--gpu 0`` on a fake CuPy. The kernel is compiled for a GPU,
and run on the CPU, where its results must equal Chainer's results with NumPy. All this happens in
a separate process, in which the fake CuPy replaces CuPy.
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

from chainer_profile.compat import EDITS, apply_edits
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

#: Tolerances relative to the largest number in an array. Some kernels always compute in float32.
TOLERANCES = {"float16": 2e-2, "float32": 1e-3, "float64": 1e-6}
#: Cases that the fake CuPy cannot run, and why. None of them has a kernel.
WITHOUT = {
    **dict.fromkeys(("inv", "batch_inv", "batch_det", "cholesky"), "calls cuBLAS or cuSOLVER"),
    "as_strided": "looks into CuPy's pool of memory",
    "diagonal": "writes into a read-only view of NumPy",
    "einsum_trace": "compares the base of a view",
    "classification_summary": "uses an array as a slice bound, which CuPy refuses: give label_num",
}
#: Larger tolerance for float32 gradients that already differ by a fifth from float64 on the CPU.
ROUNDING_TOLERANCES = {("resnet50", "train, float32"): 0.5}
NETWORKS = ("resnet20", "se-resnet9-fixup", "resnet50")
HOOKS = (
    *(hooks.WeightDecay(0.1), hooks.Lasso(0.1), hooks.GradientLARS(), hooks.GradientNoise(0.1)),
    *(hooks.GradientClipping(0.1), hooks.GradientHardClipping(-0.1, 0.1)),
)
LABELS = np.array([0, 1, 2, 1], np.int32)
TREE = L.BinaryHierarchicalSoftmax.create_huffman_tree({0: 3, 1: 2, 2: 1})
#: Links with kernels that no case of tests/costs calls, and their arguments.
LINKS = {
    "hierarchical softmax": (lambda: L.BinaryHierarchicalSoftmax(3, TREE), real(4, 3), LABELS),
    "negative sampling": (lambda: L.NegativeSampling(3, [3, 2, 1], 2), real(4, 3), LABELS),
    "embedding": (lambda: L.EmbedID(4, 3, ignore_label=1), LABELS),
}
#: Functions of Chainer that make kernels, and the index of the argument with the name.
KERNEL_NAMES = {"elementwise": 3, "reduce": 6, "raw": 1}
#: Modules of CuPy by their names in Chainer and in this package.
MODULES = {
    **dict.fromkeys(("cupy", "_cupy", "xp"), "cupy"),
    "cupyx": "cupyx",
    "runtime": "cupy.cuda.runtime",
}
#: Names that CuPy may lack, and why that is harmless.
ALLOWED_MISSING_NAMES = {
    **dict.fromkeys(
        ("cupy.cudnn", "cupy.cuda.cudnn", "cupy.cudnn.create_spatial_transformer_descriptor"),
        "Chainer checks whether cuDNN is available",
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
#: Names of kernels that these tests do not compile, and why.
NEVER_COMPILED = {
    "groupnorm_y": "needs cuDNN",
    "div_by_size": "needs NCCL",
    "lars": "is for an array module that Chainer never uses: it calls CuPy's functions instead",
}


# -- in a separate process


def run_function(call, arrays, dtype, xp):
    """Run a function; return outputs and gradients."""
    cast = [a.astype(dtype) if getattr(a, "dtype", a) in ("f", "d") else a for a in arrays]
    ran = cases.run(call, *cast, xp=xp)
    return [y.array for y in ran.ys] + [*ran.grads]


def device_of(xp):
    return "@numpy" if xp is np else "@cupy:0"


def run_update(optimizer, dtype, xp):
    """Update a parameter twice; return it with the state of its update rule."""
    param = chainer.Parameter(real(2, 3).astype(dtype))
    param.to_device(device_of(xp))
    rule = param.update_rule = optimizer.create_update_rule()
    for _ in range(2):
        param.grad = xp.asarray(real(2, 3).astype(dtype))
        param.update()
    return [param.array, *(value for _, value in sorted((rule.state or {}).items()))]


def linear(xp):
    """Make a link with gradients."""
    link = L.Linear(3, 2)
    for param in link.params():
        param.grad = real(*param.shape).astype("f")
    link.to_device(device_of(xp))
    return link


def gradients(link, *more):
    return [param.grad for _, param in sorted(link.namedparams())] + [*more]


def run_hook(function, xp):
    """Run an optimizer hook; return gradients."""
    link = linear(xp)
    optimizer = chainer.optimizers.SGD(0.1).setup(link)
    optimizer.add_hook(function)
    optimizer.call_hooks()
    return gradients(link)


def run_link(make, arrays, dtype, xp):
    """Run a link; return gradients and output."""
    with chainer.using_config("dtype", np.dtype(dtype)):
        model = make()
    model.to_device(device_of(xp))
    y = F.sum(model(*(xp.asarray(a.astype(dtype) if a.dtype.kind == "f" else a) for a in arrays)))
    model.cleargrads()
    y.backward()
    return gradients(model, y.array)


def run_gather(xp):
    """Gather gradients of a link in one array, and scatter them; return the array and gradients."""
    model = linear(xp)
    if xp is np:
        return [np.concatenate([grad.ravel() for grad in gradients(model)]), *gradients(model)]
    gathered = multiprocess_parallel_updater.gather_grads(model)
    model.cleargrads()
    for param in model.params():
        param.grad = xp.zeros(param.shape, "f")
    multiprocess_parallel_updater.scatter_grads(model, gathered)
    return [gathered, *gradients(model)]


def run_differences(xp):
    """Numerical gradients, as in Chainer's own tests."""
    x, gy = (xp.asarray(real(2, 3)) for _ in range(2))
    return [
        gradient_check.numerical_grad(
            lambda: (x * x,), (x,), (gy,), detect_nondifferentiable=detect
        )[0]
        for detect in (False, True)  # with two points, and with four
    ]


def compile_only(xp):
    """Compile kernels that cannot run here, because they need several threads or PTX."""
    if xp is not np:
        from chainermn.communicators import _memory_utility

        _memory_utility._cupy_batched_pack_params()
        _memory_utility._cupy_batched_unpack_params()
        CudaQueue(xp).hold(1)
    return []


def run_network(name, phase, dtype, xp):
    """Run a network; return its output, or the arrays after a training step."""
    with chainer.using_config("dtype", np.dtype(dtype)):
        model = REGISTRY[name].build()
    x = np.random.normal(size=(2, *REGISTRY[name].input_shape)).astype(dtype)
    for param in model.params():  # no parameter stays 0, as in Fixup
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
        f"{path}/{key}": getattr(link, key)
        for path, link in model.namedlinks()
        for key in link._persistent
    }
    return gradients(model, *states, *(averages[key] for key in sorted(averages)))


def checks():
    """Yield all checks as (group, name, data type, function of an array module)."""
    for dtype in TOLERANCES:
        for name, (call, arrays) in CASES.items():
            if name not in WITHOUT:
                yield dtype, name, dtype, partial(run_function, call, arrays, dtype)
        for name, (optimizer, _) in (
            RULES.items() if dtype != "float16" else ()
        ):  # most optimizers refuse it
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


def reason_of_failure(run, tolerance):
    """Why a check fails; empty if it passes, None if the function refuses the data type."""
    cupy = sys.modules["cupy"]
    try:
        expected = seeded(run, np)
    except InvalidType:
        return None
    try:
        for expected_array, array in zip(expected, seeded(run, cupy), strict=True):
            if expected_array is not None or array is not None:
                array = array.host if isinstance(array, cupy.ndarray) else array
                atol = tolerance * max(np.abs(expected_array).max(initial=0), 1e-3)
                np.testing.assert_allclose(array, expected_array, rtol=0, atol=atol)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def run_group(compiler, group):
    """Run the checks of a group, and print failures, numbers of kernels and names as JSON."""
    failures, unequal, kernels = {}, set(), compiler.kernels
    for other, name, dtype, run in checks():
        if other == group:
            before = {source: kernel.n_runs for source, kernel in kernels.items()}
            failures[name] = reason_of_failure(
                run, ROUNDING_TOLERANCES.get((group, name), TOLERANCES[dtype])
            )
            if failures[name]:
                unequal |= {s for s, k in kernels.items() if k.n_runs > before.get(s, 0)}
    ran = {source for source, kernel in kernels.items() if kernel.n_runs}
    counts = {
        "made": len(kernels),
        "compiled": sum(not kernel.error_messages for kernel in kernels.values()),
        "only compiled": sum(kernel.launcher is None for kernel in kernels.values()),
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
    """Yield every AST node of packages with its file, after the edits of compat."""
    for package in packages:
        home = Path(importlib.util.find_spec(package).origin).parent
        for path in home.rglob("*.py"):
            module = ".".join(path.relative_to(home.parent).with_suffix("").parts)
            module, source = module.removesuffix(".__init__"), path.read_text()
            source = apply_edits(module, source) if module in EDITS else source
            for node in ast.walk(ast.parse(source)):
                yield path, node


def names_in(*packages):
    """Names of kernels that are literals in the source of packages."""
    names = set()
    for path, node in nodes(*packages):
        if isinstance(node, ast.Call) and path.name != "cuda.py":
            index = KERNEL_NAMES.get(getattr(node.func, "attr", ""), len(node.args))
            names |= {a.value for a in node.args[index : index + 1] if isinstance(a, ast.Constant)}
    return names


def name_of(node):
    """Full name of an attribute of CuPy, such as ``cupy.cuda.Event``; empty for others."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    parts.insert(0, getattr(node, "id", ""))
    indices = [i for i, part in enumerate(parts[:-1]) if part in MODULES]
    return ".".join([MODULES[parts[indices[-1]]], *parts[indices[-1] + 1 :]]) if indices else ""


def signature_of(value):
    """Signature of a function; for Cython from the first line of its docstring."""
    with contextlib.suppress(TypeError, ValueError):
        return inspect.signature(value)
    line = re.match(r"[\w.]*\(([^[\n]*)\)", value.__doc__ or "")
    params = []
    for param in re.split(r",\s*", line[1] if line else "*args, **kwargs"):
        left, default, _ = param.partition("=")
        name = left.split()[-1] if left else ""
        if name not in ("", "self", r"\*"):
            params.append(f"{name}=None" if default else name)
    return inspect.signature(eval(f"lambda {', '.join(params)}: None"))


def missing_names():
    """Print names that CuPy lacks and calls that it refuses, with their locations, as JSON."""
    importlib.import_module("cupyx.scipy.special")

    locations = defaultdict(list)
    for path, node in nodes("chainer_profile", "chainer", "chainermn"):
        name = name_of(node.func if isinstance(node, ast.Call) else node)
        if not name or "engines" in path.parts:  # engines use other runtimes
            continue
        location = f"{path.parent.name}/{path.name}:{node.lineno}"
        try:
            value = attrgetter(name.partition(".")[2])(sys.modules[name.partition(".")[0]])
        except (AttributeError, ImportError):
            locations[name].append(location)
            continue
        if isinstance(node, ast.Call) and not any(isinstance(a, ast.Starred) for a in node.args):
            keywords = {keyword.arg: keyword for keyword in node.keywords if keyword.arg}
            try:
                signature_of(value).bind(*node.args, **keywords)
            except TypeError as error:
                locations[f"{name}: {error}"].append(location)
    json.dump(locations, sys.stdout)


# -- the tests


def report_of(script):
    """Run a script with the apply_edits Chainer and the installed CuPy; return its JSON output."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = os.environ | {"PYTHONPATH": path, "FAKE_CUPY_MEMORY": str(1 << 40)}
    command = [sys.executable, "-W", "ignore", "-c", f"import chainer_profile\n{script}"]
    result = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("group", [*TOLERANCES, *NETWORKS])
def test_kernels_compile_and_compute_the_results_of_the_cpu(group, subtests):
    needs.program("g++", package="g++")
    report = report_of(
        "from tests.gpu.kernels import start; compiler = start()\n"
        f"from tests.gpu.test_kernels import run_group; run_group(compiler, {group!r})"
    )
    print(group, report["counts"])
    for name, why in report["failures"].items():
        with subtests.test(name):
            assert not why, why
            # Every function accepts float32.
            assert why is not None or group != "float32"
    counts = report["counts"]
    assert counts["made"] == counts["compiled"] == counts["run"] + counts["only compiled"] > 5
    assert counts["run"] == counts["equal"]
    assert not report["methods"]  # methods of the fake CuPy that CuPy lacks
    if group == "float32":
        literal = names_in("chainer", "chainermn")
        assert len(literal) > 100
        assert literal - set(report["names"]) == NEVER_COMPILED.keys()


def test_cupy_has_all_called_names():
    missing = report_of("from tests.gpu.test_kernels import missing_names; missing_names()")
    assert {name: at for name, at in missing.items() if name not in ALLOWED_MISSING_NAMES} == {}
