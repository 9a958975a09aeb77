"""Which changes a profile proposes, and which it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from chainer_profile.advice.changes import AS_IT_IS, CPU, WALL, Candidate, Possible, propose, summed
from chainer_profile.analyse.findings import Change
from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.recording import MemoryUse
from tests.conftest import make_recording

ONE = Possible({}, threads=1, cores=2)


def of(
    possible: Possible = ONE, function: str = "Convolution2DFunction", **settings: Any
) -> tuple[dict[str, Candidate], dict[str, str]]:
    """The proposals for two layers of 40 us each in trials of 100 us, by their names."""
    recording = make_recording(n_trials=10, n_layers=2)
    layers = tuple(replace(layer, function=function) for layer in recording.layers)
    recording = replace(
        recording,
        layers=layers,
        self_ns=np.full((10, 2), 40_000),
        trial_ns=np.full(10, 100_000),
        settings=replace(recording.settings, batchsize=1, **settings),
    )
    found, untried = propose(summarise(recording), possible)
    return {one.name: one for one in found}, {one.name: one.why for one in untried}


def test_a_forward_pass_of_convolutions() -> None:
    found, untried = of()
    assert list(found) == [
        *('accelerate(kernels="torch")', "accelerate()", "onnxruntime", "openvino"),
        *("memory kept", "batch size 4", "one BLAS thread"),
    ]
    assert found["accelerate()"].reason.endswith("80.0 % of the trial")
    assert found["one BLAS thread"].change == AS_IT_IS
    assert found["one BLAS thread"].against == Change(threads=2)
    assert {one.decides for name, one in found.items() if "thread" not in name} == {CPU}
    assert list(untried) == ["float16"]


def test_what_is_not_there_is_not_tried() -> None:
    lacks = {"torch": "not installed: pip", "glibc": "for glibc alone", "openvino": "not installed"}
    found, untried = of(Possible(lacks, threads=1, cores=1))
    assert not {'accelerate(kernels="torch")', "memory kept", "openvino"} & found.keys()
    assert untried['accelerate(kernels="torch")'] == "not installed: pip"
    assert untried["more BLAS threads"] == "BLAS takes one by itself"


def test_what_gains_nothing() -> None:
    settings: dict[str, Any]
    for settings, name, why in (
        ({"function": "LinearFunction"}, "accelerate()", "replaces take 0.0 % of a trial"),
        ({"phase": "train"}, "engines", "they only infer"),
        ({"train_mode": True}, "engines", "they only infer"),
        ({"dtype": "float16"}, "accelerate()", "has no kernels for float16"),
    ):
        found, untried = of(**settings)
        assert not {"onnxruntime" if name == "engines" else name} & found.keys()
        assert untried[name].endswith(why)
    assert found["float32"].change == Change(dtype="float32")


def test_another_number_of_threads() -> None:
    for possible, name, change in (
        (Possible({}, threads=1, cores=2, asked=True), "2 BLAS threads", Change(threads=2)),
        (Possible({}, threads=2, cores=2), "one BLAS thread", Change(threads=1)),
    ):
        found, _ = of(possible)
        assert (found[name].change, found[name].against) == (change, AS_IT_IS)
        assert found[name].decides == WALL
        assert found["accelerate()"].decides == (CPU if possible.threads == 1 else WALL)


def test_small_arrays_are_never_given_back() -> None:
    recording = replace(
        make_recording(n_layers=2), memory=MemoryUse((1000, 131071), (0, 0), 0, 0, 0, None)
    )
    _, untried = propose(summarise(recording), ONE)
    assert "memory kept" in {one.name for one in untried}


def test_sums_are_of_one_that_takes_others_place_and_the_rest() -> None:
    found, _ = of()
    torch, batch = found['accelerate(kernels="torch")'], found["batch size 4"]
    chosen = [found["one BLAS thread"], torch, found["accelerate()"], batch]
    (both,) = summed(chosen)
    assert both.name == 'accelerate(kernels="torch") + batch size 4'
    assert both.change == Change(kernels="torch", batchsize=4)
    assert both.keep == f"{torch.keep}; {batch.keep}"
    assert summed([torch, found["accelerate()"]]) == []
    assert summed([batch]) == []
