"""The cases of a sweep: from lists on the command line, or from a TOML file."""

from __future__ import annotations

import argparse
import difflib
import itertools
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import (
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

#: Finds a network's name for folders, and the shape of its input if known, from the user's words.
FindModel = Callable[[str], tuple[str, "tuple[int, ...] | None"]]
#: The values of options by name: texts, numbers, truths, or lists of them.
Options = Mapping[str, Any]

_MAX_CASES = 10_000


class Option(NamedTuple):
    """How the text of a value is read, what the help says, and what holds without the option."""

    read: Callable[[str], Any]
    metavar: str
    help: str
    default: Any = None


def _one_of(known: tuple[str, ...]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in known:
            raise UsageError(f"must be {' or '.join(known)}, not {text[:40]!r}")
        return text

    return read


def _device(text: str) -> str:
    return named_device(parse_device(text))


def _truth(text: str) -> bool:
    return _one_of(("true", "false"))(text.lower()) == "true"


#: Options that take a list: a case is made for each combination of their entries.
LISTS = {
    "models": Option(str, "A,B,C", "networks, as --model of profile.py takes them", DEFAULT_MODEL),
    "input-sizes": Option(
        size, "HxW,...", "heights and widths of images, such as 1024x2048,500x334"
    ),
    "input-shapes": Option(parse_shape, "CxHxW,...", "shapes of one input, in place of sizes"),
    "batchsizes": Option(whole(1), "N,...", "inputs per trial (default: 1)", 1),
    "devices": Option(_device, "D,...", "cpu, gpu:0 and so on (default: cpu)", "cpu"),
    "phases": Option(
        _one_of(PHASES), "P,...", f"{', '.join(PHASES)} (default: {PHASES[0]})", PHASES[0]
    ),
}
#: Options that take one value.
SINGLES = {
    "trials": Option(whole(1), "N", "profiled trials of a case (default: 1000)", 1000),
    "warmups": Option(whole(0), "N", "warm-up trials of a case (default: 50)", 50),
    "threads": Option(whole(1), "N", "BLAS threads (default: as many as BLAS chooses)"),
    "seed": Option(whole(0), "N", "seed of weights and input (default: 0)", 0),
    "dtype": Option(_one_of(DTYPES), "T", f"{', '.join(DTYPES)} (default: {DTYPES[0]})", DTYPES[0]),
    "max-seconds": Option(positive_seconds, "S", "end the trials of a case after so many seconds"),
    "no-machine": Option(_truth, "", "do not measure what the machine can do at best", False),
}
KNOWN = LISTS | SINGLES
#: The option of ``profile.py`` for each option here, and the reverse.
_SINGULAR = {name: name[:-1] if name in LISTS else name for name in KNOWN}
_PLURAL = {singular: name for name, singular in _SINGULAR.items()}
#: The options that are settings of a run by the same name: all but the network, its input's shape
#: and the last one.
_GIVEN = tuple(name.replace("-", "_") for name in list(_PLURAL)[3:-1])


@dataclass(frozen=True)
class Case:
    """One run of a sweep. Two cases are equal if they would measure the same.

    The model is the network as the user named it, the words are what a user would type after the
    program's name, and the settings are those of the run, as far as the case determines them.
    """

    model: str
    settings: Settings
    words: tuple[str, ...] = field(compare=False)

    @property
    def key(self) -> dict[str, Any]:
        """Everything that identifies the case, for JSON."""
        shape = list(self.settings.input_shape[1:])
        return {**_determined(self.settings), "model": self.model, "input_shape": shape}

    @property
    def name(self) -> str:
        """A name for the case's folder; other cases may have the same."""
        asked = self.settings
        parts = [asked.model, format_input(asked.input_shape[1:]), asked.device.replace(":", "")]
        parts += [f"b{asked.batchsize}"]
        parts += [word for word in (asked.phase, asked.dtype) if word not in (PHASES[0], DTYPES[0])]
        parts += [f"t{asked.threads}"] if asked.threads is not None else []
        parts += [f"seed{asked.seed}"] if asked.seed else []
        return "-".join(parts)

    def is_of(self, settings: Settings) -> bool:
        """Whether the settings of a recording are those of this case."""
        return _determined(settings) == _determined(self.settings)


def _determined(settings: Settings) -> dict[str, Any]:
    """The settings that a case determines."""
    return {name: getattr(settings, name) for name in ("model", "input_shape", *_GIVEN)}


def cases_of(options: Options, find: FindModel, where: str = "--") -> list[Case]:
    """A case for each combination of the options' values; the networks vary last.

    The UsageError of a wrong value names its option, with ``where`` before it.
    """
    if "input-sizes" in options and "input-shapes" in options:
        raise UsageError(f"{where}input-sizes and {where}input-shapes: give one of them")
    asked = {name: options.get(name, option.default) for name, option in KNOWN.items()}
    values = {name: _read(given, name, where) for name, given in asked.items() if given is not None}
    count = math.prod(map(len, values.values()))
    if count > _MAX_CASES:
        raise UsageError(f"these are {count:,d} cases; a sweep takes up to {_MAX_CASES:,d}")
    names = [_SINGULAR[name] for name in values]
    combinations = itertools.product(*values.values())
    return [_case(dict(zip(names, each, strict=True)), find) for each in combinations]


def _read(given: Any, name: str, where: str) -> list[Any]:
    """The values of an option: one, or those of a list."""
    if name in LISTS and isinstance(given, str):
        given = [entry.strip() for entry in given.split(",")]
    if name not in LISTS or not isinstance(given, list):
        given = [given]
    if not given:
        raise UsageError(f"{where}{name}: the list is empty; give at least one entry")
    try:
        return [KNOWN[name].read(str(entry)) for entry in given]
    except (argparse.ArgumentTypeError, UsageError) as error:
        raise UsageError(f"{where}{name}: {error}") from None


def _case(values: Mapping[str, Any], find: FindModel) -> Case:
    """The case of one value for each option of ``profile.py``."""
    words: list[str] = []
    for name, value in values.items():
        if isinstance(value, bool):
            words += [f"--{name}"] if value else []
        else:
            text = "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words += [f"--{name}", text]
    said = {name.replace("-", "_"): value for name, value in values.items()}
    network, known = find(said["model"])
    asked = argparse.Namespace(**{"input_size": None, "input_shape": None, **said})
    shape = (asked.batchsize, *input_shape(asked, known))
    given = {name: said.get(name) for name in _GIVEN}
    settings = Settings(model=network, input_shape=shape, **given)  # type: ignore[arg-type]
    return Case(asked.model, settings, tuple(words))


def case_names(cases: Iterable[Case], taken: Mapping[Case, str]) -> dict[Case, str]:
    """A folder's name for each case: the one that it has already, or a free one."""
    names: dict[Case, str] = {}
    used = set(taken.values())
    for case in cases:
        numbered = (f"{case.name}-{number}" for number in itertools.count(2))
        free = (name for name in itertools.chain([case.name], numbered) if name not in used)
        names[case] = taken.get(case) or next(free)
        used.add(names[case])
    return names


def read_toml(path: Path) -> tuple[str, list[tuple[str, Options]]]:
    """The name of a sweep, and the options of each group of cases with their place in the file.

    The values of a table of ``[[cases]]`` replace those of ``[common]``, which are the only group
    where there is no such table.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:  # the message names line and column
        raise UsageError(f"{path}: is no TOML: {' '.join(str(error).split())}") from None
    tables = ("name", "common", "cases")
    for key in content.keys() - tables:
        if _option(key) in KNOWN:
            raise UsageError(f"{path}: {key} must stand below [common] or [[cases]]")
        raise _unknown(key, tables, f"{path}")
    name = content.get("name", path.stem)
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][\w.+-]{0,99}", name):
        raise UsageError(
            f"{path}: name must be a text of letters, digits and ._+-, not {str(name)[:40]!r}"
        )
    where = f"{path}: [common]"
    common = _table(content.get("common", {}), where)
    if "cases" not in content:
        return name, [(f"{where}: ", common)]
    groups = content["cases"]
    if not isinstance(groups, list) or not groups:
        raise UsageError(f"{path}: cases must be tables: write each below a line [[cases]]")
    found: list[tuple[str, Options]] = []
    for number, group in enumerate(groups, 1):
        where = f"{path}: [[cases]] {number}"
        table = _table(group, where)
        # A group's inputs replace the common ones, whichever of the two options gives them.
        inputs = {"input-sizes", "input-shapes"}
        replaced = inputs if inputs & table.keys() else set()
        kept = {key: value for key, value in common.items() if key not in replaced}
        found.append((f"{where}: ", kept | table))
    return name, found


def _option(key: str) -> str:
    """The option that a key of a file names: with - or _, of a list also in the singular."""
    name = key.replace("_", "-")
    return _PLURAL.get(name, name)


def _table(content: Any, where: str) -> dict[str, Any]:
    """The options in a table of a file."""
    if not isinstance(content, dict):
        raise UsageError(f"{where}: must be a table")
    table: dict[str, Any] = {}
    for key, value in content.items():
        name = _option(key)
        if name not in KNOWN:
            raise _unknown(key, KNOWN, where)
        if name in table:
            raise UsageError(f"{where}: {name} is given twice")
        table[name] = value
    return table


def _unknown(key: str, known: Iterable[str], where: str) -> UsageError:
    nearest = difflib.get_close_matches(key.lower().replace("_", "-")[:40], list(known), n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"known are {', '.join(known)}"
    return UsageError(f"{where}: unknown key {key[:40]!r}: {hint}")
