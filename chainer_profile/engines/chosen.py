"""Which engines a run has, and which of them a file is for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from chainer_profile.basics.errors import UsageError
from chainer_profile.engines.catalogue import BASELINE, ENGINES, find_engine
from chainer_profile.engines.protocol import PRECISIONS, Saving
from chainer_profile.engines.race import Contestant


def choose(names: Sequence[str] | None) -> list[Contestant]:
    """The engines that were named, Chainer first; without names all of the catalogue."""
    found: list[Contestant] = []
    for name in dict.fromkeys([BASELINE, *(ENGINES if names is None else names)]):
        entry = ENGINES.get(name)
        if entry is None:
            engine = find_engine(name)
            own = str(getattr(engine, "name", "")) or name
            taken = own in ENGINES or any(own == one.name for one in found)
            found.append(Contestant(name=name if taken else own, engine=engine, make=type(engine)))
        elif lacks := entry.lacks():
            found.append(Contestant(name=name, engine=None, error=lacks, install=entry.install))
        else:
            found.append(Contestant(name=name, engine=entry.make(), make=entry.make))
    return found


def place(
    contestants: Sequence[Contestant], *, precision: str, save: Path | None, load: Path | None
) -> None:
    """Note what each engine is to compute in, and which is to be loaded from a file."""
    for contestant in contestants:
        contestant.precision = PRECISIONS[0] if contestant.name == BASELINE else precision
    if save is not None:
        of_file(contestants, save, "--save-engine")
    if load is not None:
        of_file(contestants, load, "--load-engine").saved = load


def of_file(contestants: Sequence[Contestant], path: Path, option: str) -> Contestant:
    """The engine whose files end as this one does."""
    able = {
        contestant.name: contestant.engine.suffix
        for contestant in contestants
        if isinstance(contestant.engine, Saving)
    }
    found = [one for one in contestants if path.name.endswith(able.get(one.name, "\0"))]
    if len(found) == 1:
        return found[0]
    if found:
        names = " or ".join(one.name for one in found)
        raise UsageError(f"{option} {path}: is it {names}? Name one of them with --engines")
    known = ", ".join(f"{name} *{suffix}" for name, suffix in able.items())
    raise UsageError(
        f"{option} {path}: no engine of this run has files of this ending; there are "
        f"{known or 'none that can be kept'}"
    )
