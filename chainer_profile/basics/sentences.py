"""Sentences as data: words with names of facts, and the facts without which they are not said."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from chainer_profile.basics import units

#: How :func:`fill` shows a number, by the sign behind the colon.
_SHOWN_AS: dict[str, Callable[[Any], str]] = {
    "%": units.format_percent,
    "%0": lambda fraction: units.format_percent(fraction, 0),
    "s": units.format_duration,
    "ns": lambda ns: units.format_duration(ns * 1e-9),
    "x": units.format_factor,
    "n": units.format_count,
    "B": units.format_nbytes,
    "G": units.format_giga,
    "e": units.format_scientific,
    "g": units.format_significant,
}


class _Filler(string.Formatter):
    """Shows numbers as the sign says, and a list as ``a, b and c``, which counts as its length."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if shown := _SHOWN_AS.get(format_spec):
            return shown(value)
        if isinstance(value, list):
            if not format_spec:
                *first, last = map(str, value)
                return f"{', '.join(first)} and {last}" if first else last
            value = len(value)
        if "|" in format_spec:
            singular, other = format_spec.split("|")
            return singular if value == 1 else other
        return units.plural(value, format_spec) if format_spec else str(value)


_FILLER = _Filler()


def fill(words: str, /, **facts: Any) -> str:
    """Words with facts in place of the names in braces.

    Behind a colon stands how a number is shown: ``{share:%}`` is ``12.3 %`` (``%0`` without a
    point), ``{took:s}`` and ``{took:ns}`` a time, ``{factor:x}`` ``1.29x``, ``{count:n}``,
    ``{size:B}`` bytes, ``{rate:G}`` billions, ``{error:e}`` ``1.2e-06`` and ``{figure:g}`` four
    digits; ``{count:layer}`` is ``1 layer`` or ``66 layers``, and ``{count:takes|take}`` the word
    that goes with the count.
    """
    return str(_FILLER.vformat(words, (), facts))


def holds(needs: str, facts: Mapping[str, Any]) -> bool:
    """Whether all facts are known that a sentence needs; one behind ``-`` must not be."""
    return all(bool(facts.get(name.lstrip("-"))) != name.startswith("-") for name in needs.split())


def sentences_that_hold(sentences: Mapping[str, str], facts: Mapping[str, Any]) -> Iterator[str]:
    """Of sentences, by what they need, those that hold, with their facts."""
    return (fill(words, **facts) for needs, words in sentences.items() if holds(needs, facts))


def say(sentences: str | Mapping[str, str], facts: Mapping[str, Any], between: str = " ") -> str:
    """The same, or one sentence, as a text."""
    return between.join(
        sentences_that_hold({"": sentences} if isinstance(sentences, str) else sentences, facts)
    )


def first(sentences: Mapping[str, str], facts: Mapping[str, Any]) -> str:
    """The first of these sentences that holds."""
    return next(sentences_that_hold(sentences, facts))
