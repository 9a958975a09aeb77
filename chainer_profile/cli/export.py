"""``export``: a network and its weights as a file for a runtime."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.parsing import Parser, input_shape
from chainer_profile.basics.units import format_nbytes
from chainer_profile.basics.words import PROG
from chainer_profile.cli.options import MESSAGES, NETWORK, ONE_SHAPE, take
from chainer_profile.cli.running import Context, printing

if TYPE_CHECKING:
    from chainer_profile.engines.catalogue import EngineEntry
    from chainer_profile.engines.protocol import Engine, Network
    from chainer_profile.engines.results import OutputDifference

#: Engines by what their files end with.
_ENGINES = {".onnx": "onnxruntime", ".xml": "openvino"}
#: Exit code where the outputs are not Chainer's.
_WRONG = 4


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    parser = Parser(
        prog=f"{PROG} export",
        description="Writes a network for ONNX Runtime or OpenVINO; "
        "then reads it again, and compares the outputs with Chainer's.",
    )
    take(parser.add_argument_group("network"), *NETWORK, "--seed")
    group = parser.add_argument_group("input; the file takes no other shape but for its batch")
    take(group, "--input-shape", **ONE_SHAPE)
    take(group, "--input-size")
    take(group, "--batchsize", help="inputs in the batch (default: 1)", default=1)
    group = parser.add_argument_group("output")
    take(group, "--to", "--dynamic-batch", "--opset", "--precision")
    take(group, "--force", help="replace a file that is there")
    take(group, *MESSAGES)
    return parser


def run(args: argparse.Namespace, context: Context) -> int:
    """Write the file; the exit code is 4 where the outputs are not Chainer's."""
    path: Path = args.to
    if path.suffix not in _ENGINES:
        raise UsageError(f"--to {path}: name a file that ends with {' or '.join(_ENGINES)}")
    if args.dynamic_batch and path.suffix != ".onnx":
        raise UsageError(f"--dynamic-batch: {path} is for one batch size; only .onnx is for any")
    if args.opset is not None and path.suffix != ".onnx":
        raise UsageError(f"--opset {args.opset}: only .onnx files have one, and not {path}")
    files = [path, path.with_suffix(".bin")] if path.suffix == ".xml" else [path]
    for file in files:
        if file.is_dir():
            raise UsageError(f"--to {file}: is a folder; name a file")
        if file.exists() and not args.force:
            raise UsageError(f"--to {file}: is there already; replace it with --force")

    from chainer_profile.engines.catalogue import ENGINES

    entry = ENGINES[_ENGINES[path.suffix]]
    if lacks := entry.lacks():
        raise ProfileError(f"{entry.name} is {lacks}: {entry.install}")
    network = _network(args, context)
    with tempfile.TemporaryDirectory(prefix="chainer-profile-") as folder:
        part = Path(folder, path.name)
        try:
            found, batch = _write(network, entry, part, args.dynamic_batch, args.opset)
        except ProfileError as error:
            raise ProfileError(f"{path}: {str(error).replace(str(part), path.name)}") from error
        words = f"{_check(found, path, args.precision)}; {batch}"
        _keep(part, files)
    if not args.quiet:
        size = format_nbytes(sum(file.stat().st_size for file in files))
        with printing():
            print(f"wrote {' and '.join(map(str, files))} ({size}); {words}", flush=True)
    return 0


def _network(args: argparse.Namespace, context: Context) -> Network:
    """The network that was asked for, on its input."""
    from chainer_profile.engines.protocol import Network
    from chainer_profile.measure.learner import StructureError, learn_structure
    from chainer_profile.measure.steps import ForwardStep
    from chainer_profile.networks import inputs, loading, weights

    source = loading.find_model(args.model, context.registry, args.classes)
    shape = input_shape(args, source.input_shape)
    batch = inputs.make_input(
        "random", shape, args.batchsize, seed=args.seed, mean=source.mean, std=source.std
    )
    model = loading.build_model(source, args.seed)
    if args.weights:
        weights.load_weights(model, args.weights, context.formats)
    step = ForwardStep(model, (batch.array,))
    with step.configured():
        try:
            layers = learn_structure(step).layers
        except StructureError as error:
            raise error.with_input(batch.array.shape) from error
    return Network(source.name, model, (batch.array,), layers, precision=args.precision)


def _write(
    network: Network,
    entry: EngineEntry,
    path: Path,
    any_batch: bool | None,
    opset: int | None,
) -> tuple[OutputDifference, str]:
    """Write a network into a file and read it again; gives how far it is off, and the batch."""
    from chainer_profile.engines.equality import difference, host_copies, other_inputs
    from chainer_profile.engines.runtimes.chainer_engine import ChainerEngine

    writer, reader, chainer = entry.make(), entry.make(), ChainerEngine()
    writer.prepare(network)
    if opset is not None:
        _take_opset(writer, opset)
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


def _take_opset(writer: Engine, opset: int) -> None:
    from chainer_profile.engines.protocol import EngineError
    from chainer_profile.engines.runtimes.batch import take_opset
    from chainer_profile.engines.runtimes.onnxruntime_engine import OnnxRuntimeEngine

    assert isinstance(writer, OnnxRuntimeEngine)
    try:
        take_opset(writer, opset)
    except EngineError as error:
        raise ProfileError(f"--opset {opset}: {error}") from error


def _batch(network: Network, writer: Engine, any_batch: bool | None) -> str:
    """Let a model take any batch, if it can and is to; gives for which batch it is, in words."""
    from chainer_profile.engines.protocol import EngineError
    from chainer_profile.engines.runtimes.batch import take_any_batch
    from chainer_profile.engines.runtimes.onnxruntime_engine import OnnxRuntimeEngine

    size = f"for a batch of {network.inputs[0].shape[0]}"
    if any_batch is False or not isinstance(writer, OnnxRuntimeEngine):
        return size
    try:
        take_any_batch(writer)
    except EngineError as error:
        if any_batch:
            raise ProfileError(f"--dynamic-batch: {error}") from error
        return f"{size} ({error})"
    return "for any batch"


def _check(found: OutputDifference, path: Path, precision: str) -> str:
    """Says how far the outputs are from Chainer's; refuses a file where that is too far."""
    from chainer_profile.basics.units import format_scientific
    from chainer_profile.engines.equality import TOLERANCES

    tolerance = TOLERANCES[precision]
    words = f"outputs differ by at most {format_scientific(found.relative)} of the largest"
    if found.relative <= tolerance:
        return words
    error = ProfileError(
        f"{path}: {words}, where {precision} may by {format_scientific(tolerance)}; nothing is "
        "written"
    )
    error.exit_code = _WRONG
    raise error


def _keep(part: Path, files: list[Path]) -> None:
    """Put the files where they are wanted: the one that the user names comes last."""
    from chainer_profile.basics.files import remove_file, write_file

    new = [file for file in files if not file.exists()]
    try:
        for file in files[::-1]:
            write_file(file, part.with_suffix(file.suffix).read_bytes())
    except BaseException:
        for file in new:
            remove_file(file)
        raise
