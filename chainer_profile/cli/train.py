"""``train``, which ``train.py`` begins: trains a network with Chainer's Trainer."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.files import PART, is_empty, lock, made, open_unfollowed, remove_file
from chainer_profile.basics.parsing import Parser, checked, folder, whole
from chainer_profile.basics.units import format_count, plural
from chainer_profile.basics.words import DEFAULT_MODEL, PROG, TRAIN_COMMAND, TRAIN_PROG, VERSION
from chainer_profile.cli.interrupts import Interrupted
from chainer_profile.cli.options import add_fast, add_machine, add_messages, check_fast
from chainer_profile.cli.running import Context
from chainer_profile.networks.cifar import CIFAR10, CIFAR100

if TYPE_CHECKING:
    from chainer_profile.networks.cifar import Images
    from chainer_profile.networks.loading import ModelSource
    from chainer_profile.training.training import Training

_STATE = "training.json"
_PLOTS = ("loss.png", "accuracy.png")


class Defaults(NamedTuple):
    """How a set is trained on unless told otherwise, and its number of classes."""

    classes: int
    epochs: int
    batchsize: int
    learning_rate: float


#: The sets by what ``--dataset`` calls them. For CIFAR 64,000 iterations, as He et al. trained;
#: the synthetic set is too small for large batches and rates.
DATASETS = {
    "cifar10": Defaults(CIFAR10.classes, 164, 128, 0.1),
    "cifar100": Defaults(CIFAR100.classes, 164, 128, 0.1),
    "synthetic": Defaults(10, 6, 32, 0.02),
}
SYNTHETIC_SIZE = 1000
#: ``--resume`` without a file.
NEWEST = True


def _every(text: str) -> int:
    match = re.fullmatch("every=([1-9][0-9]{0,17})", text)
    if match is None:
        raise UsageError(f"must be every=N with N iterations, 1 or more, not {text[:40]!r}")
    return int(match[1])


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise UsageError(f"must be a number above 0, not {text[:40]!r}")
    return rate


def _file(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("must be the name of a file, not ''")
    return Path(text)


def parser() -> argparse.ArgumentParser:
    """Options of a training."""
    usual, small = DATASETS["cifar10"], DATASETS["synthetic"]
    parser = Parser(
        prog=TRAIN_PROG,
        description="Trains a network on CIFAR-10, CIFAR-100 or a small synthetic set with "
        "Chainer's Trainer: momentum SGD, the learning rate falls to a tenth at half and again "
        "at three quarters of the epochs.",
    )
    parser.add_argument("--version", action="version", version=VERSION)

    group = parser.add_argument_group("network and data")
    group.add_argument(
        "-m",
        "--model",
        default=DEFAULT_MODEL,
        help=f"a network of {PROG} --list-models, package.module:Callable or "
        "path/to/file.py:Callable (default: %(default)s)",
    )
    group.add_argument(
        "-d",
        "--dataset",
        choices=tuple(DATASETS),
        default="cifar10",
        help="what to train on (default: %(default)s); synthetic needs no download",
    )
    group.add_argument(
        "--data-dir",
        metavar="DIR",
        type=folder,
        help="folder of the set's files (default: Chainer's own copy, downloaded if need be; for "
        "synthetic the folder it is made in, default OUT/synthetic)",
    )
    group.add_argument(
        "--synthetic-size",
        metavar="N",
        type=whole(1),
        default=None,
        help=f"training images of the synthetic set, a multiple of 10 (default: {SYNTHETIC_SIZE})",
    )
    group.add_argument(
        "--no-augmentation", action="store_true", help="do not crop and flip the training images"
    )

    group = parser.add_argument_group("training")
    group.add_argument(
        "-e",
        "--epoch",
        metavar="N",
        type=whole(1),
        help=f"epochs (default: {usual.epochs}, for synthetic {small.epochs})",
    )
    group.add_argument(
        "-b",
        "--batchsize",
        metavar="N",
        type=whole(1),
        help=f"images per iteration (default: {usual.batchsize}, for synthetic {small.batchsize})",
    )
    group.add_argument(
        "-l",
        "--learning-rate",
        metavar="RATE",
        type=checked(_rate),
        help=f"learning rate at the begin (default: {usual.learning_rate}, for synthetic "
        f"{small.learning_rate})",
    )
    group.add_argument(
        "--seed",
        metavar="N",
        type=whole(0),
        default=0,
        help="seed of the weights, the order, the crops and the synthetic set "
        "(default: %(default)s)",
    )
    add_machine(group)
    add_fast(group)
    group.add_argument(
        "--profile",
        metavar="every=N",
        type=checked(_every),
        help="profile every N-th iteration layer by layer, into OUT/profile",
    )

    group = parser.add_argument_group("output")
    group.add_argument(
        "-o", "--out", metavar="DIR", type=folder, help="folder (default: results/MODEL-DATASET)"
    )
    group.add_argument(
        "-r",
        "--resume",
        metavar="FILE",
        nargs="?",
        const=NEWEST,
        type=_file,
        help="go on from a snapshot, without FILE from the newest in --out; give the other "
        "options as before. More epochs leave the learning rate's falls where they were",
    )
    group.add_argument("--force", action="store_true", help="replace a training in the folder")
    group.add_argument(
        "--snapshot",
        metavar="every=N",
        type=checked(_every),
        help="write a snapshot every N iterations (default: every epoch); the last 3 are kept",
    )
    add_messages(group)
    return parser


def run(args: argparse.Namespace, context: Context) -> int:
    """Make a training, or go on with one."""
    if args.resume is not None and args.force:
        raise UsageError("--resume goes on with a training, --force replaces it: give one of them")
    check_fast(args)
    if args.synthetic_size is not None and args.dataset != "synthetic":
        raise UsageError("--synthetic-size is for --dataset synthetic")

    from chainer_profile.networks import loading

    defaults = DATASETS[args.dataset]
    classes = defaults.classes
    args.epoch = args.epoch or defaults.epochs
    args.batchsize = args.batchsize or defaults.batchsize
    args.learning_rate = args.learning_rate or defaults.learning_rate
    # A user's own network has its number of classes already: a first batch will tell.
    own = args.model not in context.registry
    source = loading.find_model(args.model, context.registry, None if own else classes)
    out = args.out or Path("results") / f"{source.name}-{args.dataset}"
    if isinstance(args.resume, Path) and args.out is None:
        out = args.resume.parent
    with _take_folder(out, args) as state:
        snapshot = None if args.resume is None else _find_snapshot(args, source, out)
        train, test = _load_data(args, out)
        if args.batchsize > len(train.images):
            raise UsageError(
                f"--batchsize {args.batchsize}: the training set has only "
                f"{plural(len(train.images), 'image')}"
            )
        return _train(args, source, classes, train, test, out, snapshot, state, context)


@contextmanager
def _take_folder(out: Path, args: argparse.Namespace) -> Iterator[IO[bytes]]:
    """Takes a folder for this training; gives the file that says which one is in it.

    Raises:
        UsageError: The folder holds a training that is neither resumed nor replaced, or files that
            could be lost.
        ProfileError: The folder cannot be written, or another process trains into it.
    """
    if args.resume is NEWEST and not out.is_dir():
        raise UsageError(f"--resume: there is no folder {out}; name it with --out")
    with ExitStack() as stack:
        stack.enter_context(made(out))
        goes_on = args.resume is NEWEST or (
            args.resume is not None and args.resume.resolve().parent == out.resolve()
        )
        try:
            if not (goes_on or _is_of_training(out)):
                _refuse_foreign(out, args.force)
            state = stack.enter_context(open_unfollowed(out / _STATE, os.O_CREAT))
        except OSError as error:
            raise ProfileError(f"{out}: cannot be written ({error.strerror})") from error
        lock(state, out)
        try:
            if _holds_training(out) and not goes_on and not args.force:
                raise UsageError(
                    f"--out {out}: holds a training already; go on with it with --resume, replace "
                    "it with --force, or name another folder"
                )
            # What a kill in the middle of writing leaves.
            for part in out.iterdir():
                if PART.fullmatch(part.name):
                    remove_file(part)
            yield state
        finally:
            if not _holds_training(out):
                (out / _STATE).unlink(missing_ok=True)


def _is_of_training(out: Path) -> bool:
    """Whether a folder is that of a training, also of one that was killed as it began."""
    try:
        text = (out / _STATE).read_text()
        state = json.loads(text) if text else {"command": ""}
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(state, dict) and "command" in state


def _refuse_foreign(out: Path, force: bool) -> None:
    """Refuse a folder of somebody else's files; with ``force`` where one of them is in the way."""
    names = {path.name for path in out.iterdir() if path.name[0] != "."}
    in_the_way = names & {_STATE, *_PLOTS, *(path.name for path in _training_files(out))}
    if force and in_the_way:
        raise UsageError(
            f"{out / min(in_the_way)}: was not written by a training of {TRAIN_PROG}; move it "
            "away, or name another folder"
        )
    if not (force or is_empty(out)):
        raise UsageError(
            f"--out {out}: holds files and no training, such as {min(names)}; name another folder, "
            "or write beside them with --force"
        )


def _training_files(out: Path) -> list[Path]:
    """What a training leaves in its folder, beside plots."""
    return [
        path
        for path in out.glob("*")
        if path.name in ("log", "model.npz") or re.fullmatch(r"snapshot_iter_\d+", path.name)
    ]


def _holds_training(out: Path) -> bool:
    return bool(_training_files(out))


def _load_data(args: argparse.Namespace, out: Path) -> list[Images]:
    from chainer_profile.networks import cifar
    from chainer_profile.training import synthetic

    if args.dataset == "synthetic":
        place = args.data_dir or out / "synthetic"
        size = args.synthetic_size or SYNTHETIC_SIZE
        made = synthetic.write_synthetic(place, size, args.seed, replace=args.force)
        return cifar.load_cifar(made, place)
    wanted = cifar.CIFAR10 if args.dataset == "cifar10" else cifar.CIFAR100
    if args.data_dir is None:
        return cifar.load_or_download(wanted)
    return cifar.load_cifar(wanted, args.data_dir)


def _train(
    args: argparse.Namespace,
    source: ModelSource,
    classes: int,
    train: Images,
    test: Images,
    out: Path,
    snapshot: Path | None,
    state: IO[bytes],
    context: Context,
) -> int:
    """Builds the training, runs it, and says what came out."""
    import chainer
    import matplotlib
    from threadpoolctl import threadpool_limits

    from chainer_profile.kernels.accelerate import accelerate
    from chainer_profile.measure.devices import move_to_gpu
    from chainer_profile.networks import loading
    from chainer_profile.training.exact_resume import Batches
    from chainer_profile.training.training import (
        TrainingSettings,
        build_training,
        checksum,
        try_network,
    )

    matplotlib.use("Agg")
    interrupts = context.interrupts
    command = shlex.join([*TRAIN_COMMAND, *context.argv])
    settings = TrainingSettings(
        model=source.name,
        dataset=args.dataset,
        images=len(train.images),
        checksum=checksum(train),
        epochs=args.epoch,
        **_same_options(args),
    )
    model = loading.build_model(source, args.seed)
    few = list(zip(train.images[:2], train.labels[:2], strict=True))
    images, _ = Batches(source.mean, source.std)(few, chainer.get_device("@numpy"))
    if args.gpu >= 0:
        images, _ = move_to_gpu(model, images, args.gpu)
    try_network(model, images, classes, train.images.shape[1:], source.name)

    terminal = not args.quiet and sys.stderr.isatty()
    threads = nullcontext() if args.threads is None else threadpool_limits(args.threads, "blas")
    fast = nullcontext() if args.fast is None else accelerate(args.fast, threads=args.threads)
    # Exact resuming needs sums in a fixed order; on the CPU they are.
    with threads, fast, chainer.using_config("cudnn_deterministic", True):
        training = build_training(
            model,
            train,
            test,
            settings,
            out,
            mean=source.mean,
            std=source.std,
            device="@numpy" if args.gpu < 0 else f"@cupy:{args.gpu}",
            stop=interrupts.reason,
            console=None if args.quiet else Console(sys.stdout),
            progress=Console(sys.stderr, terminal=True) if terminal else None,
            snapshot_every=args.snapshot,
            profile_every=args.profile,
            command=command,
        )
        say = _quiet if args.quiet else _say
        say(
            f"{source.name} on {args.dataset}: {format_count(len(train.images))} training and "
            f"{format_count(len(test.images))} test images, {classes} classes; "
            f"{plural(settings.epochs, 'epoch')} of {len(train.images) / args.batchsize:.4g} "
            "iterations"
        )
        if snapshot is not None:
            _resume(training, snapshot, say)
        elif args.force:
            for path in _training_files(out):
                path.unlink()
        _write_state(state, command, settings)
        try:
            with interrupts.measuring():
                training.run()
                if training.is_complete():
                    training.save_model()
        except Interrupted as interrupt:
            interrupt.hint = f"; {training.writer.describe_last()}"
            raise
    if not training.is_complete():
        print(
            f"{TRAIN_PROG}: {interrupts.reason()}: the snapshot is {training.writer.last}; go on "
            "with --resume",
            file=sys.stderr,
        )
        return 128 + interrupts.signum
    say(
        f"Test accuracy {training.test_accuracy():.2%}; written to {out}: model.npz, log, "
        "loss.png, accuracy.png"
    )
    return 0


def _find_snapshot(args: argparse.Namespace, source: ModelSource, out: Path) -> Path:
    """The snapshot to go on from, after a look at its settings: reading the data takes longer."""
    from chainer_profile.training.snapshots import snapshots
    from chainer_profile.training.training import check_same, snapshot_settings

    path = args.resume
    if path is NEWEST:
        found = snapshots(out)
        if not found:
            raise ProfileError(
                f"--resume: there is no snapshot in {out}; name a snapshot, or the folder with "
                "--out"
            )
        path = found[-1]
    now = {"model": source.name, "dataset": args.dataset, **_same_options(args)}
    check_same(snapshot_settings(path), now, path)
    return Path(path)


def _same_options(args: argparse.Namespace) -> dict[str, Any]:
    """Settings that options give as they are."""
    return {
        "batchsize": args.batchsize,
        "learning_rate": args.learning_rate,
        "augmentation": not args.no_augmentation,
        "seed": args.seed,
        "fast": args.fast or "none",
    }


def _resume(training: Training, path: Path, say: Callable[[str], None]) -> None:
    epochs = training.resume(path)
    say(f"Going on from {path}")
    if epochs != training.settings.epochs:
        say(
            f"{plural(training.settings.epochs, 'epoch')} in place of {epochs}: the learning rate "
            "falls where it would have fallen before"
        )


def _write_state(state: IO[bytes], command: str, settings: Any) -> None:
    """Writes how the folder's training was started."""
    from dataclasses import asdict

    content = {"command": command, **asdict(settings)}
    try:
        state.truncate(0)
        state.write(json.dumps(content, indent=2).encode() + b"\n")
        state.flush()
    except OSError as error:
        raise ProfileError(f"{_STATE} cannot be written ({error.strerror})") from error


def _say(text: str) -> None:
    Console(sys.stdout).write(text + "\n")


def _quiet(text: str) -> None:
    pass


class Console:
    """A stream whose end does not end training; without the terminal's codes where it is none.

    Args:
        stream: The stream.
        terminal: Whether codes are passed on; None for where the stream is a terminal.
    """

    def __init__(self, stream: Any, terminal: bool | None = None) -> None:
        self._stream = stream
        self._codes = stream.isatty() if terminal is None else terminal

    def write(self, text: str) -> None:
        """Writes a text if that is possible."""
        if not self._codes:
            text = text.replace("\033[J", "")
        with suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()

    def flush(self) -> None:
        """Does nothing: what is written is flushed already."""
