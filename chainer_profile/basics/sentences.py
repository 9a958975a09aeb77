"""Sentences as data: words with names of facts, and the facts without which they are not said."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from chainer_profile.basics import units

#: How :func:`fill` shows a number, by the sign behind the colon.
_SHOWN_AS: dict[str, Callable[[Any], str]] = {
    "%": units.format_percent,
    "%0": lambda fraction: units.format_percent(fraction, 0),
    "s": units.format_duration,
    "x": units.format_factor,
    "n": units.format_count,
    "B": units.format_nbytes,
    "G": units.format_giga,
}


class _Filler(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if shown := _SHOWN_AS.get(format_spec):
            return shown(value)
        if "|" in format_spec:
            singular, other = format_spec.split("|")
            return singular if value == 1 else other
        return units.plural(value, format_spec) if format_spec else str(value)


_FILLER = _Filler()


def fill(words: str, /, **facts: Any) -> str:
    """Words with facts in place of the names in braces.

    Behind a colon stands how a number is shown: ``{share:%}`` is ``12.3 %`` (``%0`` without a
    point), ``{took:s}`` a time, ``{factor:x}`` ``1.29x``, ``{count:n}``, ``{size:B}`` bytes and
    ``{rate:G}`` billions; ``{count:layer}`` is ``1 layer`` or ``66 layers``, and
    ``{count:takes|take}`` the word that goes with the count.
    """
    return str(_FILLER.vformat(words, (), facts))


@dataclass(frozen=True)
class Sentence:
    """A sentence that is said where facts are known; their names are in ``needs``.

    A fact behind ``-`` must not be known, or be nothing.
    """

    needs: str
    words: str

    def holds(self, facts: Mapping[str, Any]) -> bool:
        names = self.needs.split()
        return all(bool(facts.get(name.lstrip("-"))) != name.startswith("-") for name in names)


def say(sentences: str | Iterable[str | Sentence], facts: Mapping[str, Any]) -> str:
    """The sentences that these facts allow."""
    every = (sentences,) if isinstance(sentences, str) else sentences
    words = (
        sentence if isinstance(sentence, str) else sentence.words
        for sentence in every
        if isinstance(sentence, str) or sentence.holds(facts)
    )
    return " ".join(fill(part, **facts) for part in words)
