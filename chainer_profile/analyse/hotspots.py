"""Hot layers by a rule that the user chooses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainer_profile.basics import units
from chainer_profile.basics.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DEFAULT_RULE = "pareto:50%"
# Rounding must not put a layer below a line that it just reaches.
_ROUNDING = 1 - 1e-12
# The largest gap is looked for down to this part of the time of the last layer that pareto needs.
_NEARBY = 0.9


@dataclass(frozen=True)
class Rule:
    #: Layers are hot by ``time`` (mean seconds of at least the value), ``share`` (at least this
    #: fraction of the trial), ``top`` (this number of slowest layers), or ``pareto`` (the fewest
    #: layers that take at least this fraction of the layers' time, and the next ones down to the
    #: largest gap nearby, so that equally slow layers are all hot, or none).
    kind: str
    value: float
    text: str  #: As the user wrote it.

    def __str__(self) -> str:
        if self.kind == "time":
            return f"layers of at least {units.format_duration(self.value)}"
        if self.kind == "share":
            return f"layers that take at least {units.format_percent(self.value)} of the trial"
        if self.kind == "top":
            return f"the {units.plural(int(self.value), 'slowest layer')}"
        share = units.format_percent(self.value, 0 if self.value * 100 % 1 < 1e-9 else 1)
        return f"the slowest with {share} of the layers' time"


@dataclass(frozen=True, eq=False)
class Hotspots:
    rule: Rule
    hot: NDArray[np.bool_]  #: Whether each layer is hot, (layers,).
    #: Mean time from which a layer is hot; None for rules without such a time.
    line_s: float | None

    @property
    def indices(self) -> list[int]:
        """Indices of the hot layers, in the order of the calls."""
        return [int(i) for i in self.hot.nonzero()[0]]


def parse_rule(text: str) -> Rule:
    """Read a rule: ``0.36ms``, ``5%``, ``top:10`` or ``pareto:50%``. UsageError for others."""
    kind, colon, value = text.strip().partition(":")
    try:
        if colon and kind == "top":
            if not value.isdecimal() or int(value) < 1:
                raise UsageError("top takes a whole number from 1")
            return Rule("top", int(value), text)
        # Without the sign, pareto:0.5 might be meant as a half.
        if colon and kind == "pareto" and value.endswith("%"):
            return Rule("pareto", units.parse_percent(value), text)
        if kind.endswith("%"):
            return Rule("share", units.parse_percent(kind), text)
        return Rule("time", units.parse_duration(text), text)
    except UsageError:
        raise UsageError(
            f"{text!r} is not a rule for hotspots: give a time (0.36ms), a share (5%), top:10 "
            "or pareto:50%"
        ) from None


def find_hotspots(mean_s: NDArray[np.float64], rule: Rule, whole_s: float) -> Hotspots:
    """Apply a rule to the layers' mean self times, (layers,); shares are of ``whole_s`` seconds."""
    import numpy as np  # here, because the command line's --help needs the rules only

    hot = np.zeros(len(mean_s), bool)
    line_s: float | None = None
    # The earlier one of two equal calls comes first.
    order = np.argsort(-mean_s, kind="stable")
    if rule.kind == "time":
        line_s = rule.value
        hot = mean_s >= line_s * _ROUNDING
    elif rule.kind == "share":
        line_s = rule.value * whole_s
        hot = (mean_s >= line_s * _ROUNDING) & (mean_s > 0)
    elif rule.kind == "top":
        hot[order[: int(rule.value)]] = True
    elif mean_s.any():
        sums = np.cumsum(mean_s[order])
        needed = int(np.searchsorted(sums, rule.value * sums[-1] * _ROUNDING) + 1)
        hot[order[: _down_to_gap(mean_s[order], needed)]] = True
    return Hotspots(rule, hot, line_s)


def _down_to_gap(slowest_first: NDArray[np.float64], needed: int) -> int:
    """The number of hot layers: at least ``needed``, and nearly as slow ones down to a gap.

    The gap is the largest ratio of two successive times among the layers that take at least
    :data:`_NEARBY` of the time of the last needed layer.
    """
    import numpy as np

    largest = int((slowest_first >= _NEARBY * slowest_first[needed - 1]).sum())
    following = np.append(slowest_first, 0.0)[needed : largest + 1]
    return needed + int(np.argmin(following / slowest_first[needed - 1 : largest]))
