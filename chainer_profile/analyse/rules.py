"""Rules: findings as data, before the numbers of a run are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partialmethod
from typing import Any

from chainer_profile.analyse.findings import NOTE, STEP, WARNING, Finding, Untried
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.sentences import say

#: The facts of a finding, by the names in its sentences. These also know ``run``, the recording,
#: its ``totals``, and the ``whole`` that shares are of. Other facts are ``gain``, ``changes`` and
#: ``off`` of the finding; and its ``severity`` and ``command``, where they are not the rule's.
Facts = dict[str, Any]
#: A sentence, or several by the facts that they need: those are said whose facts are known.
Sentences = str | Mapping[str, str]
Needs = Callable[[Summary], Iterator[Facts | Untried]] | Callable[[Summary], Iterator[Facts]]


@dataclass(frozen=True)
class Rule:
    """A finding before its numbers are known: what it needs, what is said, and what to do."""

    code: str
    severity: str
    #: Gives the facts of a run for which there is something to say, once for each finding.
    needs: Needs
    text: Sentences
    advice: Sentences = ""
    evidence: Sentences = ""
    command: str = ""
    of_programs: bool = False  #: Whether it holds where trials differ, as those of programs do.

    def findings(self, summary: Summary) -> Iterator[Finding | Untried]:
        of_run: Facts = {"run": summary.recording, "totals": summary.totals}
        of_run["whole"] = whole(summary)[1]
        for needed in self.needs(summary):
            if isinstance(needed, Untried):
                yield needed
                continue
            facts = of_run | needed
            severity = facts.get("severity", self.severity)
            yield Finding(
                self.code,
                severity,
                say(self.text, facts),
                say(self.advice, facts),
                say(self.evidence, facts),
                facts.get("command") or say(self.command, facts),
                facts.get("gain"),
                facts.get("changes", ()),
                facts.get("off", 0.0) if severity == WARNING else 0.0,
            )


_Above = partialmethod[Callable[[Needs], Needs]]


class Rules(list[Rule]):
    """Rules: ``@RULES.note(text, advice)`` stands above a function that gives the facts."""

    def _add(
        self, severity: str, text: Sentences, advice: Sentences = "", *, code: str = "", **more: Any
    ) -> Callable[[Needs], Needs]:
        """Above a function, whose name is the code of its findings; see :class:`Rule`."""

        def added(needs: Needs) -> Needs:
            name = code or needs.__name__.strip("_").replace("_", "-")
            self.append(Rule(name, severity, needs, text, advice, **more))
            return needs

        return added

    warning: _Above = partialmethod(_add, WARNING)
    step: _Above = partialmethod(_add, STEP)
    note: _Above = partialmethod(_add, NOTE)

    def findings(self, summary: Summary, of_programs: bool = False) -> Iterator[Finding | Untried]:
        """Those of a run; for programs by some of the rules only."""
        for rule in self:
            if rule.of_programs or not of_programs:
                yield from rule.findings(summary)


def whole(summary: Summary) -> tuple[float, str]:
    """The time of a trial that shares are of, in seconds, and its name."""
    profiled = summary.totals.profiled
    if profiled is not None and profiled.mean_s:
        iterates = summary.recording.of_program and summary.several_phases
        return profiled.mean_s, "iteration" if iterates else "trial"
    return float(summary.layers["mean_s"].sum()), "layers' time"


def part_of_whole(summary: Summary, time_s: float) -> float:
    """A time as a part of the time that shares are of."""
    whole_s, _ = whole(summary)
    return float(time_s) / whole_s if whole_s else 0.0
