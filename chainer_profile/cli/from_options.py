"""The network, the input and the settings that a command's options describe."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import (
    asks_for_more,
    cifar10_index,
    input_shape,
    is_file_of_arrays,
)
from chainer_profile.cli.main import Context
from chainer_profile.cli.options import settings_of
from chainer_profile.measure.arguments import Arguments
from chainer_profile.networks import loading, weights
from chainer_profile.networks.inputs import InputBatch, load_arguments, make_arguments, make_input
from chainer_profile.networks.loading import ModelSource
from chainer_profile.record.parts import Settings


def find_source(args: argparse.Namespace, context: Context) -> ModelSource:
    """Find the network that ``--model`` names, without building it."""
    return loading.find_model(args.model, context.registry, args.classes, args.model_args)


def build(source: ModelSource, args: argparse.Namespace) -> Any:
    """Build the network, and load the weights of ``--weights``."""
    model = loading.build_model(source, args.seed)
    if args.weights:
        weights.load_weights(model, args.weights)
    return model


def read_input(args: argparse.Namespace, source: ModelSource) -> InputBatch:
    """Make the batch that ``--input`` and ``--input-shape`` describe, or read it from a file."""
    if is_file_of_arrays(args.input):
        return load_arguments(Path(args.input))
    batchsize = args.batchsize or 1
    if asks_for_more(args):
        return make_arguments(args.input_shape, batchsize, args.seed)
    index = cifar10_index(args.input)
    return make_input(
        args.input if index is None else "cifar10",
        input_shape(args, source.input_shape),
        batchsize,
        seed=args.seed,
        index=index or 0,
        data_dir=args.data_dir,
        mean=source.mean,
        std=source.std,
    )


def arrays_by_position(batch: InputBatch) -> tuple[Any, ...]:
    """Return the arrays of a batch for an engine; refuse named arguments and lists of sequences."""
    if batch.kwargs or any(isinstance(value, list) for value in batch.args):
        raise UsageError(
            "engines take arrays by position: give --input-shape without a name, and no sequences"
        )
    return batch.args


def arguments_of(batch: InputBatch) -> Arguments:
    """Convert a batch to the arguments of the network."""
    return Arguments(batch.args, dict(batch.kwargs), batch.typed)


def settings_for(
    source: ModelSource,
    batch: InputBatch,
    args: argparse.Namespace,
    context: Context,
    **others: Any,
) -> Settings:
    """Make the settings of a run of this network on this batch; ``others`` override options."""
    return settings_of(
        args,
        model=source.name,
        input=batch.description,
        input_shape=batch.array.shape,
        batchsize=arguments_of(batch).batchsize,
        command=context.command,
        **others,
    )


def default_folder(settings: Settings, prefix: str = "") -> Path:
    """The folder of a run with these settings if the user names none; it may exist."""
    phase = "" if settings.phase == "forward" else f"-{settings.phase}"
    if settings.fast:
        phase += "-fast" if settings.fast == "numpy" else f"-{settings.fast}"
    device = settings.device.replace(":", "")
    return Path("reports") / f"{prefix}{settings.model}-{device}-b{settings.batchsize}{phase}"
