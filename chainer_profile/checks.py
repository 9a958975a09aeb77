"""Summary -> findings: what the reader should know before believing a number, and do next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chainer_profile.summary import Summary


@dataclass(frozen=True)
class Finding:
    """One thing to know about a run.

    Attributes:
        code: Short name of the check: ``unstable``.
        severity: ``warning`` where a number may mislead; ``note`` otherwise.
        text: What was found, with its number: one sentence or two.
        advice: What to do about it: one sentence.
    """

    code: str
    severity: str
    text: str
    advice: str


def check(summary: Summary) -> tuple[Finding, ...]:
    """All findings of a run, warnings first."""
    return ()
