"""Sentences as data: templates, and the names of the facts that each of them needs."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from chainer_profile.basics import units

#: Functions that format a number, by the format specification after the colon.
_FORMATS: dict[str, Callable[[Any], str]] = {
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
    """Formats a field as :func:`fill` describes."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if number_format := _FORMATS.get(format_spec):
            return number_format(value)
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


def fill(template: str, /, **facts: Any) -> str:
    """Replace names in braces by facts.

    The format follows a colon: ``{share:%}`` is ``12.3 %`` (``%0`` rounds to ``12 %``),
    ``{took:s}`` and ``{took:ns}`` are times, ``{factor:x}`` is ``1.29x``, ``{count:n}`` ``10,000``,
    ``{size:B}`` a size in bytes, ``{rate:G}`` a number in billions, ``{error:e}`` ``1.2e-06`` and
    ``{figure:g}`` a number with four digits. ``{count:layer}`` is ``1 layer`` or ``66 layers``, and
    ``{count:takes|take}`` is ``takes`` for 1 and ``take`` otherwise. A list becomes ``a, b and c``
    without a format, and its length with one.
    """
    return str(_FILLER.vformat(template, (), facts))


def holds(needs: str, facts: Mapping[str, Any]) -> bool:
    """Whether all facts named in ``needs`` are true, and none named with ``-`` before it."""
    return all(bool(facts.get(name.lstrip("-"))) != name.startswith("-") for name in needs.split())


def sentences_that_hold(sentences: Mapping[str, str], facts: Mapping[str, Any]) -> Iterator[str]:
    """Fill the templates whose needs are met; ``sentences`` maps needs to templates."""
    return (fill(template, **facts) for needs, template in sentences.items() if holds(needs, facts))


def say(sentences: str | Mapping[str, str], facts: Mapping[str, Any], between: str = " ") -> str:
    """Join the sentences that hold; a single template always holds."""
    if isinstance(sentences, str):
        return fill(sentences, **facts)
    return between.join(sentences_that_hold(sentences, facts))


def first(sentences: Mapping[str, str], facts: Mapping[str, Any]) -> str:
    """Fill the first template whose needs are met."""
    return next(sentences_that_hold(sentences, facts))
