"""Summary -> the answer, before any table: the time, its parts, and the next step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from chainer_profile.advice.results import Advice
from chainer_profile.analyse.checks import ending_text
from chainer_profile.analyse.findings import NOTE, STEP, WARNING, Finding, next_step
from chainer_profile.analyse.program import ProgramTime, mean_of_trials, trials_like
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.sentences import fill
from chainer_profile.basics.units import format_count, format_percent
from chainer_profile.record.recording import INTERVAL, TIME_LIMIT
from chainer_profile.report import document as doc
from chainer_profile.report.content.advice import what_helped
from chainer_profile.report.content.pass_section import inside_sentences
from chainer_profile.report.rows import shares
from chainer_profile.report.text import gaps, interval_text, on_gpu, printable, trial_parts

#: Parts of a trial in a sentence, and the least share that is named.
_MOST_PARTS, _LEAST_SHARE = 3, 0.03
#: Steps of a first screen.
_MOST_STEPS = 3
#: The mean of a program's trials is explained if it is off the median by more than this part of it.
_LEAST_PART_APART = 0.2
_NOTHING = "All layers took less time than the clock can resolve, so this run shows nothing."


def answer(
    summary: Summary, advice: Advice | None = None, program: ProgramTime | None = None
) -> Iterator[doc.Text]:
    """The time of a trial with its doubts, its parts, and the change that helped the most."""
    yield from opening(summary, program=program)
    if words := () if advice is None else what_helped(advice):
        yield doc.text("Next: ", *words, below=True)


def opening(
    summary: Summary, most: int | None = None, program: ProgramTime | None = None
) -> Iterator[doc.Text]:
    """The time of a trial, the ``most`` important doubts on it, and its parts."""
    yield doc.text(doc.strong(how_long(summary, program)))
    # Warnings go before missing parts.
    notes = sorted(doubts(summary), key=lambda note: most is not None and not note.lead)
    yield from notes[:most]
    if most is not None and (more := len(notes[most:])):
        sentence = fill("{more:more warning}: --full shows {more:it|them}.", more=more)
        yield doc.text(sentence, note=True, below=True)
    if summary.recording.ended in (TIME_LIMIT, INTERVAL):
        yield doc.text(printable(ending_text(summary.recording)), below=True)
    yield from doc.below(filter(None, (where(summary), *inside_sentences(summary)[:1])))


def next_in_short(summary: Summary, advice: Advice | None, every: bool) -> Iterator[doc.Block]:
    """The next step and some others; or ``every`` finding that is not said above."""
    findings = merged(summary.findings)
    step = next_step(findings)
    words = () if advice is None else what_helped(advice)
    if words := words or (() if step is None else finding_words(step)):
        yield doc.text("Next: ", *words)
    steps = [finding for finding in findings if finding.severity == STEP and finding.to_do]
    if every:
        above = [finding for finding in findings if finding.severity == WARNING] + steps[:1]
        yield doc.points(finding_words(finding) for finding in findings if finding not in above)
    elif advice is None:
        for finding in steps[1:_MOST_STEPS]:
            yield doc.text("Or: ", *finding_words(finding), below=True)


def steps(summary: Summary) -> Iterator[doc.Block]:
    """The steps, with the numbers that they follow from."""
    findings = [finding for finding in merged(summary.findings) if finding.severity == STEP]
    if not float(summary.layers["mean_s"].sum()):
        yield doc.text(_NOTHING)
    yield from doc.listing(finding_words(finding, full=True) for finding in findings)


def notes(summary: Summary) -> Iterator[doc.Block]:
    """The notes; warnings stand in the answer."""
    findings = (finding for finding in summary.findings if finding.severity == NOTE)
    return doc.listing(finding_words(finding, full=True) for finding in findings)


def folded(summary: Summary) -> Iterator[doc.Block]:
    """Warnings and notes: a line each, which opens."""
    yield from doc.below(gaps(summary.recording), note=True)
    for severity in (WARNING, NOTE):
        for finding in summary.findings:
            if finding.severity == severity:
                line = (doc.strong(severity.capitalize()), f" {finding.text}")
                more = [part for part in (finding.evidence, finding.to_do) if part]
                yield doc.Fold(line, list(map(doc.text, more)), severity == WARNING)


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """The findings; those with the same advice and command are one, where the first of them is."""
    alike: dict[object, list[Finding]] = {}
    for finding in findings:
        key = (finding.advice, finding.command) if finding.command else id(finding)
        alike.setdefault(key, []).append(finding)
    return [
        replace(
            several[0],
            text=" ".join(finding.text for finding in several),
            evidence=" ".join(finding.evidence for finding in several if finding.evidence),
        )
        for several in alike.values()
    ]


def finding_words(finding: Finding, *, full: bool = False) -> doc.Words:
    """A finding in a row; its numbers in full, or those that matter."""
    parts = (finding.text, finding.evidence if full else "", finding.advice)
    sentences = printable(" ".join(filter(None, parts)))
    if not finding.command:
        return (sentences,)
    return (f"{sentences.removesuffix('.')}: ", doc.code(finding.command))


def how_long(summary: Summary, program: ProgramTime | None = None) -> str:
    """``A forward pass takes 4.7 ms: median of 1,000 unprofiled trials, 95 % interval ...``.

    Of a program it is the mean, which is the same in the table of its parts.
    """
    recording, trial = summary.recording, summary.totals.trial
    parts = trial_parts(recording)
    engine = recording.settings.engine
    noun = "forward and backward pass" if "backward" in parts else "forward pass"
    if parts[-1].startswith("update"):
        noun = "training step"
    by = f" under {printable(engine)}" if engine else ""
    if trial is None:
        return f"Only the functions of a {noun}{by} were timed, not the whole."
    sure = interval_text(trial.ci_low_s, trial.ci_high_s) or "too few for a confidence interval"
    facts: dict[str, Any] = vars(trial) | {"noun": noun, "by": by, "sure": sure}
    if not recording.of_program:
        trials = "{count:unprofiled trial}" if summary.totals.clean else "{count:profiled trial}"
        return fill("A {noun}{by} takes {median_s:s}: median of " + trials + ", {sure}.", **facts)
    if program is not None and (of_program := mean_of_trials(program, recording)):
        facts["mean_s"], facts["count"] = of_program
    trials = "{count:iteration}" if noun == "training step" else "{count:call}"
    more = 0 if program is None else trials_like(program, recording)
    if is_part := facts["count"] < more:
        trials = f"{format_count(facts['count'])} of {{more:{trials[7:-1]}}}"
        facts["more"] = more
    sentence = "A {noun} takes {mean_s:s}: mean of " + trials + " (median {median_s:s}, {sure})."
    if abs(facts["mean_s"] - trial.median_s) > _LEAST_PART_APART * trial.median_s:
        sentence += " They take {min_s:s} to {max_s:s}"
        sentence += "." if is_part else "; only the mean adds up to the program."
    return fill(sentence, **facts)


def doubts(summary: Summary) -> Iterator[doc.Text]:
    """Missing parts of the measurement, and warnings."""
    yield from doc.below(gaps(summary.recording), note=True)
    for finding in summary.findings:
        if finding.severity == WARNING:
            words = finding_words(finding)
            yield doc.text(*words, note=True, below=True, lead=WARNING.capitalize())


def where(summary: Summary) -> str:
    """``Where the time of a trial goes: Convolution2DFunction 52 %, framework 29 %, ...``."""
    whole = "layers' time" if summary.totals.framework is None else "time of a trial"
    named = [part for part in shares(summary) if part[1] >= _LEAST_SHARE][:_MOST_PARTS]
    if not named:
        return ""
    parts = ", ".join(f"{name} {format_percent(share)}" for name, share in named)
    rest = 1 - sum(share for _, share in named)
    more = f", all else {format_percent(rest)}" if rest >= _LEAST_SHARE else ""
    return f"Where the {whole} goes{on_gpu(summary)}: {parts}{more}."
