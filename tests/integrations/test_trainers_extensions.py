"""Descriptions of the extensions of a Trainer."""

import functools

import pytest
from chainer import links as L
from chainer import serializers
from chainer.iterators import SerialIterator
from chainer.optimizers import SGD
from chainer.training import Trainer, extensions, updaters
from chainer.training.extensions import snapshot_writers as writers

from chainer_profile.integrations.extensions import describe_extensions

PLAIN = functools.partial(serializers.save_npz, compression=False)


def described(extension, **more):
    """The description of an extension of a Trainer that has not run."""
    updater = updaters.StandardUpdater(SerialIterator([1.0], 1), SGD().setup(L.Linear(1)))
    trainer = Trainer(updater, (1, "epoch"))
    trainer.extend(extension, **more)
    (description,) = describe_extensions(trainer, {"epoch": 0, "iteration": 0})
    return description


def with_attributes(partial):
    """Give a partial an attribute: a partial of it keeps it instead of its function."""
    partial.owner = "a test"
    return partial


@pytest.mark.parametrize(
    ("arguments", "compresses"),
    [
        ({}, True),
        ({"savefun": functools.partial(serializers.save_npz)}, True),
        ({"savefun": with_attributes(functools.partial(serializers.save_npz))}, True),
        ({"savefun": PLAIN}, False),
        ({"savefun": serializers.save_hdf5}, False),
        ({"writer": writers.ThreadWriter()}, False),  # takes no savefun
    ],
)
def test_snapshot_that_compresses_by_itself(arguments, compresses):
    for name, make in (
        ("snapshot", extensions.snapshot),
        ("snapshot_object", functools.partial(extensions.snapshot_object, L.Linear(1), "model")),
    ):
        description = described(make(**arguments))
        assert (description.kind, description.compresses) == (f"extensions.{name}", compresses)


class WithoutLength:
    """A dataset of unknown length, such as a stream."""

    def __len__(self):
        raise NotImplementedError


@pytest.mark.parametrize(("dataset", "examples"), [([1.0] * 3, 3), (WithoutLength(), 0)])
def test_examples_of_an_evaluation(dataset, examples):
    iterator = SerialIterator([1.0], 1, repeat=False)
    iterator.dataset = dataset
    assert described(extensions.Evaluator(iterator, L.Linear(1))).examples == examples


@pytest.mark.parametrize("times", [0, 1])
def test_extension_that_works_before_the_training(times):
    """It used not to count."""
    extension = extensions.PlotReport(["main/loss"])
    description = described(extension, call_before_training=bool(times))
    assert (description.times, description.before) == (times, times)
