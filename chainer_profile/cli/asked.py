"""The network, the input and the settings that a command's options ask for."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import input_shape
from chainer_profile.cli.main import Context
from chainer_profile.cli.options import settings_of
from chainer_profile.cli.parsers import asks_for_more, is_file_of_arrays
from chainer_profile.measure.arguments import Arguments
from chainer_profile.networks import loading, weights
from chainer_profile.networks.inputs import InputBatch, load_arguments, make_arguments, make_input
from chainer_profile.networks.loading import ModelSource
from chainer_profile.record.parts import Settings


def find_source(args: argparse.Namespace, context: Context) -> ModelSource:
    """The network that ``--model`` names."""
    literals = getattr(args, "model_args", "")
    return loading.find_model(args.model, context.registry, args.classes, literals)


def build(source: ModelSource, args: argparse.Namespace, context: Context) -> Any:
    """The network, with the weights that are asked for."""
    model = loading.build_model(source, args.seed)
    if args.weights:
        weights.load_weights(model, args.weights)
    return model


def read_input(args: argparse.Namespace, source: ModelSource) -> InputBatch:
    """The batch that the options of an input ask for."""
    if is_file_of_arrays(args.input):
        return load_arguments(Path(args.input))
    batchsize = args.batchsize or 1
    if asks_for_more(args):
        if args.input_size is not None:
            raise UsageError("--input-size is for one image: write it into --input-shape")
        return make_arguments(args.input_shape, batchsize, args.seed)
    return make_input(
        args.input,
        input_shape(args, source.input_shape),
        batchsize,
        seed=args.seed,
        index=args.index,
        data_dir=args.data_dir,
        mean=source.mean,
        std=source.std,
    )


def arguments_of(batch: InputBatch) -> Arguments:
    """What the network is called with."""
    return Arguments(batch.args, dict(batch.kwargs))


def settings_for(
    source: ModelSource, batch: InputBatch, args: argparse.Namespace, context: Context, **more: Any
) -> Settings:
    """The settings of a run of this network on this batch."""
    return settings_of(
        args,
        model=source.name,
        input=batch.description,
        input_shape=batch.array.shape,
        batchsize=arguments_of(batch).batchsize,
        command=context.command,
        **more,
    )


def place_of(settings: Settings, kind: str = "") -> Path:
    """The folder of a run of these settings, where none is named."""
    phase = "" if settings.phase == "forward" else f"-{settings.phase}"
    if settings.fast:
        phase += "-fast" if settings.fast == "numpy" else f"-{settings.fast}"
    device = settings.device.replace(":", "")
    return Path("reports") / f"{kind}{settings.model}-{device}-b{settings.batchsize}{phase}"
