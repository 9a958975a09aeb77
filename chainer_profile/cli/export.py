"""``export``: a network and its weights as an ONNX file."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.files import write_file
from chainer_profile.basics.parsing import input_shape
from chainer_profile.basics.units import format_nbytes, format_scientific
from chainer_profile.cli import WRONG, asked
from chainer_profile.cli.main import Context, printing
from chainer_profile.engines.catalogue import ENGINES
from chainer_profile.engines.equality import TOLERANCE, difference, host_copies, other_inputs
from chainer_profile.engines.protocol import EngineError, Network
from chainer_profile.engines.results import OutputDifference
from chainer_profile.engines.runtimes.batch import take_any_batch
from chainer_profile.engines.runtimes.chainer_engine import ChainerEngine
from chainer_profile.engines.runtimes.onnxruntime_engine import OnnxRuntimeEngine
from chainer_profile.measure.steps import ForwardStep
from chainer_profile.measure.taped_step import StepError, learned
from chainer_profile.networks.inputs import make_input


def run(args: argparse.Namespace, context: Context) -> int:
    """Write the file; the exit code is 4 where the outputs are not Chainer's."""
    path: Path = args.to
    entry = ENGINES["onnxruntime"]
    if lacks := entry.lacks():
        raise ProfileError(f"{entry.name} is {lacks}: {entry.install}")
    network = _network(args, context)
    with tempfile.TemporaryDirectory(prefix="chainer-profile-") as folder:
        part = Path(folder, path.name)
        try:
            found, batch = _write(network, part, args.dynamic_batch)
        except ProfileError as error:
            raise ProfileError(f"{path}: {str(error).replace(str(part), path.name)}") from error
        words = f"outputs differ by at most {format_scientific(found.relative)} of the largest"
        if found.relative > TOLERANCE:
            most = f"more than the tolerance of {format_scientific(TOLERANCE)}"
            wrong = ProfileError(f"{path}: {words}, {most}; nothing is written")
            wrong.exit_code = WRONG
            raise wrong
        write_file(path, part.read_bytes())
    if not args.quiet:
        size = format_nbytes(path.stat().st_size)
        with printing():
            print(f"wrote {path} ({size}); {words}; {batch}", flush=True)
    return 0


def _network(args: argparse.Namespace, context: Context) -> Network:
    """The network that was asked for, on its input."""
    source = asked.find_source(args, context)
    shape = input_shape(args, source.input_shape)
    batch = make_input(
        "random", shape, args.batchsize, seed=args.seed, mean=source.mean, std=source.std
    )
    model = asked.build(source, args, context)
    step = ForwardStep(model, (batch.array,))
    with step.configured():
        try:
            layers = learned(step).layers
        except StepError as error:
            raise error.with_input(batch.array.shape) from error
    return Network(source.name, model, (batch.array,), layers)


def _write(network: Network, path: Path, any_batch: bool | None) -> tuple[OutputDifference, str]:
    """Write a network into a file and read it again; gives how far it is off, and the batch."""
    writer, reader, chainer = OnnxRuntimeEngine(), OnnxRuntimeEngine(), ChainerEngine()
    writer.prepare(network)
    batch = _batch(network, writer, any_batch)
    try:
        writer.save(path)
    except OSError as error:
        raise ProfileError(f"cannot be written ({error.strerror})") from error
    reader.load(network, path)
    chainer.prepare(network)
    found = []
    # On other values too: what was kept of the first ones would be seen.
    for given in (network.inputs, other_inputs(network.inputs)):
        expected = host_copies(chainer.run(given))
        found.append(difference(expected, host_copies(reader.run(given))))
    return max(found, key=lambda one: one.relative), batch


def _batch(network: Network, writer: OnnxRuntimeEngine, any_batch: bool | None) -> str:
    """Let a model take any batch, if it can and is to; gives for which batch it is, in words."""
    size = f"for a batch of {network.inputs[0].shape[0]}"
    if any_batch is False:
        return size
    try:
        take_any_batch(writer)
    except EngineError as error:
        if any_batch:
            raise ProfileError(f"--dynamic-batch: {error}") from error
        return f"{size} ({error})"
    return "for any batch"
