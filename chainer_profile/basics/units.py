"""Formats numbers for all output, and parses numbers with units."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping

from chainer_profile.basics.errors import UsageError

_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ns": 1e-9}
_UNITS = ("s", "ms", "us", "ns")
NOT_KNOWN = "-"
#: Significant digits of a time.
DIGITS = 4


def duration_unit(seconds: float) -> str:
    """Largest of s, ms, us and ns in which a time is at least 1."""
    # Round first: 999.96 us is shown as 1.000 ms.
    rounded = abs(float(f"{seconds:.{DIGITS - 1}e}"))
    for unit in _UNITS:
        if rounded >= _SECONDS[unit]:
            return unit
    return "ns" if seconds else "s"


def format_duration(seconds: float | None) -> str:
    """Format a time with four significant digits: ``5.021 ms``."""
    if seconds is None or math.isnan(seconds):
        return NOT_KNOWN
    unit = duration_unit(seconds)
    return f"{format_significant(seconds / _SECONDS[unit])} {unit}"


def format_difference(seconds: float) -> str:
    """Format a difference of times with its sign: ``+5.021 ms``."""
    return f"{'+' if seconds > 0 else '-' if seconds < 0 else ''}{format_duration(abs(seconds))}"


def roughly(seconds: float) -> str:
    """Format a time in whole seconds or, from 90 s on, whole minutes: ``35 s``, ``3 h 20 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def decimals_for(half_width: float, value: float) -> int:
    """Number of decimals of a value, so that the half width of its interval has two digits.

    Without an interval (NaN), the value has four significant digits, which is also the most.
    """
    if not value:
        return 0
    max_decimals = 3 - math.floor(math.log10(abs(value)))
    if not half_width > 0:  # NaN too
        return max(0, max_decimals)
    return max(0, min(max_decimals, 1 - math.floor(math.log10(half_width))))


def format_measured(seconds: float, low: float, high: float) -> tuple[str, str]:
    """Format a time and its interval with the digits that the interval justifies.

    Returns:
        ``6.11 ms`` and ``5.64 to 6.58 ms``; the second one is empty if the interval is NaN.
    """
    unit = duration_unit(seconds)
    value, low, high = (x / _SECONDS[unit] for x in (seconds, low, high))
    digits = decimals_for((high - low) / 2, value)
    shown = f"{value:,.{digits}f} {unit}"
    if math.isnan(low) or math.isnan(high):
        return shown, ""
    return shown, f"{low:,.{digits}f} to {high:,.{digits}f} {unit}"


def format_of_limit(seconds: float, limit_s: float) -> str:
    """Format a time and its limit, which is exact, in one unit: ``2.9 of the 3 min``."""
    if limit_s >= 60 and not limit_s % 60:
        return f"{seconds / 60:.1f} of the {limit_s / 60:g} min"
    return f"{seconds:.0f} of the {limit_s:g} s"


def format_ms(seconds: float | None) -> str:
    """Format a time in milliseconds without the unit, for a column headed ``ms``: ``0.3871``."""
    if seconds is None or math.isnan(seconds):
        return NOT_KNOWN
    return f"{seconds * 1e3:.4f}"


def format_significant(value: float, digits: int = DIGITS) -> str:
    """Format a number with ``digits`` significant digits; all digits before the point are kept."""
    if not math.isfinite(value):
        return NOT_KNOWN
    if value == 0:
        return "0"
    # Round first: 9.9996 has two digits before the point.
    before_point = int(f"{value:.{digits - 1}e}".partition("e")[2]) + 1
    return f"{value:,.{max(0, digits - before_point)}f}"


def format_exact(value: float, digits: int) -> str:
    """Format a number for a file, with ``digits`` significant digits or all before the point.

    Returns an empty text for NaN.
    """
    if not math.isfinite(value):
        return "" if math.isnan(value) else str(value)
    return f"{value:.{max(digits, len(str(int(abs(value)))))}g}"


def format_giga(value: float) -> str:
    """Format a number in billions, for a column headed ``GFLOP/s``."""
    return format_significant(value / 1e9)


def format_mega(value: float) -> str:
    """Format a number in millions, for a column headed ``MFLOP``."""
    return format_significant(value / 1e6)


def format_about(text: str, is_about: bool) -> str:
    """Put ``~`` before the text of an approximate number, unless it is 0 or unknown."""
    return f"~{text}" if is_about and text.strip("0.") not in ("", NOT_KNOWN) else text


def format_percent(fraction: float | None, digits: int = 1) -> str:
    """Format a fraction as a percentage: ``12.3 %``."""
    if fraction is None or math.isnan(fraction):
        return NOT_KNOWN
    return f"{fraction * 100:.{digits}f} %"


def format_bare_percent(fraction: float | None) -> str:
    """Format a fraction as a percentage without the sign, for a column headed ``%``: ``12.3``."""
    return format_percent(fraction).removesuffix(" %")


def format_change(fraction: float | None) -> str:
    """Format a relative change as a signed percentage: ``+0.8 %``."""
    if fraction is None or math.isnan(fraction):
        return NOT_KNOWN
    return f"{fraction * 100:+.1f} %"


def format_factor(factor: float) -> str:
    """Format a speed-up: ``1.29x``, ``107x``."""
    return f"{factor:.2f}x" if factor < 100 else f"{factor:,.0f}x"


def format_interval(
    low: float, high: float, shown: Callable[[float], str] | None = None, joint: str = " to "
) -> str:
    """Format an interval, its ends by the function ``shown``: ``2.20x to 2.60x``.

    Without a function the ends are times in one unit: ``5.012 to 5.034 ms``.
    """
    if math.isnan(low) or math.isnan(high):
        return NOT_KNOWN
    if shown is not None:
        return f"{shown(low)}{joint}{shown(high)}"
    unit = duration_unit(high)
    scale = _SECONDS[unit]
    return f"{format_significant(low / scale)}{joint}{format_significant(high / scale)} {unit}"


def format_count(value: int | float) -> str:
    """Format a number with commas: ``10,000``; a fractional one, such as a mean, as ``33.3``."""
    if value == int(value) or abs(value) >= 1000:
        return f"{round(value):,d}"
    return f"{value:,.1f}" if value >= 10 else f"{value:.2g}"


def plural(value: int | float, noun: str, nouns: str | None = None) -> str:
    """Format a count with its noun: ``1 layer``, ``66 layers``."""
    return f"{format_count(value)} {noun if value == 1 else nouns or noun + 's'}"


def join_words(words: Iterable[str]) -> str:
    """Join words of a sentence: ``a, b and c``."""
    *first, last = list(words) or [""]
    return f"{', '.join(first)} and {last}" if first else last


def format_nbytes(nbytes: int | None) -> str:
    """Format a size in bytes by powers of 1024: ``23.5 GiB``."""
    if nbytes is None:
        return NOT_KNOWN
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def format_shape(shape: tuple[int, ...]) -> str:
    """Format a shape: ``1x16x32x32``; ``scalar`` for an array without axes."""
    return "x".join(map(str, shape)) or "scalar"


def format_input(shape: tuple[int, ...]) -> str:
    """Format the shape of an input, without the three channels of an image: ``1024x2048``."""
    return format_shape(shape[1:] if len(shape) == 3 and shape[0] == 3 else shape)


def format_shapes(shapes: tuple[tuple[int, ...], ...]) -> str:
    """Format shapes of several arrays: ``1x3x32x32 16x3x3x3``."""
    return " ".join(map(format_shape, shapes))


def _number_with(text: str, units: Mapping[str, float]) -> float:
    """Parse a number that is followed by one of these units; NaN for other text."""
    match = re.fullmatch(r"\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*(\D*?)\s*", text)
    try:
        return float(match[1]) * units[match[2]] if match else math.nan
    except (ValueError, KeyError):
        return math.nan


def parse_duration(text: str) -> float:
    """Parse a time with a unit into seconds: ``0.36ms``, ``360 us``, ``1e-3s``."""
    seconds = _number_with(text, _SECONDS)
    if not 0 < seconds < math.inf:
        raise UsageError(
            f"{text!r} is not a time: give a number with s, ms, us or ns, such as 0.36ms"
        )
    return seconds


def parse_percent(text: str) -> float:
    """Parse a percentage such as ``5%`` into a fraction."""
    fraction = _number_with(text, {"%": 1, "": 1}) / 100
    if not 0 < fraction <= 1:
        raise UsageError(
            f"{text!r} is not a percentage: give a number above 0 and up to 100, such as 5%"
        )
    return fraction


def format_scientific(value: float) -> str:
    """Format a small number: ``1.2e-06``, ``0`` or ``infinite``."""
    if value == 0:
        return "0"
    return f"{value:.1e}" if math.isfinite(value) else "infinite"
