"""The cases of a sweep: from lists on the command line, or from a TOML file."""

from __future__ import annotations

import argparse
import difflib
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import (
    checked,
    input_shape,
    named_device,
    parse_device,
    parse_shape,
    positive_seconds,
    size,
    whole,
)
from chainer_profile.basics.units import format_input
from chainer_profile.basics.words import DEFAULT_MODEL, DTYPES, PHASES
from chainer_profile.record.parts import Settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from chainer_profile.record.recording import Recording

#: What finds a network's name for folders, and the shape of its input, from what a user types.
FindModel = Callable[[str], tuple[str, "tuple[int, ...] | None"]]
#: Options as they were given, by their names: texts, numbers, or lists of those.
Options = Mapping[str, Any]

_MAX_ENTRIES = 10_000


#: The settings that a case says.
_OF_CASE = (
    *("model", "input_shape", "batchsize", "device", "phase", "trials", "warmups", "threads"),
    *("seed", "dtype", "max_seconds"),
)


@dataclass(frozen=True)
class Case:
    """One run of a sweep. Two cases are equal if they would measure the same.

    Attributes:
        model: The network as the user named it.
        input_shape: Shape of one input without the batch.
        batchsize: Inputs per trial.
        device: ``cpu`` or ``gpu:0``.
        phase: What a trial is.
        trials: Profiled trials.
        warmups: Warm-up trials.
        threads: BLAS threads; None for the library's own choice.
        seed: Seed of the weights and the input.
        dtype: Chainer's ``config.dtype``.
        max_seconds: Limit of the trials, if any.
        no_machine: Leave out the machine's limits.
        network: The network's name for folders and tables.
        input_words: The options of the input, as the user gave them.
    """

    model: str
    input_shape: tuple[int, ...]
    batchsize: int = 1
    device: str = "cpu"
    phase: str = PHASES[0]
    trials: int = 1000
    warmups: int = 50
    threads: int | None = None
    seed: int = 0
    dtype: str = DTYPES[0]
    max_seconds: float | None = None
    no_machine: bool = field(default=False, compare=False)
    network: str = field(default="", compare=False)
    input_words: tuple[str, ...] = field(default=(), compare=False)

    @property
    def arguments(self) -> tuple[str, ...]:
        """What a user would type behind the program's name."""
        words = ["--model", self.model, *self.input_words]
        words += ["--batchsize", str(self.batchsize), "--device", self.device]
        words += ["--phase", self.phase, "--trials", str(self.trials)]
        words += ["--warmups", str(self.warmups), "--seed", str(self.seed)]
        words += ["--dtype", self.dtype]
        if self.threads is not None:
            words += ["--threads", str(self.threads)]
        if self.max_seconds is not None:
            words += ["--max-seconds", f"{self.max_seconds:g}"]
        if self.no_machine:
            words += ["--no-machine"]
        return tuple(words)

    @property
    def key(self) -> dict[str, Any]:
        """All that makes the case what it is, as JSON has it."""
        values = asdict(self)
        for name in ("no_machine", "network", "input_words"):
            del values[name]
        return values | {"input_shape": list(self.input_shape)}

    @property
    def input_text(self) -> str:
        """The input's shape; of an image with three channels height and width: ``1024x2048``."""
        return format_input(self.input_shape)

    @property
    def settings(self) -> Settings:
        """What a run of the case has for settings, as far as the case says it."""
        return Settings(
            model=self.network,
            input_shape=(self.batchsize, *self.input_shape),
            **{name: getattr(self, name) for name in _OF_CASE[2:]},
        )

    def is_of(self, recording: Recording) -> bool:
        """Whether a recording is one of this case."""
        return all(
            getattr(recording.settings, name) == value
            for name, value in vars(self.settings).items()
            if name in _OF_CASE
        )


def _one_of(known: tuple[str, ...]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"must be {' or '.join(known)}, not {text[:40]!r}")
        return text

    return parse


def _model(text: str) -> str:
    if not text.isprintable():
        raise argparse.ArgumentTypeError(f"is no name of a network: {text[:40]!a}")
    return text


def _device(text: str) -> str:
    return named_device(parse_device(text))


#: Options that take a list: a case for each combination. How one entry is read.
LISTS: dict[str, Callable[[str], Any]] = {
    "models": _model,
    "input-sizes": checked(size),
    "input-shapes": checked(parse_shape),
    "batchsizes": whole(1),
    "devices": checked(_device),
    "phases": _one_of(PHASES),
}
#: Options of one value, and how it is read.
SINGLES: dict[str, Callable[[str], Any]] = {
    "trials": whole(1),
    "warmups": whole(0),
    "threads": whole(1),
    "seed": whole(0),
    "dtype": _one_of(DTYPES),
    "max-seconds": positive_seconds,
}
#: Options without a value: true or false in a file.
FLAGS = ("no-machine",)
KNOWN = (*LISTS, *SINGLES, *FLAGS)
#: The singular of a list's name does as well: ``model = "resnet18"``.
_SINGULAR = {name.removesuffix("s"): name for name in LISTS}


def cases_of(options: Options, find: FindModel, where: str = "--") -> list[Case]:
    """The cases that options give, a case for each combination, networks outermost.

    Args:
        options: The options by their names; what is missing is as ``profile.py`` has it.
        find: Finds a network.
        where: What stands before an option's name in messages.

    Raises:
        UsageError: A list is empty, a value says nothing, or there is no such network.
    """
    lists = {name: _entries(options[name], name, where) for name in LISTS if name in options}
    singles = {
        name.replace("-", "_"): _value(SINGLES[name], options[name], name, where)
        for name in SINGLES
        if name in options
    }
    for name in FLAGS:
        on = options.get(name, False)
        if not isinstance(on, bool):
            raise UsageError(f"{where}{name}: must be true or false, not {str(on)[:40]!r}")
        singles[name.replace("-", "_")] = on
    if "input-sizes" in lists and "input-shapes" in lists:
        raise UsageError(f"{where}input-sizes and {where}input-shapes: give one of them")
    kind = "size" if "input-sizes" in lists else "shape"
    count = 1
    for entries in lists.values():
        count *= len(entries)
    if count > _MAX_ENTRIES:
        raise UsageError(f"these are {count:,d} cases; a sweep takes up to {_MAX_ENTRIES:,d}")
    found = []
    for model in lists.get("models", [DEFAULT_MODEL]):
        network, known = find(model)
        for given in lists.get(f"input-{kind}s", [None]):
            asked = argparse.Namespace(model=model, input_size=None, input_shape=None)
            setattr(asked, f"input_{kind}", given)
            words = () if given is None else (f"--input-{kind}", "x".join(map(str, given)))
            taken = input_shape(asked, known)
            for batchsize, device, phase in itertools.product(
                lists.get("batchsizes", [1]),
                lists.get("devices", ["cpu"]),
                lists.get("phases", [PHASES[0]]),
            ):
                found.append(
                    Case(
                        *(model, taken, batchsize, device, phase),
                        **singles,
                        network=network,
                        input_words=words,
                    )
                )
    return found


def _entries(given: Any, name: str, where: str) -> list[Any]:
    if isinstance(given, str):
        given = [entry.strip() for entry in given.split(",")] if given.strip() else []
    if not isinstance(given, list):
        given = [given]
    if not given:
        raise UsageError(f"{where}{name}: the list is empty; give at least one entry")
    return [_value(LISTS[name], entry, name, where) for entry in given]


def _value(parse: Callable[[str], Any], given: Any, name: str, where: str) -> Any:
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise UsageError(f"{where}{name}: must be a text or a number, not {str(given)[:40]}")
    text = str(given)
    if not text:
        raise UsageError(f"{where}{name}: one of its entries is empty")
    try:
        return parse(text)
    except (argparse.ArgumentTypeError, UsageError) as error:
        raise UsageError(f"{where}{name}: {error}") from None


def without_duplicates(cases: Iterable[Case]) -> tuple[list[Case], list[Case]]:
    """Every case once, and those that were there before."""
    kept: dict[Case, None] = {}
    repeated = []
    for case in cases:
        if case in kept:
            repeated.append(case)
        kept.setdefault(case)
    return list(kept), repeated


def case_names(cases: Iterable[Case], taken: Mapping[Case, str]) -> dict[Case, str]:
    """A folder's name for every case: that which it has, or a free one."""
    names: dict[Case, str] = {}
    used = set(taken.values())
    for case in cases:
        name = taken.get(case, "")
        if not name:
            plain = _plain_name(case)
            choices = itertools.chain([plain], (f"{plain}-{n}" for n in itertools.count(2)))
            name = next(choice for choice in choices if choice not in used)
        used.add(name)
        names[case] = name
    return names


def _plain_name(case: Case) -> str:
    parts = [case.network, case.input_text, case.device.replace(":", ""), f"b{case.batchsize}"]
    parts += [case.phase] if case.phase != PHASES[0] else []
    parts += [case.dtype] if case.dtype != DTYPES[0] else []
    parts += [f"t{case.threads}"] if case.threads is not None else []
    parts += [f"seed{case.seed}"] if case.seed else []
    return "-".join(parts)


def sweep_name(cases: Iterable[Case]) -> str:
    """A name for a sweep that was given none: its networks."""
    networks = list(dict.fromkeys(case.network for case in cases))
    name = "-".join(networks[:4])
    return name if len(networks) <= 4 else f"{name}-and-{len(networks) - 4}-more"


def read_toml(path: Path) -> tuple[str, list[tuple[str, Options]]]:
    """The name of a sweep, and the options of its groups of cases with what stands before them.

    A file has a ``name``, a table ``[common]``, and tables ``[[cases]]``, which stand above the
    common ones. Without ``[[cases]]`` the common options are the one group.

    Raises:
        UsageError: It is missing, is no TOML, or holds a key that nobody knows.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is no TOML: it is not UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        # Its words name line and column.
        raise UsageError(f"{path}: is no TOML: {' '.join(str(error).split())}") from None
    _known_keys(content, ("name", "common", "cases"), f"{path}", also=KNOWN)
    name = content.get("name", path.stem)
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][\w.+-]{0,99}", name):
        raise UsageError(
            f"{path}: name must be a text of letters, digits and ._+-, not {str(name)[:40]!r}"
        )
    common = _table(content.get("common", {}), f"{path}: [common]")
    groups = content.get("cases", [{}])
    if not isinstance(groups, list) or not groups:
        raise UsageError(f"{path}: cases must be tables: write each below a line [[cases]]")
    found: list[tuple[str, Options]] = []
    for number, group in enumerate(groups, 1):
        where = f"{path}: [[cases]] {number}" if "cases" in content else f"{path}: [common]"
        table = _table(group, where)
        merged = {**common, **table}
        # What a group says of its inputs takes the place of all that is common.
        for one, other in (("input-sizes", "input-shapes"), ("input-shapes", "input-sizes")):
            if one in table and other not in table:
                merged.pop(other, None)
        found.append((f"{where}: ", merged))
    return name, found


def _table(content: Any, where: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise UsageError(f"{where}: must be a table")
    table: dict[str, Any] = {}
    for key, value in content.items():
        spelled = key.replace("_", "-")
        name = _SINGULAR.get(spelled, spelled)
        if name not in KNOWN:
            _unknown(key, KNOWN, where)
        if name in table:
            raise UsageError(f"{where}: {name} is given twice")
        table[name] = value
    return table


def _known_keys(
    content: Mapping[str, Any], known: tuple[str, ...], where: str, also: tuple[str, ...]
) -> None:
    for key in content:
        if key not in known:
            name = key.replace("_", "-")
            if _SINGULAR.get(name, name) in also:
                raise UsageError(f"{where}: {key[:40]} must stand below [common] or [[cases]]")
            _unknown(key, known, where)


def _unknown(key: str, known: tuple[str, ...], where: str) -> None:
    nearest = difflib.get_close_matches(key.lower().replace("_", "-")[:40], known, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"known are {', '.join(known)}"
    raise UsageError(f"{where}: unknown key {key[:40]!r}: {hint}")


def spelled_lists(options: Options) -> Iterator[str]:
    """Those of the options that take lists, as the command line spells them."""
    return (f"--{name}" for name in LISTS if options.get(name) is not None)
