"""With the edits of chainer_profile.compat, Chainer computes the results of NumPy 1.23.5."""

import importlib.util
import io
import sys
import textwrap
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from chainer_profile import compat
from tests import needs
from tests.fakes import FAKE
from tests.scripts import python

compat.install()

import chainer  # noqa: E402
import chainer.functions as F  # noqa: E402
import chainer.links as L  # noqa: E402
import numpy as np  # noqa: E402
from chainer import testing  # noqa: E402
from chainer.dataset import concat_examples  # noqa: E402
from chainer.testing import doctest_helper  # noqa: E402
from chainermn.extensions import ObservationAggregator  # noqa: E402
from chainermn.iterators import create_multi_node_iterator  # noqa: E402


def run(code, *options, **env):
    """Run code in a new interpreter; return output and errors."""
    done = python(*options, "-c", textwrap.dedent(code), env={"PYTHONWARNINGS": "", **env})
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_each_edit_finds_its_text_and_moves_no_line():
    for module, edits in compat.EDITS.items():
        # Find the file by its package, because importing it may need more packages.
        package, *parts = module.split(".")
        folder = Path(importlib.util.find_spec(package).origin).parent
        stem = folder.joinpath(*parts)
        path = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
        source = path.read_text(encoding="utf-8")
        for old, new in edits.items():
            assert old in source, module
            assert new.count("\n") == old.count("\n"), module
        compile(compat.apply_edits(module, source), module, "exec")


def test_install_imports_nothing_and_concurrent_imports_leave_numpy_unchanged():
    out, _ = run(
        """
        import sys, threading
        from chainer_profile import compat
        compat.install()
        print({"numpy", "chainer", "cupy", "packaging"} & set(sys.modules))
        import numpy
        before = set(vars(numpy))
        imported = []
        def work():
            import chainer.functions
            imported.append(chainer.functions.resize_images)
        threads = [threading.Thread(target=work) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        import chainer_profile, chainer.testing
        modules = {name.removeprefix("numpy.") for name in sys.modules}
        print(len(imported), set(vars(numpy)) - before - modules)
        print({"pkg_resources", "numpy.distutils"} & set(sys.modules))
        """
    )
    assert out.splitlines() == ["set()", "8 set()", "set()"]
    compat.install()
    compat.install()
    assert sys.meta_path.count(compat._Finder) == 1


@pytest.mark.smoke
def test_install_after_chainer_was_imported():
    """The script itself restores what Chainer lacks on a current stack."""
    out, _ = run(
        """
        import sys, types
        import numpy
        numpy.sctypes = {"int": [numpy.int8, numpy.int16, numpy.int32, numpy.int64], "float": []}
        stand_ins = [types.ModuleType(name) for name in (
            "numpy.distutils", "numpy.distutils.system_info", "pkg_resources")]
        sys.modules.update({module.__name__: module for module in stand_ins})
        numpy.distutils, stand_ins[0].system_info, packages = stand_ins
        class Missing(Exception): pass
        def require(name): raise Missing
        packages.DistributionNotFound = packages.VersionConflict = Missing
        packages.require = require
        import chainer
        from chainer_profile import compat
        compat.install()
        import chainer.functions as F
        x = numpy.arange(4, dtype="f").reshape(1, 1, 2, 2)
        print(F.resize_images(x, (1, 3)).array.ravel().tolist())
        summary = chainer.Summary()
        summary.add(numpy.float16(60000))
        summary.add(numpy.float16(60000))
        print(summary.compute_mean())
        print(F.pad_sequence([numpy.ones(1, "u1"), numpy.ones(2, "u1")], padding=-1).array.tolist())
        """
    )
    assert out.splitlines() == ["[0.0, 0.5, 1.0]", "60000.0", "[[1, 255], [1, 1]]"]


@pytest.mark.process
def test_import_works_after_a_failed_import_of_chainer():
    out, _ = run(
        """
        try: import chainer
        except Exception: print("failed")
        import chainer_profile
        import chainer.functions as F, numpy as np
        x = np.arange(4, dtype="f").reshape(1, 1, 2, 2)
        print(F.resize_images(x, (1, 3)).array.ravel().tolist())
        """
    )
    assert out.splitlines() == ["failed", "[0.0, 0.5, 1.0]"]


@pytest.mark.process
def test_no_warning_at_import_and_in_training():
    run(
        """
        import chainer_profile
        import chainer, numpy as np
        import chainer.functions as F, chainer.links as L
        model = L.Classifier(chainer.Sequential(
            L.Convolution2D(None, 4, 3), L.BatchNormalization(4), F.relu,
            lambda x: F.max_pooling_2d(x, 2), F.dropout, L.Linear(None, 3)))
        optimizer = chainer.optimizers.Adam().setup(model)
        optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(1e-4))
        batch = [(np.ones((1, 8, 8), "f"), np.int32(n)) for n in range(3)]
        iterator = chainer.iterators.SerialIterator(batch, 3)
        chainer.training.StandardUpdater(iterator, optimizer).update()
        """,
        *("-W", "error"),
    )


def image(mode, align):
    x = np.arange(4, dtype="f").reshape(1, 1, 2, 2)
    return F.resize_images(x, (1, 4), mode=mode, align_corners=align).array.ravel()


def added(dtype, constant):
    return chainer.Variable(np.array([3], dtype)) + constant


def arrays(dtype):
    return [np.ones(1, dtype), np.ones(2, dtype)]


def product(*shape):
    a = np.arange(np.prod(shape), dtype="e").reshape(shape)
    return F.sparse_matmul(chainer.utils.to_coo(a), np.ones((*shape[:-2], 3, 2), "e"))


def entropy(twice):
    # Labels of one byte, an ignored label, and more classes than a byte can count.
    t = np.array([5, -1], "i1")
    return F.softmax_cross_entropy(np.zeros((2, 400), "f"), t, enable_double_backprop=twice)


def summed(*pairs):
    """Mean and standard deviation of (value, weight) pairs."""
    summary = chainer.Summary()
    for value, weight in pairs:
        summary.add(value, weight)
    return np.array(summary.make_statistics())


CATEGORIES = chainer.distributions.Categorical(p=np.array([[0.25, 0.75], [0.5, 0.5]], "f"))
HALVES = np.float64([60000, 60000, 2048])
STATISTICS = [HALVES.mean(), HALVES.std()]
#: Calls, data types of the results, and values.
CALLS = [
    (lambda: F.as_strided(np.arange(6, dtype="f"), (2, 3), (1, 1)), "f4", [[0, 1, 2], [1, 2, 3]]),
    (lambda: image("bilinear", True), "f4", [0, 1 / 3, 2 / 3, 1]),
    (lambda: image("bilinear", False), "f4", [1, 1.25, 1.75, 2]),
    (lambda: image("nearest", False), "f4", [0, 0, 1, 1]),
    (lambda: F.fix(np.array([-1.5, -0.5, 1.9], "f")), "f4", [-1, 0, 1]),
    (lambda: concat_examples(arrays("u1"), padding=0), "u1", [[1, 0], [1, 1]]),
    (lambda: concat_examples(arrays("u1"), padding=-1), "u1", [[1, 255], [1, 1]]),
    (lambda: CATEGORIES.log_prob(np.array([1, 0])), "f4", np.log([0.75, 0.5])),
    (lambda: product(2, 2, 3), "f2", [[[3, 3], [12, 12]], [[21, 21], [30, 30]]]),
    # Integers out of range wrap around.
    (lambda: added("u1", -1), "u1", [2]),
    (lambda: added("i4", 2**33 + 1), "i4", [4]),
    (lambda: added("u1", 1.9), "u1", [4]),
    (lambda: chainer.utils.force_type(np.dtype("u1"), -1), "u1", 255),
    (lambda: chainer.utils.force_type(np.dtype("f4"), 0.1), "f4", np.float32(0.1)),
    (
        lambda: F.pad_sequence(arrays("u8"), 3, padding=-1),
        "u8",
        [[1, 2**64 - 1, 2**64 - 1], [1, 1, 2**64 - 1]],
    ),
    (lambda: entropy(False), "f4", np.log(400)),
    (lambda: entropy(True), "f4", np.log(400)),
    (lambda: F.det(np.array([[2, 1], [1, 3]], "f")), "f4", 5),
    # Sums of NumPy scalars are in float64.
    (lambda: summed(*((np.float16(x), np.float16(1)) for x in HALVES)), "f8", STATISTICS),
    (lambda: summed((1.0, np.float16(2048)), (4.0, np.float16(1)))[0], "f8", 2052 / 2049),
]


def test_calls_give_the_old_results_without_a_warning():
    for index, (call, dtype, expected) in enumerate(CALLS):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            y = call()
        y = getattr(y, "array", y)
        assert (y.dtype, np.shape(y)) == (np.dtype(dtype), np.shape(expected)), index
        tolerance = {"f4": 1e-6, "f8": 1e-12}.get(dtype, 0)
        np.testing.assert_allclose(y, np.array(expected), rtol=tolerance, err_msg=str(index))
    x = chainer.Variable(np.arange(6, dtype="f"))
    F.sum(F.as_strided(x, (2, 3), (1, 1))).backward()
    assert x.grad.tolist() == [1, 2, 2, 1, 0, 0]
    y = F.as_strided(chainer.Variable(np.arange(4)), (2,), (1,))
    y.grad = np.ones(2, int)
    with pytest.raises(TypeError, match="Only float"):
        y.backward()
    iterator = chainer.iterators.MultiprocessIterator([1, 2, 3], 2, n_processes=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "setDaemon")
        assert len(iterator.next()) == 2
    iterator.finalize()
    assert "- device: CPU\n" in chainer.Variable(np.ones(2, "f")).debug_print()
    with pytest.raises(chainer.utils.type_check.InvalidType, match=r"shape\[0\] >= max_index"):
        F.split_axis(np.ones((4, 4), "f"), [1, 9], np.int64(0))


def test_requirements_of_chainers_tests_are_checked():
    for requirement, holds in (("numpy>=1.10", True), ("numpy>=99", False), ("no-such", False)):
        function = testing.with_requires("numpy>=1.10", requirement)(lambda: None)
        assert getattr(function, "__unittest_skip__", False) is not holds
        assert doctest_helper.skipif_requires_satisfied(requirement) is holds


# NumPy scalars as hyperparameters.

X = np.linspace(-1, 1, 24, dtype="f").reshape(4, 3, 2)
ONES = np.ones(3, "f")
ZEROS = np.zeros(3, "f")


def renormalised(x, eps, rmax, dmax):
    return F.batch_renormalization(
        x, ONES, ZEROS, rmax, dmax, eps, running_mean=ZEROS.copy(), running_var=ONES.copy()
    )


def dropped(x, ratio):
    np.random.seed(0)  # noqa: NPY002 - Chainer draws from NumPy's global generator
    return F.dropout(x, ratio)


def unconnected(x, ratio):
    return F.simplified_dropconnect(x, np.eye(3), ratio=ratio, mask=np.ones((4, 3, 3), bool))


#: Functions and arguments. float64 scalars keep float32 arrays; float16 scalars lose no digits.
SCALARS = [
    (lambda x, e: F.fixed_batch_normalization(x, ONES, ZEROS, ZEROS, ONES, e), X, 1e-3),
    (renormalised, X, 1e-3, 1.5, 0.25),
    (lambda x, e: F.layer_normalization(x, ONES, ZEROS, e), X[..., 0], 1e-3),
    (lambda x, k, a, b: F.local_response_normalization(x, 3, k, a, b), X, 2.0, 0.1, 0.75),
    *((f, X[..., 0].astype("d"), 0.3) for f in (F.softplus, dropped, unconnected)),
    (lambda x, scalar: x / scalar, X[..., 0].astype("d"), 0.3),
]


def test_numpy_scalars_behave_like_python_numbers():
    for index, (function, array, *numbers) in enumerate(SCALARS):
        kind = np.float64 if array.dtype == np.float32 else np.float16

        def results(convert):
            x = chainer.Variable(array.copy())  # noqa: B023
            y = function(x, *(convert(kind(number)) for number in numbers))  # noqa: B023
            y.grad = np.arange(y.size, dtype=y.dtype).reshape(y.shape)
            y.backward()
            return y.array, x.grad

        for result, expected in zip(results(kind), results(float), strict=True):
            assert result.dtype == array.dtype, index
            tolerance = 0 if kind is np.float64 else 1e-12
            np.testing.assert_allclose(result, expected, rtol=tolerance, err_msg=str(index))


# Serializers.


def loaded(saved, value):
    file = io.BytesIO()
    np.savez(file, key=saved)
    file.seek(0)
    with np.load(file, allow_pickle=True) as npz:
        return chainer.serializers.NpzDeserializer(npz)("key", value)


def test_serializers_load_scalars_and_empty_arrays(tmp_path):
    value = np.zeros(2, "u1")
    assert loaded(np.int64(3), value) is value
    assert value.tolist() == [3, 3]
    with pytest.raises(TypeError):
        loaded(np.float64(2.5), np.zeros(2, "i4"))
    for value in (3, np.zeros(2)):
        assert loaded(np.asarray(None), value) is None
    assert loaded(np.arange(3), None).tolist() == [0, 1, 2]
    full = L.Linear(3, 2)
    before = full.W.array.copy()
    chainer.serializers.save_npz(tmp_path / "empty.npz", L.Linear(None, 2))
    chainer.serializers.load_npz(tmp_path / "empty.npz", full)
    np.testing.assert_array_equal(full.W.array, before)
    h5py = needs.module("h5py")
    for saved, value in ((5, 1), (2.5, 0.0), (True, False)):
        with h5py.File(tmp_path / "file", "w") as file:
            file["key"] = np.array([saved])
            from_file = chainer.serializers.HDF5Deserializer(file)("key", value)
        for value_loaded in (loaded(np.array([saved]), value), from_file):
            assert (value_loaded, type(value_loaded)) == (saved, type(value))


class FromRank0:
    """A fake ChainerMN communicator on rank 1 of 2, which receives these objects from rank 0."""

    rank, size = 1, 2

    def __init__(self, *sent):
        self.sent = list(sent)

    def bcast(self, x, root):
        return self.sent.pop(0)

    gather_obj = bcast_obj = lambda self, x: self.bcast(x, 0)


def test_chainermn_works_on_the_cpu():
    with pytest.warns(FutureWarning, match="experimental"):
        iterator = create_multi_node_iterator(None, FromRank0(np.float32([24]), np.float32([-1])))
    assert iterator.dataset_size == 24
    # Without ChainerX.
    loss = chainer.Variable(np.array(3, "f"))
    trainer = SimpleNamespace(observation={"main/loss": loss}, updater=SimpleNamespace(iteration=1))
    ObservationAggregator(FromRank0(None, 2.5), "main/loss")(trainer)
    assert trainer.observation["main/loss"] == 2.5


def test_chainermn_unpacks_a_gradient_of_another_type():
    pytest.importorskip("mpi4py")  # some Pythons of CI lack it
    from chainermn.communicators._memory_utility import unpack_params

    # The parameter is in double precision, and the buffer in single precision.
    param = chainer.Parameter(np.zeros(2))
    param.grad = np.zeros(2)
    buffer = SimpleNamespace(to_device=lambda array, size, offset, stream: array.fill(size))
    unpack_params([param], "grad", buffer, np.dtype("f"), zero_fill=False)
    assert param.grad.tolist() == [8, 8]


# CuPy.

LOUD = """
import warnings
for library in ("cudnn", "nccl"):
    warnings.warn(f"\\n{library} library could not be loaded.\\n\\nReason: ImportError")
"""
NO_LIBRARIES = LOUD + 'raise ImportError("libcublas.so.12: cannot open shared object file")\n'
CUPY_14 = LOUD + (FAKE / "cupy.py").read_text().partition('"""\n\n')[2].replace(
    "from __future__ import annotations\n", ""
)
CUPY_13 = CUPY_14.replace("14.2.0", "13.6.0")


@pytest.mark.process
@pytest.mark.parametrize(
    ("cupy", "devices", "available", "lines"),
    [
        (NO_LIBRARIES, 1, False, 0),
        (CUPY_14, -1, True, 0),
        (CUPY_13, -1, True, 0),
        (CUPY_14, 1, True, 0),
        # CuPy 13 may have cuDNN, so Chainer warns as usual that it is missing.
        (CUPY_13, 1, True, 1),
    ],
    ids=["no libraries", "14, no driver", "13, no driver", "14", "13 without cuDNN"],
)
def test_cpu_run_with_a_broken_cupy(cupy, devices, available, lines, tmp_path):
    (tmp_path / "cupy.py").write_text(f"from __future__ import annotations\n{cupy}")
    out, err = run(
        f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import chainer_profile
        import chainer, numpy as np
        y = chainer.functions.sum(chainer.links.Convolution2D(3, 2, 3)(np.ones((1, 3, 5, 5), "f")))
        y.backward()
        print(y.dtype, chainer.backends.cuda.available)
        """,
        FAKE_CUPY_DEVICES=str(devices),
    )
    assert out == f"float32 {available}\n"
    assert err.count("Warning") == lines
    assert "library could not be loaded" not in err


@pytest.mark.parametrize(
    ("version", "missing", "is_needed"),
    [("1.26.4", "", False), ("2.0.0", "", True), ("1.26.4", "pkg_resources", True)],
)
def test_compat_is_needed_if_chainer_cannot_be_imported(version, missing, is_needed, monkeypatch):
    monkeypatch.setattr(np, "__version__", version)
    monkeypatch.setattr(compat.importlib.util, "find_spec", lambda name: name != missing or None)
    assert compat.is_needed() == is_needed
