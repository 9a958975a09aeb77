"""The edits of chainer_profile.compat: what NumPy 1.23.5 gave is what Chainer gives."""

import ast
import io
import os
import subprocess
import sys
import textwrap
import warnings
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from chainer_profile import compat
from tests import ROOT, needs

compat.install()

import chainer  # noqa: E402
import chainer.functions as F  # noqa: E402
import chainer.links as L  # noqa: E402
import numpy as np  # noqa: E402

# What an older Chainer stack had: for a process that imports Chainer before it is mended.
STAND_INS = """
import sys, types
import numpy
numpy.sctypes = {"int": [numpy.int8, numpy.int16, numpy.int32, numpy.int64], "float": []}
distutils = types.ModuleType("numpy.distutils")
distutils.system_info = types.ModuleType("numpy.distutils.system_info")
numpy.distutils = distutils
packages = types.ModuleType("pkg_resources")
class Missing(Exception): pass
def require(name): raise Missing
packages.DistributionNotFound = packages.VersionConflict = Missing
packages.require = require
stand_ins = {"numpy.distutils": distutils, "numpy.distutils.system_info": distutils.system_info,
             "pkg_resources": packages}
sys.modules.update(stand_ins)
"""


def run(code, *options, path=()):
    """Run code in a fresh interpreter at the project's root; return (stdout, stderr)."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *map(str, path)])
    done = subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def source_of(module):
    path = None
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = PathFinder.find_spec(name, path)
        path = spec.submodule_search_locations
    return Path(spec.origin).read_text(encoding="utf-8")


@pytest.mark.parametrize("module", compat.EDITS)
def test_every_edit_finds_its_text_and_moves_no_line(module):
    source = source_of(module)
    for old, new in compat.EDITS[module].items():
        assert old in source
        assert new.partition(compat._END)[0].count("\n") == old.count("\n")
    compile(compat.edited(module, source), module, "exec")


def test_install_imports_neither_numpy_nor_chainer():
    out, _ = run(
        """
        import sys
        from chainer_profile import compat
        compat.install()
        print(sorted({"numpy", "chainer", "cupy", "packaging"} & set(sys.modules)))
        """
    )
    assert out == "[]\n"


def test_install_twice_adds_one_finder():
    compat.install()
    compat.install()
    assert sys.meta_path.count(compat._Finder) == 1


def test_import_leaves_numpy_and_the_modules_as_they_were():
    out, _ = run(
        """
        import sys
        import numpy
        before = set(vars(numpy))
        import chainer_profile, chainer, chainer.testing
        print(sorted(set(vars(numpy)) - before - set(sys.modules) - {"testing", "lib"}
                     - {name[6:] for name in sys.modules if name.startswith("numpy.")}))
        print(hasattr(numpy, "float"), hasattr(numpy, "sctypes"))
        print(sorted({"pkg_resources", "numpy.distutils"} & set(sys.modules)))
        """
    )
    lines = out.splitlines()
    assert lines[0] == "[]"
    assert lines[2] == "[]"
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        assert lines[1] == "False False"


@pytest.mark.process
def test_threads_that_import_at_once():
    out, _ = run(
        """
        import threading
        import chainer_profile
        def work():
            import chainer.functions
            found.append(chainer.functions.resize_images)
        found = []
        threads = [threading.Thread(target=work) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        print(len(found))
        """
    )
    assert out == "8\n"


@pytest.mark.smoke
def test_chainer_imported_before():
    out, _ = run(
        STAND_INS
        + """
import chainer
for name in stand_ins: del sys.modules[name]
del numpy.sctypes
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
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_children_that_import_the_main_script_again(method, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing, chainer\n"
        "if __name__ == '__main__':\n"
        f"    process = multiprocessing.get_context({method!r}).Process(target=chainer.get_dtype)\n"
        "    process.start()\n"
        "    process.join()\n"
        "    print(process.exitcode)\n"
    )
    # The child is not told by PYTHONPATH where this project is.
    out, _ = run(
        f"""
        import os, runpy
        from chainer_profile import compat
        del os.environ["PYTHONPATH"]
        os.chdir({str(tmp_path)!r})
        compat.install_in_children()
        runpy.run_path({str(script)!r}, run_name="__main__")
        """
    )
    assert out == "0\n"


@pytest.mark.process
def test_no_warning_at_import_and_in_a_common_network():
    run(
        """
        import chainer_profile
        import chainer, numpy as np
        import chainer.functions as F, chainer.links as L
        net = chainer.Sequential(
            L.Convolution2D(None, 4, 3), L.BatchNormalization(4), F.relu,
            lambda x: F.max_pooling_2d(x, 2), lambda x: F.dropout(x), L.Linear(None, 3))
        model = L.Classifier(net)
        optimizer = chainer.optimizers.Adam().setup(model)
        optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(1e-4))
        batch = [(np.ones((1, 8, 8), "f"), np.int32(1)), (np.zeros((1, 8, 8), "f"), np.int32(2))]
        iterator = chainer.iterators.SerialIterator(batch * 4, 4)
        updater = chainer.training.StandardUpdater(iterator, optimizer)
        for _ in range(3):
            updater.update()
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            net(np.ones((1, 1, 8, 8), "f"))
        """,
        "-W",
        "error",
    )


# What stops the import.


def test_as_strided_and_its_gradient():
    x = chainer.Variable(np.arange(6, dtype="f"))
    y = F.as_strided(x, (2, 3), (1, 1))
    assert y.array.tolist() == [[0, 1, 2], [1, 2, 3]]
    F.sum(y).backward()
    assert x.grad.tolist() == [1, 2, 2, 1, 0, 0]
    y = F.as_strided(chainer.Variable(np.arange(4)), (2,), (1,))
    y.grad = np.ones(2, int)
    with pytest.raises(TypeError, match="Only float"):
        y.backward()


def test_with_requires():
    from chainer import testing

    for requirements, skipped in [
        (["numpy>=1.10"], False),
        (["numpy>=1.10", "numpy>=99"], True),
        (["no-such-distribution"], True),
    ]:

        @testing.with_requires(*requirements)
        def function():
            pass

        assert getattr(function, "__unittest_skip__", False) is skipped
    from chainer.testing import doctest_helper

    assert doctest_helper.skipif_requires_satisfied("numpy>=1.10")
    assert not doctest_helper.skipif_requires_satisfied("numpy>=99")


def test_caffe_export_and_import(tmp_path):
    needs.module("google.protobuf")
    from chainer.exporters import caffe
    from chainer.links.caffe import CaffeFunction

    class Net(chainer.Chain):
        def __init__(self):
            super().__init__()
            with self.init_scope():
                self.conv = L.Convolution2D(1, 2, 3, initialW=0.5)
                self.fc = L.Linear(18, 3)

        def forward(self, x):
            return F.softmax(self.fc(F.relu(self.conv(x))))

    net = Net()
    x = np.ones((1, 1, 5, 5), "f")
    with chainer.using_config("train", False):
        caffe.export(net, [chainer.Variable(x)], str(tmp_path), True)
        read = CaffeFunction(str(tmp_path / "chainer_model.caffemodel"))
        (y,) = read({"data": x}, [read.layers[-1][0]])
        np.testing.assert_allclose(y.array, net(x).array, rtol=1e-6)


# Names and arguments that are gone.


@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_resize_images(mode, align):
    x = np.arange(4, dtype="f").reshape(1, 1, 2, 2)
    y = F.resize_images(x, (1, 4), mode=mode, align_corners=align)
    expected = {
        ("bilinear", True): [0, 1 / 3, 2 / 3, 1],
        ("bilinear", False): [1, 1.25, 1.75, 2],
        ("nearest", True): [0, 0, 1, 1],
        ("nearest", False): [0, 0, 1, 1],
    }[mode, align]
    assert y.dtype == np.float32
    np.testing.assert_allclose(y.array.ravel(), expected, rtol=1e-6)


def test_fix_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = F.fix(np.array([-1.5, -0.5, 1.9], "f"))
    assert y.dtype == np.float32
    assert y.array.tolist() == [-1, 0, 1]


def test_batches_with_padding():
    arrays = [np.array([1], "u1"), np.array([2, 3], "u1")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = chainer.dataset.concat_examples(arrays, padding=0)
    assert batch.tolist() == [[1, 0], [2, 3]]
    batch = chainer.dataset.concat_examples(arrays, padding=-1)
    assert batch.dtype == np.uint8
    assert batch.tolist() == [[1, 255], [2, 3]]


def test_multiprocess_iterator_without_a_warning():
    iterator = chainer.iterators.MultiprocessIterator([1, 2, 3], 2, n_processes=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "setDaemon")
        assert len(iterator.next()) == 2
    iterator.finalize()


def test_debug_print_names_the_cpu():
    assert "- device: CPU\n" in chainer.Variable(np.ones(2, "f")).debug_print()


def test_numpy_scalar_in_a_type_error():
    with pytest.raises(chainer.utils.type_check.InvalidType, match=r"shape\[0\] >= max_index"):
        F.split_axis(np.ones((4, 4), "f"), [1, 9], np.int64(0))


def test_categorical_log_prob():
    p = np.array([[0.25, 0.75], [0.5, 0.5]], "f")
    log_prob = chainer.distributions.Categorical(p=p).log_prob(np.array([1, 0]))
    np.testing.assert_allclose(log_prob.array, np.log([0.75, 0.5]), rtol=1e-6)


@pytest.mark.parametrize("shape", [(2, 3), (2, 2, 3)])
def test_sparse_matmul_of_float16(shape):
    a = np.arange(np.prod(shape), dtype="e").reshape(shape)
    b = np.ones((*shape[:-2], 3, 2), "e")
    y = F.sparse_matmul(chainer.utils.to_coo(a), b)
    assert y.dtype == np.float16
    assert y.array.tolist() == (a @ b).tolist()


# Integers out of range.


@pytest.mark.parametrize(
    ("dtype", "constant", "expected"),
    [("u1", -1, 2), ("i1", 300, 47), ("i4", 2**33 + 1, 4), ("f4", -1, 2), ("u1", 1.9, 4)],
)
def test_constant_out_of_range_wraps_around(dtype, constant, expected):
    y = chainer.Variable(np.array([3], dtype)) + constant
    assert y.dtype == dtype
    assert y.array.tolist() == [expected]


def test_forced_type_out_of_range_wraps_around():
    value = chainer.utils.force_type(np.dtype("u1"), -1)
    assert value == 255
    assert value.dtype == np.uint8
    assert chainer.utils.force_type(np.dtype("f4"), 0.1) == np.float32(0.1)


@pytest.mark.parametrize(("dtype", "expected"), [("u1", 255), ("u8", 2**64 - 1), ("f4", -1)])
def test_pad_sequence_with_minus_one(dtype, expected):
    y = F.pad_sequence([np.ones(1, dtype), np.ones(2, dtype)], 3, padding=-1)
    assert y.dtype == dtype
    assert y.array.tolist() == [[1, expected, expected], [1, 1, expected]]


@pytest.mark.parametrize("twice", [False, True])
def test_softmax_cross_entropy_of_small_labels(twice):
    # Labels of a byte, one to be ignored, and more classes than a byte can count.
    x = np.zeros((2, 400), "f")
    t = np.array([5, -1], "i1")
    y = F.softmax_cross_entropy(x, t, enable_double_backprop=twice)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y.array, np.log(400), rtol=1e-6)


def test_det():
    y = F.det(np.array([[2, 1], [1, 3]], "f"))
    assert y.shape == ()
    np.testing.assert_allclose(y.array, 5, rtol=1e-6)
    assert int(F.det(np.array([[2]], "f")).array) == 2


# NumPy scalars as hyperparameters.

X = np.linspace(-1, 1, 24, dtype="f").reshape(4, 3, 2)
ONES = np.ones(3, "f")
ZEROS = np.zeros(3, "f")


def renormalised(x, eps, rmax, dmax):
    return F.batch_renormalization(
        x, ONES, ZEROS, rmax, dmax, eps, running_mean=ZEROS.copy(), running_var=ONES.copy()
    )


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (lambda x, e: F.fixed_batch_normalization(x, ONES, ZEROS, ZEROS, ONES, e), [1e-3]),
        (renormalised, [1e-3, 1.5, 0.25]),
        (lambda x, e: F.layer_normalization(x[..., 0], ONES, ZEROS, e), [1e-3]),
        (lambda x, k, a, b: F.local_response_normalization(x, 3, k, a, b), [2.0, 0.1, 0.75]),
    ],
)
def test_float64_scalar_leaves_float32(function, arguments):
    def results(convert):
        x = chainer.Variable(X.copy())
        y = function(x, *map(convert, arguments))
        y.grad = np.arange(y.size, dtype="f").reshape(y.shape)
        y.backward()
        return y.array, x.grad

    for got, expected in zip(results(np.float64), results(float), strict=True):
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, expected)


def dropped(x, ratio):
    np.random.seed(0)  # noqa: NPY002 - Chainer draws from NumPy's global generator
    return F.dropout(x, ratio)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, scalar: F.softplus(x, scalar),
        dropped,
        lambda x, scalar: F.simplified_dropconnect(
            x, np.eye(3), ratio=scalar, mask=np.ones((4, 3, 3), bool)
        ),
        lambda x, scalar: x / scalar,
    ],
)
def test_float16_scalar_loses_no_digits(function):
    scalar = np.float16(0.3)
    x = chainer.Variable(X[..., 0].astype("d"))
    got = function(x, scalar).array
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, function(x, float(scalar)).array, rtol=1e-12)


@pytest.mark.parametrize("as_array", [False, True])
def test_summary_adds_up_in_float64(as_array):
    summary = chainer.Summary()
    for value in [60000, 60000, 2048]:
        number = np.float16(value)
        summary.add(np.array(number) if as_array else number, np.float16(1))
    mean, deviation = summary.make_statistics()
    values = [np.float64(np.float16(value)) for value in [60000, 60000, 2048]]
    np.testing.assert_allclose([mean, deviation], [np.mean(values), np.std(values)], rtol=1e-12)
    summary = chainer.Summary()
    summary.add(1.0, np.float16(2048))
    summary.add(4.0, np.float16(1))
    np.testing.assert_allclose(summary.compute_mean(), 2052 / 2049, rtol=1e-12)


# Serializers.


def loaded(saved, value):
    file = io.BytesIO()
    np.savez(file, key=saved)
    file.seek(0)
    with np.load(file, allow_pickle=True) as npz:
        return chainer.serializers.NpzDeserializer(npz)("key", value)


def test_npz_scalar_into_an_array_of_another_type():
    value = np.zeros(2, "u1")
    assert loaded(np.int64(3), value) is value
    assert value.tolist() == [3, 3]
    with pytest.raises(TypeError):
        loaded(np.float64(2.5), np.zeros(2, "i4"))


@pytest.mark.parametrize(
    ("saved", "value", "expected"), [(5, 1, 5), (2.5, 0.0, 2.5), (True, False, True)]
)
def test_one_element_as_a_number(saved, value, expected, tmp_path):
    got = loaded(np.array([saved]), value)
    assert got == expected
    assert type(got) is type(value)
    h5py = needs.module("h5py")
    with h5py.File(tmp_path / "file", "w") as file:
        file["key"] = np.array([saved])
        got = chainer.serializers.HDF5Deserializer(file)("key", value)
    assert got == expected
    assert type(got) is type(value)


class FromRank0:
    """A communicator of ChainerMN's on rank 1 of 2, to which rank 0 sends this."""

    rank, size = 1, 2

    def __init__(self, *sent):
        self.sent = list(sent)

    def bcast(self, x, root):
        return self.sent.pop(0)

    gather_obj = bcast_obj = lambda self, x: self.bcast(x, 0)


def test_multi_node_iterator_knows_the_size_of_the_data_set():
    from chainermn.iterators import create_multi_node_iterator

    with pytest.warns(FutureWarning, match="experimental"):
        iterator = create_multi_node_iterator(None, FromRank0(np.float32([24]), np.float32([-1])))
    assert iterator.dataset_size == 24


def test_a_variable_is_observed_on_all_ranks_without_chainerx():
    from types import SimpleNamespace

    from chainermn.extensions import ObservationAggregator

    own = chainer.Variable(np.array(3, "f"))
    trainer = SimpleNamespace(observation={"main/loss": own}, updater=SimpleNamespace(iteration=1))
    ObservationAggregator(FromRank0(None, 2.5), "main/loss")(trainer)
    assert trainer.observation["main/loss"] == 2.5


def test_npz_none():
    assert loaded(np.asarray(None), 3) is None
    assert loaded(np.asarray(None), np.zeros(2)) is None
    assert loaded(np.arange(3), None).tolist() == [0, 1, 2]
    file = io.BytesIO()
    lazy = L.Linear(None, 2)
    chainer.serializers.save_npz(file, lazy)
    file.seek(0)
    full = L.Linear(3, 2)
    before = full.W.array.copy()
    chainer.serializers.load_npz(file, full)
    np.testing.assert_array_equal(full.W.array, before)


# CuPy.

LOUD = r'''
import warnings
for library in ("cudnn", "nccl"):
    warnings.warn(f"""
{library} library could not be loaded.

Reason: ImportError (lib{library}.so: cannot open shared object file)
""")
'''
NO_LIBRARIES = LOUD + 'raise ImportError("libcublas.so.12: cannot open shared object file")\n'
NO_DRIVER = (
    LOUD
    + r"""
import sys, types
__version__ = "VERSION"
class ndarray: pass
def get_array_module(*arrays):
    import numpy
    return numpy
class Kernel:
    def __init__(self, *args, **kwargs): pass
ElementwiseKernel = ReductionKernel = RawKernel = Kernel
def memoize(*args, **kwargs): return lambda function: function
fuse = get_default_memory_pool = get_default_pinned_memory_pool = memoize
def module(name, **values):
    found = sys.modules[name] = types.ModuleType(name)
    vars(found).update(values)
    return found
class Device:
    def __init__(self, number): raise RuntimeError("cudaErrorInsufficientDriver")
hooks = module("cupy.cuda.memory_hook", MemoryHook=object)
cublas = module("cupy.cuda.cublas")
cuda = module("cupy.cuda", __path__=[], Device=Device, Event=Kernel, Stream=Kernel,
              cublas=cublas, memory_hook=hooks)
module("cupy._util", PerformanceWarning=Warning)
for name in ["cupyx", "cupyx.scipy", "cupyx.scipy.linalg", "cupyx.scipy.special"]:
    module(name, __path__=[])
def count(): raise RuntimeError("cudaErrorInsufficientDriver")
cuda.runtime = module("cupy.cuda.runtime", getDeviceCount=count)
"""
)
A_DEVICE = "cuda.runtime.getDeviceCount = lambda: 1\n"


@pytest.mark.process
@pytest.mark.parametrize(
    ("cupy", "available", "lines"),
    [
        (NO_LIBRARIES, False, 0),
        (NO_DRIVER.replace("VERSION", "14.2.0"), True, 0),
        (NO_DRIVER.replace("VERSION", "13.6.0"), True, 0),
        (NO_DRIVER.replace("VERSION", "14.2.0") + A_DEVICE, True, 0),
        # CuPy 13 may have cuDNN, so here Chainer says, as ever, that it has not.
        (NO_DRIVER.replace("VERSION", "13.6.0") + A_DEVICE, True, 1),
    ],
    ids=[
        "no libraries",
        "CuPy 14 without a driver",
        "CuPy 13 without a driver",
        "CuPy 14 with a device",
        "CuPy 13 with a device but no cuDNN",
    ],
)
def test_cpu_run_with_a_cupy_that_cannot_work(cupy, available, lines, tmp_path):
    package = tmp_path / "cupy"
    package.mkdir()
    (package / "__init__.py").write_text(cupy, encoding="utf-8")
    out, err = run(
        """
        import chainer_profile
        import chainer, numpy as np
        y = chainer.functions.sum(chainer.links.Convolution2D(3, 2, 3)(np.ones((1, 3, 5, 5), "f")))
        y.backward()
        print(y.dtype, chainer.backends.cuda.available)
        """,
        path=[tmp_path],
    )
    assert out == f"float32 {available}\n"
    assert err.count("Warning") == lines
    assert "library could not be loaded" not in err


# The ONNX exporter.


@pytest.mark.process
def test_types_of_the_onnx_exporter():
    needs.module("onnx")
    out, err = run(
        """
        import chainer_profile
        import chainer, onnx, onnx_chainer
        import chainer.functions as F, numpy as np

        class Net(chainer.Link):
            def forward(self, x):
                return F.argmax(F.cast(x * 2 + 0.5, "float64"), axis=1), F.clip(x, 0.0, 1.0)

        model = onnx_chainer.export(Net(), np.ones((2, 3), "f"), opset_version=11)
        onnx.checker.check_model(model, full_check=True)
        print([node.op_type for node in model.graph.node])
        kinds = [value.type.tensor_type.elem_type for value in model.graph.output]
        print([onnx.TensorProto.DataType.Name(kind) for kind in kinds])
        """
    )
    assert err == ""
    kinds, types = out.splitlines()
    assert {"Mul", "Add", "Cast", "ArgMax", "Clip", "Constant"} <= set(ast.literal_eval(kinds))
    assert sorted(ast.literal_eval(types)) == ["FLOAT", "INT32"]
