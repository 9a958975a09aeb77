"""Summary -> the changes that may make a network faster, as findings; ``advise`` tries them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from chainer_profile.analyse.counted import TrialCounters, counters_by, trial_counters
from chainer_profile.analyse.findings import (
    FOLDER,
    Change,
    Finding,
    gain_without,
    step,
    takes_options,
)
from chainer_profile.analyse.grouping import OUTSIDE, place_of_most
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.units import format_duration, format_nbytes, format_percent, plural
from chainer_profile.basics.words import BACKWARD, TYPED, is_run
from chainer_profile.kernels.numpy_kernels import FEWEST_WORDS, MOST_NUMBERS
from chainer_profile.record.parts import Shape

#: Functions that accelerate() replaces, by what their names begin with; and those of PyTorch alone.
_REPLACED: tuple[str, ...] = (
    *("Convolution", "Deconvolution", "BatchNormalization", "FixedBatchNormalization"),
    *("MaxPooling", "AveragePooling"),
)
_EMBEDDING = "EmbedID"
_BY_TORCH = ("ReLU",)
#: Part of a trial from which a change of it can bring what is worth a word.
MUCH = 0.05
#: glibc gives arrays of this size and more back to the kernel.
_LARGE_NBYTES = 128 << 10
#: So many times the batch is tried, up to this one.
LARGER, LARGEST = 4, 128


@dataclass(frozen=True)
class Untried:
    """A change that was not tried, and why."""

    name: str
    why: str


def whole(summary: Summary) -> tuple[float, str]:
    """The time that a change is held against, and what it is."""
    profiled = summary.totals.profiled
    if profiled is not None and profiled.mean_s:
        iterates = summary.recording.of_program and summary.several_phases
        return profiled.mean_s, "iteration" if iterates else "trial"
    return float(summary.layers["mean_s"].sum()), "layers' time"


def proposed(summary: Summary) -> Iterator[Finding | Untried]:
    """The changes of a network on the CPU that its profile gives a reason for, and the others."""
    for rule in (_kernels, _engines, _memory, _batch, _dtype):
        yield from rule(summary)


def _measure(summary: Summary, otherwise: tuple[str, str]) -> tuple[str, str]:
    """What to do to see what a change brings: advice and command."""
    if is_run(summary.recording.settings.command):
        return "To measure the gain here, run.", f"{TYPED} advise {FOLDER}"
    return otherwise


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
    ours = functions["total_s"][[str(name).startswith(names) for name in functions.index]]
    whole_s, _ = whole(summary)
    return float(ours.sum()) / whole_s if whole_s else 0.0


def embeddings(summary: Summary, of_words: Callable[[Shape], bool]) -> pd.DataFrame:
    """The rows in which embeddings get gradients of words, of such shapes."""
    layers = summary.layers
    layers = layers[(layers["phase"] == BACKWARD) & layers["function"].str.startswith(_EMBEDDING)]
    fits = [any(map(of_words, shapes[:1])) for shapes in layers["input_shapes"]]
    return layers.loc[np.array(fits, bool)]


def are_few(shape: Shape) -> bool:
    """Whether these are so few words that the array for all of them takes most of the time."""
    return math.prod(shape[:-1]) < FEWEST_WORDS


def _embedding_share(summary: Summary) -> float:
    """The part of a trial in which embeddings get gradients that accelerate() adds at once."""
    rows, (whole_s, _) = embeddings(summary, _are_many), whole(summary)
    return float(rows["mean_s"].sum()) / whole_s if whole_s else 0.0


def _are_many(shape: Shape) -> bool:
    """Whether gradients of this shape are sorted by words."""
    return not are_few(shape) and shape[-1] <= MOST_NUMBERS


def _at_most(summary: Summary, share: float) -> float | None:
    """How many times as fast a trial is at most without a part of it, and at machine's limits."""
    limit, without = _at_limits(summary), gain_without(share)
    if limit is None or without is None:
        return without if limit is None else max(1.0, limit)
    return min(without, max(1.0, limit))


def _kernels(summary: Summary) -> Iterator[Finding | Untried]:
    settings = summary.recording.settings
    numpy, torch = Change(kernels="numpy"), Change(kernels="torch")
    if settings.fast:
        return  # it has them
    if settings.dtype != "float32":
        for change in (torch, numpy):
            yield Untried(change.name, f"has no kernels for {settings.dtype}")
        return
    changes: tuple[Change, ...] = (torch, numpy)
    embedding = _embedding_share(summary)
    of = _share(summary, _REPLACED) + embedding
    if of < MUCH:
        why = "the functions that it replaces take {} of a trial"
        yield Untried(numpy.name, why.format(format_percent(of)))
        changes, of = (torch,), _share(summary, _REPLACED + _BY_TORCH) + embedding
        if of < MUCH:
            yield Untried(torch.name, why.format(format_percent(of)))
            return
    code = f"chainer_profile.{changes[-1].name}"
    otherwise = "To replace them, write.", code
    if summary.recording.of_program:
        otherwise = (
            "To replace them, write this at the beginning; a second run and compare show the gain.",
            f"import chainer_profile; {code}",
        )
    advice, command = _measure(summary, otherwise)
    name, what = changes[-1].name, whole(summary)[1]
    text = f"The functions that {name} replaces take {format_percent(of)} of the {what}."
    if embedding > of / 2:
        text = (
            f"EmbedID's backward takes {format_percent(embedding)} of the {what}: Chainer adds the "
            f"gradient of each word to its row by itself, in Python. {name} adds many at a time."
        )
    yield step(
        "kernels",
        text,
        advice,
        command=command,
        gain=_at_most(summary, of),
        changes=changes,
    )


def _engines(summary: Summary) -> Iterator[Finding | Untried]:
    settings = summary.recording.settings
    for hinders, why in (
        (settings.phase != "forward" or settings.train_mode, "they only do inference"),
        (settings.with_graph, "the network takes gradients in its forward pass, which they do not"),
        (settings.dtype != "float32", f"they compute in float32, and the run in {settings.dtype}"),
    ):
        if hinders:
            yield Untried("engines", why)
            return
    limit = _at_limits(summary)
    evidence, (whole_s, what) = "", whole(summary)
    if limit is not None and limit >= 1:
        evidence = (
            "At this machine's limits of arithmetic and memory, the layers would take "
            f"{format_duration(whole_s / limit)}, {format_percent(1 / limit)} of the {what}."
        )
    engines = f"{TYPED} engines --model FILE.py:NETWORK"
    advice, command = _measure(summary, ("To measure the gain here, run.", engines))
    text = "Inference engines build no graph and check no types"
    gain = None if limit is None else max(1.0, limit)
    changes = (Change(engine="onnxruntime"),)
    yield step("engines", f"{text}.", advice, evidence, command=command, gain=gain, changes=changes)


def _memory(summary: Summary) -> Iterator[Finding | Untried]:
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
    text = "glibc returns large arrays to the kernel and requests them again"
    gain, evidence = None, ""
    faults = "" if counted is None else _faults(summary.layers, counted)
    if counted is not None and faults and counted.system_s > 2 * counted.system_error_s:
        share = counted.system_share
        text = (
            f"The kernel uses {format_percent(share)} of a trial's CPU time "
            f"({format_duration(counted.system_s)}), partly to allocate memory"
        )
        gain, evidence = gain_without(share), faults
    elif peak is not None:
        text += f", up to {format_nbytes(peak)} a layer"
    advice, command = "To keep the memory in the process, write.", "chainer_profile.accelerate()"
    if takes_options(settings):
        advice = "To measure the gain of keeping memory in the process, add."
        command = "--keep-memory"
    yield step(
        "page-faults", f"{text}.", advice, evidence, command=command, gain=gain, changes=(change,)
    )


def _faults(layers: pd.DataFrame, trial: TrialCounters) -> str:
    """How many page faults a trial has, what they take, and where most of them are."""
    if not trial.page_faults >= 1:
        return ""
    said = f"A trial has {plural(round(trial.page_faults), 'page fault')}"
    at_least_s = min(trial.page_faults * trial.fault_s, trial.system_s)
    if not math.isnan(at_least_s):
        said += f", which take at least {format_duration(at_least_s)}"
    by = counters_by(layers, "function")["page_faults"]
    place = place_of_most(by, trial.page_faults)
    if place is not None:
        said += f"; {format_percent(by[place] / trial.page_faults)} of them are in {place}"
    return f"{said}."


def _batch(summary: Summary) -> Iterator[Finding | Untried]:
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
        per_call = format_duration(between.mean_s / int(summary.layers["calls"].sum()))
        trains = BACKWARD in set(summary.layers["phase"])
        yield step(
            "batch",
            f"{format_percent(framework)} of the trial is spent between the functions "
            "(framework). A larger batch spreads this over more "
            f"inputs{', but changes the training' if trains else ''}.",
            evidence=f"The framework takes {per_call} a call{_mostly_in(summary)}.",
            gain=gain_without(framework),
            changes=(Change(batchsize=larger),),
        )


def _mostly_in(summary: Summary) -> str:
    """The phase with the most framework time, where it is known by phase."""
    by_phase, framework = summary.phases["framework_s"], summary.totals.framework
    if len(by_phase.drop(OUTSIDE, errors="ignore")) < 2 or framework is None:
        return ""
    place = by_phase.idxmax()
    part = format_percent(by_phase.max() / framework.mean_s)
    return "" if place == OUTSIDE else f"; {part} of it in {place}"


def _dtype(summary: Summary) -> Iterator[Finding | Untried]:
    dtype = summary.recording.settings.dtype
    if dtype == "float32":
        yield Untried("float16", "NumPy computes it in software, slower than float32")
    else:
        changes = (Change(dtype="float32"),)
        text = f"NumPy computes {dtype} in software."
        yield step("dtype", text, "Try float32.", changes=changes)
