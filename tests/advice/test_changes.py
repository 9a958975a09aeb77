"""Sums of changes; what a profile proposes is kept in tests/goldens."""

from __future__ import annotations

from chainer_profile.advice.changes import CPU, Possible, propose, summed
from chainer_profile.analyse.findings import Change
from chainer_profile.analyse.summaries import summarise
from tests.conftest import make_recording


def test_sums_are_of_one_that_takes_others_place_and_the_rest() -> None:
    proposed, _ = propose(summarise(make_recording()), Possible({}, threads=1, cores=2))
    found = {one.name: one for one in proposed}
    torch, batch = found['accelerate(kernels="torch")'], found["batch size 4"]
    chosen = [found["one BLAS thread"], torch, found["accelerate()"], batch]
    (both,) = summed(chosen)
    assert both.name == 'accelerate(kernels="torch") + batch size 4'
    assert both.change == Change(kernels="torch", batchsize=4)
    assert (both.keep, both.decides) == (f"{torch.keep}; {batch.keep}", CPU)
    assert summed([torch, found["accelerate()"]]) == []
    assert summed([batch]) == []
