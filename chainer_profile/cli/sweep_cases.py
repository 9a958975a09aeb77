"""The cases of a sweep: from lists on the command line, or from a TOML file."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from chainer_profile.basics.choosing import with_nearest
from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import Parser, input_shape, whole
from chainer_profile.basics.words import DEFAULT_MODEL, DTYPES, PHASES, PROG
from chainer_profile.cli.options import asked_device, take
from chainer_profile.record.parts import Settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from chainer_profile.runs.sweep import Case

#: Finds a network's name for folders, and the shape of its input if known, from the user's words.
FindModel = Callable[[str], tuple[str, "tuple[int, ...] | None"]]
#: The values of options by name: texts, numbers, truths, or lists of them.
Options = Mapping[str, Any]

_MAX_CASES = 10_000
#: Options that take a list (a case is made for each combination of their entries), what the help
#: calls their values and says of them.
LISTS = {
    "models": ("A,B,C", "networks, as --model of profile.py takes them"),
    "input-sizes": ("HxW,...", "heights and widths of images, such as 1024x2048,500x334"),
    "input-shapes": ("CxHxW,...", "shapes of one input, in place of sizes"),
    "batchsizes": ("N,...", "inputs per trial (default: 1)"),
    "devices": ("D,...", "cpu, gpu:0 and so on (default: cpu)"),
    "phases": ("P,...", f"{', '.join(PHASES)} (default: {PHASES[0]})"),
}
#: Options of a run that are the same for all cases; the last one has no value.
SINGLES = ("trials", "warmups", "threads", "seed", "dtype", "max-seconds", "no-machine")
KNOWN = (*LISTS, *SINGLES)
#: The option of ``profile.py`` for each option here, and the reverse.
_SINGULAR = {name: name[:-1] if name in LISTS else name for name in KNOWN}
_PLURAL = {singular: name for name, singular in _SINGULAR.items()}
_USUAL = {"models": DEFAULT_MODEL, "batchsizes": 1, "devices": "cpu", "phases": PHASES[0]}
_USUAL |= {"trials": 1000, "warmups": 50, "seed": 0, "dtype": DTYPES[0]}


@cache
def _parser() -> Parser:
    """Reads the words of a case."""
    parser = Parser(prog=f"{PROG} sweep")
    names = [f"--{name}" for name in _PLURAL if name != "threads"]
    take(parser, *names, short=False)
    # There may be more cores where the case runs.
    take(parser, "--threads", type=whole(1))
    return parser


def cases_of(options: Options, find: FindModel, where: str = "") -> list[Case]:
    """A case for each combination of the options' values; the networks vary last.

    The UsageError of a wrong value begins with ``where``.
    """
    if "input-sizes" in options and "input-shapes" in options:
        raise UsageError(f"{where}input-sizes and input-shapes: give one of them")
    asked = {**_USUAL, **options}
    values = {name: _listed(asked[name], name, where) for name in KNOWN if name in asked}
    count = math.prod(map(len, values.values()))
    if count > _MAX_CASES:
        raise UsageError(f"these are {count:,d} cases; a sweep takes up to {_MAX_CASES:,d}")
    try:
        return [
            _case(dict(zip(values, each, strict=True)), find)
            for each in itertools.product(*values.values())
        ]
    except UsageError as error:
        raise UsageError(f"{where}{error}") from None


def _listed(given: Any, name: str, where: str) -> list[Any]:
    if name in LISTS and isinstance(given, str):
        return [entry.strip() for entry in given.split(",")]
    if name not in LISTS or not isinstance(given, list):
        return [given]
    if not given:
        raise UsageError(f"{where}{name}: the list is empty; give at least one entry")
    return given


def _case(values: Options, find: FindModel) -> Case:
    """The case of one value for each option."""
    from chainer_profile.runs.sweep import DETERMINED, Case

    flags = {"no-machine": values["no-machine"]} if "no-machine" in values else {}
    for name, given in flags.items():
        if not isinstance(given, bool):
            raise UsageError(f"{name}: must be true or false, not {str(given)[:40]!r}")
    said = {f"--{_SINGULAR[name]}": str(values[name]) for name in values if name not in flags}
    on = [f"--{name}" for name, given in flags.items() if given]
    args = _parser().parse_args([*(f"{name}={text}" for name, text in said.items()), *on])
    network, known = find(args.model)
    shape = (args.batchsize, *input_shape(args, known))
    given = {name: getattr(args, name) for name in DETERMINED if name != "device"}
    settings = Settings(model=network, input_shape=shape, device=asked_device(args), **given)
    return Case(args.model, settings, (*itertools.chain(*said.items()), *on))


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """What a TOML file may hold."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][\w.+-]{0,99}$")] = ""
    common: dict[str, Any] = {}
    cases: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)] | None = None


def read_toml(path: Path) -> tuple[str, list[tuple[str, Options]]]:
    """The name of a sweep, and the options of each group of cases with their place in the file.

    The values of a table of ``[[cases]]`` replace those of ``[common]``, which are the only group
    where there is no such table.
    """
    try:
        content = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _File)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{path}: {error}; it takes a name of letters, digits and ._+-, and options below "
            "[common] and [[cases]]"
        ) from None
    except ValueError as error:  # the message names line and column
        raise UsageError(f"{path}: is no TOML: {' '.join(str(error).split())}") from None
    common = _table(content.common, f"{path}: [common]: ")
    name = content.name or path.stem
    if content.cases is None:
        return name, [(f"{path}: [common]: ", common)]
    found: list[tuple[str, Options]] = []
    for number, group in enumerate(content.cases, 1):
        where = f"{path}: [[cases]] {number}: "
        table = _table(group, where)
        # A group's inputs replace the common ones, whichever of the two options gives them.
        inputs = {"input-sizes", "input-shapes"}
        replaced = inputs if inputs & table.keys() else set()
        kept = {key: value for key, value in common.items() if key not in replaced}
        found.append((where, kept | table))
    return name, found


def _table(content: Options, where: str) -> dict[str, Any]:
    """The options in a table of a file: their keys with - or _, of a list also in the singular."""
    table: dict[str, Any] = {}
    for key, value in content.items():
        name = key.replace("_", "-")
        name = _PLURAL.get(name, name)
        if name not in KNOWN:
            raise UsageError(
                f"{where}unknown key {with_nearest(name, KNOWN)}; known are {', '.join(KNOWN)}"
            )
        if name in table:
            raise UsageError(f"{where}{name} is given twice")
        table[name] = value
    return table
