"""``export``: a network and its weights as an ONNX file."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.files import write_file
from chainer_profile.basics.units import format_nbytes, format_scientific
from chainer_profile.cli import WRONG, from_options
from chainer_profile.cli.main import Context, printing
from chainer_profile.engines.catalogue import ENGINES
from chainer_profile.engines.equality import TOLERANCE, difference, host_copies, other_inputs
from chainer_profile.engines.protocol import EngineError, Network
from chainer_profile.engines.results import OutputDifference
from chainer_profile.engines.runtimes.batch import take_any_batch
from chainer_profile.engines.runtimes.chainer_engine import ChainerEngine
from chainer_profile.engines.runtimes.onnxruntime_engine import OnnxRuntimeEngine
from chainer_profile.measure.step_session import StepError, learned
from chainer_profile.measure.steps import ForwardStep
from chainer_profile.networks import loading


def run(args: argparse.Namespace, context: Context) -> int:
    """Write the file, unless its outputs differ from Chainer's: then the exit code is 4."""
    path: Path = args.file
    entry = ENGINES["onnxruntime"]
    if lacks := entry.why_unavailable():
        raise ProfileError(f"{entry.name} is {lacks}: {entry.install}")
    network = _network(args, context)
    with tempfile.TemporaryDirectory(prefix="chainer-profile-") as folder:
        part = Path(folder, path.name)
        try:
            largest, batch = _write_and_compare(network, part, any_batch=args.batchsize is None)
        except ProfileError as error:
            raise ProfileError(f"{path}: {str(error).replace(str(part), path.name)}") from error
        outputs = f"outputs differ by at most {format_scientific(largest.relative)} of the largest"
        if largest.relative > TOLERANCE:
            tolerance = f"more than the tolerance of {format_scientific(TOLERANCE)}"
            wrong = ProfileError(f"{path}: {outputs}, {tolerance}; nothing is written")
            wrong.exit_code = WRONG
            raise wrong
        write_file(path, part.read_bytes())
    if not args.quiet:
        size = format_nbytes(path.stat().st_size)
        with printing():
            print(f"wrote {path} ({size}); {outputs}; {batch}", flush=True)
    return 0


def _network(args: argparse.Namespace, context: Context) -> Network:
    """Build the network of ``--model`` with its input, and find its layers."""
    source = from_options.find_source(args, context)
    inputs = from_options.arrays_by_position(from_options.read_input(args, source))
    model = from_options.build(source, args)
    loading.check_arguments(model, inputs, {})
    step = ForwardStep(model, inputs)
    with step.configured():
        try:
            layers = learned(step).layers
        except StepError as error:
            raise error.with_input(inputs[0].shape) from error
    return Network(source.name, model, inputs, layers)


def _write_and_compare(
    network: Network, path: Path, any_batch: bool
) -> tuple[OutputDifference, str]:
    """Export a network, load the file again, and compare its outputs with Chainer's.

    Returns the largest difference, and a text about the batch sizes that the file accepts.
    """
    writer, reader, chainer = OnnxRuntimeEngine(), OnnxRuntimeEngine(), ChainerEngine()
    writer.prepare(network)
    batch = f"for a batch of {network.inputs[0].shape[0]}"
    if any_batch:
        try:
            take_any_batch(writer)
            batch = "for any batch"
        except EngineError as error:
            batch = f"{batch} ({error})"
    try:
        writer.save(path)
    except OSError as error:
        raise ProfileError(f"cannot be written ({error.strerror})") from error
    reader.load(network, path)
    chainer.prepare(network)
    # Other inputs show whether the file contains constants that depend on the first ones.
    differences = [
        difference(host_copies(chainer.run(inputs)), reader.run(inputs))
        for inputs in (network.inputs, other_inputs(network.inputs))
    ]
    return max(differences, key=lambda each: each.relative), batch
