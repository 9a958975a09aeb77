"""Summary -> the changes that may make a network faster, as findings; ``advise`` tries them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from chainer_profile.analyse.counted import TrialCounters, counters_by, trial_counters
from chainer_profile.analyse.findings import (
    FOLDER,
    Change,
    Finding,
    gain_without,
    takes_options,
)
from chainer_profile.analyse.findings import Untried as Untried
from chainer_profile.analyse.grouping import OUTSIDE, place_of_most
from chainer_profile.analyse.rules import Facts, Rules, part_of_whole, whole
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.sentences import fill
from chainer_profile.basics.units import format_nbytes, format_percent
from chainer_profile.basics.words import BACKWARD, TYPED, is_run, same_command_with_try
from chainer_profile.kernels.numpy_kernels import FEWEST_WORDS, MOST_NUMBERS
from chainer_profile.record.parts import Shape

#: How the names begin of functions that accelerate() replaces; and of those by PyTorch alone.
_REPLACED: tuple[str, ...] = (
    *("Convolution", "Deconvolution", "BatchNormalization", "FixedBatchNormalization"),
    *("MaxPooling", "AveragePooling"),
)
_EMBEDDING = "EmbedID"
_BY_TORCH = ("ReLU",)
#: Part of a trial from which a change of it is worth a finding.
MUCH = 0.05
#: glibc gives arrays of this size and more back to the kernel.
_LARGE_NBYTES = 128 << 10
#: So many times the batch is tried, up to this one.
LARGER, LARGEST = 4, 128
#: What to do to measure a gain, by a run or by a command.
_MEASURE = "To measure the gain here, run."

PROPOSALS = Rules()


def proposed(summary: Summary) -> Iterator[Finding | Untried]:
    """The changes of a network on the CPU that its profile gives a reason for, and the others."""
    return PROPOSALS.findings(summary)


def _command(summary: Summary, otherwise: str) -> str:
    """The command that tries a change of a run of ours; another one of other runs."""
    ours = is_run(summary.recording.settings.command)
    return f"{TYPED} advise {FOLDER}" if ours else otherwise


def _at_limits(summary: Summary) -> float | None:
    """The time of a trial over that of its layers at the machine's limits; None if not known."""
    if summary.recording.limits is None:
        return None
    layers = summary.layers
    least_s = layers["bound_s"].astype(float).fillna(layers["mean_s"]).sum()
    return whole(summary)[0] / least_s if least_s else None


def _share(summary: Summary, names: tuple[str, ...]) -> float:
    """The part of a trial that functions of these names take."""
    functions = summary.functions
    return part_of_whole(summary, functions["total_s"][functions.index.str.startswith(names)].sum())


def embeddings(summary: Summary, of_words: Callable[[Shape], bool]) -> pd.DataFrame:
    """The rows in which embeddings get gradients of words, of such shapes."""
    layers = summary.layers
    layers = layers[(layers["phase"] == BACKWARD) & layers["function"].str.startswith(_EMBEDDING)]
    fits = [any(map(of_words, shapes[:1])) for shapes in layers["input_shapes"]]
    return layers.loc[np.array(fits, bool)]


def are_few(shape: Shape) -> bool:
    """Whether these are so few words that the array for all of them takes most of the time."""
    return math.prod(shape[:-1]) < FEWEST_WORDS


def _are_many(shape: Shape) -> bool:
    """Whether gradients of this shape are sorted by words."""
    return not are_few(shape) and shape[-1] <= MOST_NUMBERS


def _at_most(summary: Summary, share: float) -> float | None:
    """How many times as fast a trial is at most without a part of it, and at machine's limits."""
    bounds = [gain_without(share)]
    if (limit := _at_limits(summary)) is not None:
        bounds.append(max(1.0, limit))
    return min((bound for bound in bounds if bound is not None), default=None)


@PROPOSALS.step(
    {
        "-embedding": "The functions that {name} replaces take {share:%} of the {whole}.",
        "embedding": "EmbedID's backward takes {embedding:%} of the {whole}: Chainer adds the "
        "gradient of each word to its row by itself, in Python. {name} adds many at a time.",
    },
    {
        "ours": _MEASURE,
        "tries": "To measure the gain, run.",
        "-ours -tries -program": "To replace them, write.",
        "-ours -tries program": "To replace them, write this at the beginning; a second run and "
        "compare show the gain.",
    },
)
def _kernels(summary: Summary) -> Iterator[Facts | Untried]:
    settings, program = summary.recording.settings, summary.recording.of_program
    numpy, torch = Change(kernels="numpy"), Change(kernels="torch")
    if settings.fast:
        return  # it has them
    if settings.dtype != "float32":
        for change in (torch, numpy):
            yield Untried(change.name, f"has no kernels for {settings.dtype}")
        return
    changes: tuple[Change, ...] = (torch, numpy)
    # Where embeddings get gradients that accelerate() adds at once.
    embedding = part_of_whole(summary, embeddings(summary, _are_many)["mean_s"].sum())
    share = _share(summary, _REPLACED) + embedding
    if share < MUCH:
        why = "the functions that it replaces take {} of a trial"
        yield Untried(numpy.name, why.format(format_percent(share)))
        changes, share = (torch,), _share(summary, _REPLACED + _BY_TORCH) + embedding
        if share < MUCH:
            yield Untried(torch.name, why.format(format_percent(share)))
            return
    name, tries = changes[-1].name, same_command_with_try(settings.command)
    code = f"{'import chainer_profile; ' if program else ''}chainer_profile.{name}"
    yield {
        "name": name,
        "program": program,
        "share": share,
        "embedding": embedding if embedding > share / 2 else 0.0,
        "ours": is_run(settings.command),
        "tries": tries,
        "command": tries or _command(summary, code),
        "gain": _at_most(summary, share),
        "changes": changes,
    }


@PROPOSALS.step(
    "Inference engines build no graph and check no types.",
    _MEASURE,
    evidence={
        "limit": "At this machine's limits of arithmetic and memory, the layers would take "
        "{least_s:s}, {limit:%} of the {whole}."
    },
)
def _engines(summary: Summary) -> Iterator[Facts | Untried]:
    settings = summary.recording.settings
    for hinders, why in (
        (settings.phase != "forward" or settings.train_mode, "they only do inference"),
        (settings.with_graph, "the network takes gradients in its forward pass, which they do not"),
        (settings.dtype != "float32", f"they compute in float32, and the run in {settings.dtype}"),
    ):
        if hinders:
            yield Untried("engines", why)
            return
    facts: Facts = {"command": _command(summary, f"{TYPED} engines --model FILE.py:NETWORK")}
    factor, (whole_s, _) = _at_limits(summary), whole(summary)
    if factor is not None:
        facts["gain"] = max(1.0, factor)
        if factor >= 1:
            facts |= {"limit": 1 / factor, "least_s": whole_s / factor}
    yield facts | {"changes": (Change(engine="onnxruntime"),)}


@PROPOSALS.step(
    {
        "counted": "The kernel uses {counted.system_share:%} of a trial's CPU time "
        "({counted.system_s:s}), partly to allocate memory.",
        "-counted": "glibc returns large arrays to the kernel and requests them again{up_to}.",
    },
    {
        "option": "To measure the gain of keeping memory in the process, add.",
        "tries": "To measure the gain of keeping memory in the process, run.",
        "-option -tries": "To keep the memory in the process, write.",
    },
    evidence="{faults}",
)
def _page_faults(summary: Summary) -> Iterator[Facts | Untried]:
    recording = summary.recording
    settings, memory = recording.settings, recording.memory
    change, counted = Change(keep_memory=True), trial_counters(recording)
    if settings.keep_memory or settings.fast:
        return
    peak = max(memory.peak_nbytes, default=0) if memory is not None else None
    if peak is not None and peak < _LARGE_NBYTES:
        yield Untried(
            change.name,
            f"no layer takes {format_nbytes(_LARGE_NBYTES)} or more, at which glibc "
            "returns memory to the kernel",
        )
        return
    option, tries = takes_options(settings), same_command_with_try(settings.command)
    facts: Facts = {
        "changes": (change,),
        "option": option,
        "tries": tries,
        "command": "--keep-memory" if option else tries or "chainer_profile.accelerate()",
        "up_to": "" if peak is None else f", up to {format_nbytes(peak)} a layer",
        "faults": "",
    }
    faults = "" if counted is None else _faults(summary.layers, counted)
    if counted is not None and faults and counted.system_s > 2 * counted.system_error_s:
        gain = gain_without(counted.system_share)
        facts |= {"counted": counted, "faults": faults, "gain": gain}
    yield facts


def _faults(layers: pd.DataFrame, trial: TrialCounters) -> str:
    """How many page faults a trial has, their time, and where most of them are."""
    if not trial.page_faults >= 1:
        return ""
    sentence = "A trial has {count:page fault}"
    at_least_s = min(trial.page_faults * trial.fault_s, trial.system_s)
    if not math.isnan(at_least_s):
        sentence += ", which take at least {at_least_s:s}"
    faults = counters_by(layers, "function")["page_faults"]
    place = place_of_most(faults, trial.page_faults)
    if place is not None:
        sentence += "; {part:%} of them are in {place}"
    return fill(
        f"{sentence}.",
        count=round(trial.page_faults),
        at_least_s=at_least_s,
        part=faults.max() / trial.page_faults,
        place=place,
    )


@PROPOSALS.step(
    {
        "": "{totals.framework_share:%} of the trial is spent between the functions (framework).",
        "-trains": "A larger batch spreads this over more inputs.",
        "trains": "A larger batch spreads this over more inputs, but changes the training.",
    },
    evidence="The framework takes {per_call_s:s} a call{mostly}.",
)
def _batch(summary: Summary) -> Iterator[Facts | Untried]:
    settings = summary.recording.settings
    larger = min(LARGER * settings.batchsize, LARGEST)
    framework, between = summary.totals.framework_share or 0.0, summary.totals.framework
    if larger <= settings.batchsize:
        yield Untried("a larger batch", f"{settings.batchsize} inputs are many already")
    elif between is None or framework < MUCH:
        yield Untried(
            "a larger batch",
            f"only {format_percent(framework)} of a trial is spent between the functions, and "
            "a larger batch saves no more than that",
        )
    else:
        yield {
            "per_call_s": between.mean_s / int(summary.layers["calls"].sum()),
            "mostly": _mostly_in(summary),
            "trains": BACKWARD in set(summary.layers["phase"]),
            "gain": gain_without(framework),
            "changes": (Change(batchsize=larger),),
        }


def _mostly_in(summary: Summary) -> str:
    """The phase with the most framework time, where it is known by phase."""
    by_phase, framework = summary.phases["framework_s"], summary.totals.framework
    if len(by_phase.drop(OUTSIDE, errors="ignore")) < 2 or framework is None:
        return ""
    place = by_phase.idxmax()
    part = format_percent(by_phase.max() / framework.mean_s)
    return "" if place == OUTSIDE else f"; {part} of it in {place}"


@PROPOSALS.step("NumPy computes {run.settings.dtype} in software.", "Try float32.")
def _dtype(summary: Summary) -> Iterator[Facts | Untried]:
    if summary.recording.settings.dtype == "float32":
        yield Untried("float16", "NumPy computes it in software, slower than float32")
    else:
        yield {"changes": (Change(dtype="float32"),)}
