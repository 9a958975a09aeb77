"""Rules: findings as data, before the numbers of a run are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from chainer_profile.analyse.findings import NOTE, STEP, WARNING, Finding, Untried
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.sentences import Sentence, say

#: The facts of a finding, by the names in its sentences. These also know ``run``, the recording,
#: its ``totals``, and the ``whole`` that shares are of. Other facts are ``gain``, ``changes`` and
#: ``off`` of the finding; and its ``severity`` and ``command``, where they are not the rule's.
Facts = dict[str, Any]
#: A sentence, or several of which those are said whose facts are known.
Sentences = str | tuple[str | Sentence, ...]
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
        facts_of_run = {
            "run": summary.recording,
            "totals": summary.totals,
            "whole": whole(summary)[1],
        }
        for facts in self.needs(summary):
            yield facts if isinstance(facts, Untried) else self.finding(facts_of_run | facts)

    def finding(self, facts: Facts) -> Finding:
        severity = facts.get("severity", self.severity)
        return Finding(
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


@dataclass
class Rules:
    """Rules: ``@RULES.note(code, text, advice)`` stands above a function that gives the facts."""

    rules: list[Rule] = field(default_factory=list)

    def _add(
        self, severity: str, code: str, text: Sentences, advice: Sentences = "", **more: Any
    ) -> Callable[[Needs], Needs]:
        """Above a function: its findings have these words; see :class:`Rule`."""

        def added(needs: Needs) -> Needs:
            self.rules.append(Rule(code, severity, needs, text, advice, **more))
            return needs

        return added

    def warning(self, code: str, *words: Sentences, **more: Any) -> Callable[[Needs], Needs]:
        return self._add(WARNING, code, *words, **more)

    def step(self, code: str, *words: Sentences, **more: Any) -> Callable[[Needs], Needs]:
        return self._add(STEP, code, *words, **more)

    def note(self, code: str, *words: Sentences, **more: Any) -> Callable[[Needs], Needs]:
        return self._add(NOTE, code, *words, **more)

    def findings(self, summary: Summary, of_programs: bool = False) -> Iterator[Finding | Untried]:
        """Those of a run; for programs by some of the rules only."""
        for rule in self.rules:
            if rule.of_programs or not of_programs:
                yield from rule.findings(summary)


def whole(summary: Summary) -> tuple[float, str]:
    """The time of a trial that shares are of, in seconds, and its name."""
    profiled = summary.totals.profiled
    if profiled is not None and profiled.mean_s:
        iterates = summary.recording.of_program and summary.several_phases
        return profiled.mean_s, "iteration" if iterates else "trial"
    return float(summary.layers["mean_s"].sum()), "layers' time"
