"""What else differs between runs, and how the machine changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chainer_profile.comparison.run_differences import (
    Difference,
    Movement,
    allowance,
    differences,
    movements,
    other_machine,
    same_place,
)
from chainer_profile.record.recording import BlasLibrary, Calibration, Conditions, Gpu
from tests.comparing import run

TWO = (BlasLibrary("openblas", "0.3", 2),)


def changed(part, **values):
    recording = run(1, 3, 8)
    return replace(recording, **{part: replace(getattr(recording, part), **values)})


def test_what_differs():
    for part, values, expected in (
        ("settings", {"model": "other"}, Difference("network", "chain", "other")),
        ("settings", {"batchsize": 8}, Difference("batch", "1", "8")),
        ("settings", {"input_shape": (1, 3)}, Difference("input", "1x16x32x32", "1x3")),
        ("settings", {"train_mode": True}, Difference("train mode", "off", "on")),
        ("settings", {"dtype": "float16"}, Difference("data type", "float32", "float16")),
        ("settings", {"device": "gpu:0"}, Difference("device", "cpu", "gpu:0")),
        ("environment", {"numpy": "2.5"}, Difference("NumPy", "2.4.6", "2.5")),
        ("environment", {"usable_cores": 4}, Difference("cores", "2", "4")),
        ("environment", {"cupy": "13"}, Difference("CuPy", "", "13")),
        ("environment", {"blas": TWO}, Difference("BLAS", "", "openblas 0.3 x2")),
        ("environment", {"variables": ("A=1", "B=2")}, Difference("variables", "", "A=1, B=2")),
        ("environment", {"memory_nbytes": 1 << 30}, Difference("memory", "8.0 GiB", "1.0 GiB")),
    ):
        found = list(differences(run(1, 3, 8), changed(part, **values)))
        assert found == [expected], expected
        assert other_machine(found) == (expected.name == "cores"), expected
        assert same_place(found) == (expected.name not in ("cores", "device", "BLAS")), expected


def test_gpus_differ_where_both_have_one():
    one, other = (changed("environment", gpu=Gpu(name=name)) for name in ("A", "B"))
    assert [d.name for d in differences(one, other)] == ["GPU"]
    assert other_machine(list(differences(one, other)))
    assert list(differences(run(1, 3, 8), one)) == []


def test_kernels_differ_where_both_runs_tell_them():
    old, slow, fast = (
        changed("environment", blas=(BlasLibrary("openblas", "0.3", 1, kernels),))
        for kernels in ("", "Nehalem", "Haswell")
    )
    assert list(differences(slow, fast)) == [Difference("BLAS kernels", "Nehalem", "Haswell")]
    assert not same_place(list(differences(slow, fast)))
    assert list(differences(old, fast)) == list(differences(fast, old)) == []


def conditioned(*times, other_cpu=None, **environment):
    recording = changed("environment", **environment)
    calibrations = tuple(Calibration(product, copy) for product, copy in times)
    return replace(recording, conditions=Conditions(calibrations=calibrations, other_cpu=other_cpu))


def test_movements_of_single_runs_have_their_moments():
    before, after = conditioned((1.0, 2.0), (1.1, 2.0)), conditioned((1.2, 2.0), (1.3, 2.0))
    product, copy = movements([before], [after])
    assert (product.name, product.moved) == ("matrix product", True)
    ends = (product.ratio, product.low, product.high)
    assert ends == pytest.approx((2.5 / 2.1, 1.2 / 1.1, 1.3))
    assert copy == Movement("copy", 1.0, 1.0, 1.0)
    assert not copy.moved


def test_other_programs_stretch_a_run_where_the_cores_do_not_suffice():
    calm, busy = conditioned(other_cpu=0.9), conditioned(other_cpu=1.5)
    for before, after, ends in (
        (calm, busy, (2.0, 1.0, 2.0)),
        (busy, calm, (0.5, 0.5, 1.0)),
        (conditioned(other_cpu=2.0), calm, (0.25, 0.25, 1.0)),
        (conditioned(other_cpu=0.0), conditioned(other_cpu=0.4, blas=TWO), (1.25, 1.0, 1.25)),
    ):
        assert list(movements([before], [after])) == [Movement("other programs", *ends)]


def test_what_is_not_known_is_not_there():
    assert list(movements([conditioned()], [conditioned((1, 1), other_cpu=0.0)])) == []
    assert list(movements([conditioned((1, 1))], [conditioned((0.0, 1))])) == [
        Movement("copy", 1.0, 1.0, 1.0)
    ]


def test_the_allowance_holds_one():
    found = [Movement("copy", 1.2, 1.1, 1.3), Movement("matrix product", 0.9, 0.8, 1.0)]
    assert allowance(found) == (0.8, 1.3)
    shared = [*found, Movement("other programs", 1.0, 0.5, 2.0)]
    assert allowance(shared) == (0.4, 2.6)
    assert allowance([]) == (1.0, 1.0)
