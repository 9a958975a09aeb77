"""Summary -> the answer at the top of a report: the time of a trial, its parts, the next step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from chainer_profile.advice.results import Advice
from chainer_profile.analyse.checks import ending_text
from chainer_profile.analyse.findings import NOTE, STEP, WARNING, Finding
from chainer_profile.analyse.program import ProgramTime, mean_of_trials, trial_count
from chainer_profile.analyse.summary import Summary
from chainer_profile.analyse.values import VALUES
from chainer_profile.basics.units import (
    format_count,
    format_duration,
    format_measured,
    format_percent,
    plural,
)
from chainer_profile.record.recording import INTERVAL, TIME_LIMIT
from chainer_profile.report import document as doc
from chainer_profile.report.content.advice import what_helped
from chainer_profile.report.content.pass_section import inside_sentences
from chainer_profile.report.rows import shares
from chainer_profile.report.text import missing_parts, on_gpu_suffix, printable, trial_parts

#: Most parts of a trial in a sentence, and the smallest share of one.
_MAX_PARTS, _MIN_SHARE = 3, 0.03
#: If mean and median differ by more than this fraction of the median, the answer explains it.
_FAR_MEAN = 0.2
_NOTHING = "All layers took less time than the clock can resolve, so this run shows nothing."


def answer(
    summary: Summary, advice: Advice | None = None, program: ProgramTime | None = None
) -> Iterator[doc.Text]:
    """The time of a trial, warnings, its largest parts, and the change that helped most."""
    yield doc.text(doc.strong(how_long(summary, program)))
    yield from doubts(summary)
    yield from ended_early(summary)
    yield from doc.below(filter(None, (largest_shares(summary), *inside_sentences(summary)[:1])))
    if helped := () if advice is None else what_helped(advice):
        yield doc.text("Next: ", *helped, below=True)


def first_doubts(summary: Summary, count: int) -> Iterator[doc.Text]:
    """The first ``count`` of :func:`doubts`; the last one ends with the number of omitted ones."""
    # Warnings come before missing parts.
    notes = sorted(doubts(summary), key=lambda note: not note.lead)
    first, more = notes[:count], len(notes) - count
    if more > 0:
        last = first[-1]
        first[-1] = replace(last, content=(*last.content, f" (--full: {more} more)"))
    yield from first


def ended_early(summary: Summary) -> Iterator[doc.Text]:
    """The requested limit that ended the run before its last trial, if one did."""
    if summary.recording.ended in (TIME_LIMIT, INTERVAL):
        yield doc.text(printable(ending_text(summary.recording)), below=True)


def steps(summary: Summary) -> Iterator[doc.Block]:
    """The steps to take, with their evidence."""
    findings = [finding for finding in merged(summary.findings) if finding.severity == STEP]
    if not float(summary.layers["mean_s"].sum()):
        yield doc.text(_NOTHING)
    yield from doc.listing(format_finding(finding, full=True) for finding in findings)


def notes(summary: Summary) -> Iterator[doc.Block]:
    """The notes on the run, without warnings, which are part of the answer."""
    findings = (finding for finding in summary.findings if finding.severity == NOTE)
    return doc.listing(format_finding(finding, full=True) for finding in findings)


def foldable_findings(summary: Summary) -> Iterator[doc.Block]:
    """Missing parts of the measurement, then warnings and notes as lines that open on a page."""
    yield from doc.below(missing_parts(summary.recording), note=True)
    for severity in (WARNING, NOTE):
        for finding in summary.findings:
            if finding.severity == severity:
                line = (doc.strong(severity.capitalize()), f" {finding.text}")
                more = [part for part in (finding.evidence, finding.to_do) if part]
                yield doc.Fold(line, list(map(doc.text, more)), severity == WARNING)


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Merge findings with the same advice and command into the first of them."""
    groups: dict[object, list[Finding]] = {}
    for finding in findings:
        key = (finding.advice, finding.command) if finding.command else id(finding)
        groups.setdefault(key, []).append(finding)
    return [
        replace(
            group[0],
            text=" ".join(finding.text for finding in group),
            evidence=" ".join(finding.evidence for finding in group if finding.evidence),
        )
        for group in groups.values()
    ]


def format_finding(finding: Finding, *, full: bool = False) -> doc.Inline:
    """Format a finding: its text, with ``full`` its evidence, then its advice and command."""
    parts = (finding.text, finding.evidence if full else "", finding.advice)
    sentences = printable(" ".join(filter(None, parts)))
    if not finding.command:
        return (sentences,)
    return (f"{sentences.removesuffix('.')}: ", doc.code(finding.command))


def how_long(summary: Summary, program: ProgramTime | None = None) -> str:
    """``A forward pass takes 4.70 ms (median of 1,000 unprofiled trials, 95 % interval ...)``.

    The time of a program's iteration is its mean, as in the table of the program's parts.
    """
    recording, trial = summary.recording, summary.totals.trial
    parts = trial_parts(recording)
    engine = recording.settings.engine
    noun = "forward and backward pass" if "backward" in parts else "forward pass"
    if parts[-1].startswith("update"):
        noun = "training step"
    under = f" under {printable(engine)}" if engine else ""
    if trial is None:
        return f"Only the functions of a {noun}{under} were timed, not the whole."
    median, ends = format_measured(trial.median_s, trial.ci_low_s, trial.ci_high_s)
    interval = f"95 % interval {ends}" if ends else "no interval"
    if recording.of_program:
        return _mean_of_iterations(summary, program, noun, f"median {median}, {interval}")
    kind = "unprofiled trial" if summary.totals.clean else "profiled trial"
    return f"A {noun}{under} takes {median} (median of {plural(trial.count, kind)}, {interval})."


def _mean_of_iterations(
    summary: Summary, program: ProgramTime | None, noun: str, median_text: str
) -> str:
    """A sentence on the mean time of a program's iterations.

    Adds their range if the mean is far from the median. ``median_text`` has the median's interval.
    """
    recording, trial = summary.recording, summary.totals.trial
    assert trial is not None
    mean_s, count, all_count = trial.mean_s, trial.count, 0
    if program is not None:
        mean_s, count = mean_of_trials(program, recording) or (mean_s, count)
        all_count = trial_count(program, recording)
    unit = "iteration" if noun == "training step" else "call"
    trials = plural(count, unit)
    if count < all_count:
        trials = f"{format_count(count)} of {plural(all_count, unit)}"
    sentence = f"A {noun} takes {format_duration(mean_s)} (mean of {trials}; {median_text})."
    if abs(mean_s - trial.median_s) <= _FAR_MEAN * trial.median_s:
        return sentence
    ends = f"{format_duration(trial.min_s)} to {format_duration(trial.max_s)}"
    only = "" if count < all_count else "; only the mean adds up to the program"
    return f"{sentence} They take {ends}{only}."


def doubts(summary: Summary) -> Iterator[doc.Text]:
    """Reasons to doubt the result: missing parts of the measurement, and warnings."""
    yield from doc.below(missing_parts(summary.recording), note=True)
    yield from map(_warning, filter(lambda found: found.severity == WARNING, summary.findings))


def _warning(finding: Finding) -> doc.Text:
    return doc.text(*format_finding(finding), note=True, below=True, lead=WARNING.capitalize())


def warnings_of_values(summary: Summary) -> Iterator[doc.Text]:
    """The warnings about NaN, infinite and denormal numbers."""
    yield from map(_warning, filter(lambda found: found.code in VALUES, summary.findings))


def largest_shares(summary: Summary) -> str:
    """``Where the time of a trial goes: Convolution2DFunction 52 %, framework 29 %, ...``."""
    whole = "layers' time" if summary.totals.framework is None else "time of a trial"
    named = [part for part in shares(summary) if part[1] >= _MIN_SHARE][:_MAX_PARTS]
    if not named:
        return ""
    parts = ", ".join(f"{name} {format_percent(share)}" for name, share in named)
    rest = 1 - sum(share for _, share in named)
    more = f", all else {format_percent(rest)}" if rest >= _MIN_SHARE else ""
    return f"Where the {whole} goes{on_gpu_suffix(summary)}: {parts}{more}."
