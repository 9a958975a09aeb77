"""Summary -> the changes that may make a network faster, as findings; ``advise`` tries them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from chainer_profile.analyse.counted import TrialCounters, counters_by, trial_counters
from chainer_profile.analyse.findings import (
    FOLDER,
    STEP,
    Change,
    Finding,
    command_that_tries,
    gain_without,
    takes_options,
)
from chainer_profile.analyse.findings import Untried as Untried
from chainer_profile.analyse.grouping import OUTSIDE, majority_label
from chainer_profile.analyse.shares import part_of_whole, whole_time
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.units import (
    format_duration,
    format_nbytes,
    format_percent,
    format_shape,
    plural,
)
from chainer_profile.basics.words import BACKWARD, TYPED, profile_arguments
from chainer_profile.kernels.numpy_kernels import MAX_NUMBERS, MIN_WORDS
from chainer_profile.record.parts import Shape

#: Beginnings of the names of functions that accelerate() replaces.
_REPLACED: tuple[str, ...] = (
    *("Convolution", "Deconvolution", "BatchNormalization", "FixedBatchNormalization"),
    *("MaxPooling", "AveragePooling"),
)
_EMBEDDING = "EmbedID"
#: A change is a finding if it affects at least this fraction of a trial.
MUCH = 0.05
#: glibc gives arrays of this size and more back to the kernel.
_LARGE_NBYTES = 128 << 10
#: The factor of a larger batch that is tried, and the largest batch.
LARGER, LARGEST = 4, 128
#: Advice to measure a gain by a command.
MEASURE = "To measure the gain here, run."

Proposals = Iterator[Finding | Untried]


def proposed(summary: Summary) -> Proposals:
    """Changes of a network on a CPU: findings where the profile gives a reason, else untried."""
    for propose in (kernels, engines, kept_memory, larger_batch, data_type):
        yield from propose(summary)


def _advise_command(summary: Summary, otherwise: str) -> str:
    """The ``advise`` command if our command line made the run, or else ``otherwise``."""
    ours = profile_arguments(summary.recording.settings.command) is not None
    return f"{TYPED} advise {FOLDER}" if ours else otherwise


def _gain_at_limits(summary: Summary) -> float | None:
    """How many times as fast a trial is if all layers reach the machine's limits; None if unknown.

    Layers without a known limit keep their time, and framework time vanishes.
    """
    if summary.recording.limits is None:
        return None
    layers = summary.layers
    min_s = layers["bound_s"].astype(float).fillna(layers["mean_s"]).sum()
    return whole_time(summary).seconds / min_s if min_s else None


def _share(summary: Summary, beginnings: tuple[str, ...]) -> float:
    """The fraction of a trial in functions with names that begin with one of these."""
    functions = summary.functions
    selected = functions.index.str.startswith(beginnings)
    return part_of_whole(summary, functions["total_s"][selected].sum())


def embedding_gradients(summary: Summary, selects: Callable[[Shape], bool]) -> pd.DataFrame:
    """The backward rows of EmbedID for which ``selects`` is true of the gradients' shape.

    The shape of the gradients ends with the length of a word's vector.
    """
    layers = summary.layers
    layers = layers[(layers["phase"] == BACKWARD) & layers["function"].str.startswith(_EMBEDDING)]
    fits = [any(map(selects, shapes[:1])) for shapes in layers["input_shapes"]]
    return layers.loc[np.array(fits, bool)]


def has_few_words(shape: Shape) -> bool:
    """Whether gradients have so few words that filling an array of W's size takes most time."""
    return math.prod(shape[:-1]) < MIN_WORDS


def _has_many_words(shape: Shape) -> bool:
    """Whether ``accelerate()`` adds up gradients of this shape many words at a time."""
    return not has_few_words(shape) and shape[-1] <= MAX_NUMBERS


def _largest_gain(summary: Summary, share: float) -> float | None:
    """Upper limit of the gain of a change that shortens this fraction of a trial; None if unknown.

    The fraction can vanish at best, and layers cannot exceed the machine's limits.
    """
    bounds = [gain_without(share)]
    if (limit := _gain_at_limits(summary)) is not None:
        bounds.append(max(1.0, limit))
    return min((bound for bound in bounds if bound is not None), default=None)


def kernels(summary: Summary) -> Proposals:
    """``accelerate()``, if the functions that it replaces take much of the time."""
    settings = summary.recording.settings
    numpy, torch = Change(kernels="numpy"), Change(kernels="torch")
    if settings.fast:
        return  # it has them
    if settings.dtype != "float32":
        for change in (torch, numpy):
            yield Untried(change.name, f"has no kernels for {settings.dtype}")
        return
    changes: tuple[Change, ...] = (torch, numpy)
    gradients = embedding_gradients(summary, _has_many_words)
    embedding = part_of_whole(summary, gradients["mean_s"].sum())
    share = _share(summary, _REPLACED) + embedding
    if share < MUCH:
        why = "the functions that it replaces take {} of a trial"
        for change in (numpy, torch):
            yield Untried(change.name, why.format(format_percent(share)))
        return
    name, whole = changes[-1].name, whole_time(summary).name
    text = f"The functions that {name} replaces take {format_percent(share)} of the {whole}."
    if embedding > share / 2:
        text = (
            f"EmbedID's backward takes {format_percent(embedding)} of the {whole}: Chainer adds "
            "the gradient of each word to its row by itself, in Python. "
            f"{name} adds many at a time."
        )
    advice, command = _use_of_kernels(summary, name)
    yield Finding(
        "kernels",
        STEP,
        text,
        advice,
        command=command,
        gain=_largest_gain(summary, share),
        changes=changes,
    )


def _use_of_kernels(summary: Summary, name: str) -> tuple[str, str]:
    """Advice and command (or code) that measure ``accelerate()``, or else use it."""
    typed = summary.recording.settings.command
    if tries := command_that_tries(summary.recording):
        return "To measure the gain, run.", tries
    if profile_arguments(typed) is not None:
        return MEASURE, _advise_command(summary, "")
    if summary.recording.of_program:
        advice = (
            "To replace them, write this at the beginning; a second run and compare show the gain."
        )
        return advice, f"import chainer_profile; chainer_profile.{name}"
    return "To replace them, write.", f"chainer_profile.{name}"


def engines(summary: Summary) -> Proposals:
    """An inference engine in place of Chainer."""
    settings = summary.recording.settings
    for hinders, why in (
        (settings.phase != "forward" or settings.train_mode, "they only do inference"),
        (settings.with_graph, "the network takes gradients in its forward pass, which they do not"),
        (settings.dtype != "float32", f"they compute in float32, and the run in {settings.dtype}"),
    ):
        if hinders:
            yield Untried("engines", why)
            return
    factor, (whole_s, whole) = _gain_at_limits(summary), whole_time(summary)
    evidence = ""
    if factor is not None and factor >= 1:
        evidence = (
            "At this machine's limits of arithmetic and memory, the layers would take "
            f"{format_duration(whole_s / factor)}, {format_percent(1 / factor)} of the {whole}."
        )
    shape = format_shape(settings.input_shape[1:]) if settings.input_shape[1:] else "SHAPE"
    batch = f" -b {settings.batchsize}" if settings.batchsize > 1 else ""
    own = f"{TYPED} engines --model FILE.py:NETWORK --input-shape {shape}{batch}"
    yield Finding(
        "engines",
        STEP,
        "Inference engines build no graph and check no types, and fold batch normalisation into "
        "convolutions.",
        MEASURE,
        evidence,
        command=_advise_command(summary, own),
        gain=None if factor is None else max(1.0, factor),
        changes=(Change(engine="onnxruntime"),),
    )


def kept_memory(summary: Summary) -> Proposals:
    """Freed memory kept in the process; untried if glibc keeps the memory of all layers anyway."""
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
    up_to = "" if peak is None else f", up to {format_nbytes(peak)} a layer"
    text = f"glibc returns large arrays to the kernel and requests them again{up_to}."
    faults, gain = "" if counted is None else _fault_text(summary.layers, counted), None
    if counted is not None and faults and counted.system_s > 2 * counted.system_error_s:
        gain = gain_without(counted.system_share)
        text = (
            f"The kernel uses {format_percent(counted.system_share)} of a trial's CPU time "
            f"({format_duration(counted.system_s)}), partly to allocate memory."
        )
    else:
        faults = ""
    tries = command_that_tries(recording)
    advice, command = "To keep the memory in the process, write.", "chainer_profile.accelerate()"
    measure = "To measure the gain of keeping memory in the process, "
    if takes_options(settings):
        advice, command = f"{measure}add.", "--keep-memory"
    elif tries:
        advice, command = f"{measure}run.", tries
    yield Finding("page-faults", STEP, text, advice, faults, command, gain=gain, changes=(change,))


def _fault_text(layers: pd.DataFrame, trial: TrialCounters) -> str:
    """A sentence on a trial's page faults: number, time, main function. Empty without any."""
    if not trial.page_faults >= 1:
        return ""
    text = f"A trial has {plural(trial.page_faults, 'page fault')}"
    at_least_s = min(trial.page_faults * trial.fault_s, trial.system_s)
    if not math.isnan(at_least_s):
        text += f", which take at least {format_duration(at_least_s)}"
    faults = counters_by(layers, "function")["page_faults"]
    function = majority_label(faults, trial.page_faults)
    if function is not None:
        part = format_percent(faults.max() / trial.page_faults)
        text += f"; {part} of them are in {function}"
    return f"{text}."


def larger_batch(summary: Summary) -> Proposals:
    """A larger batch, which spreads the framework's time over more inputs."""
    settings = summary.recording.settings
    larger = min(LARGER * settings.batchsize, LARGEST)
    share, framework = summary.totals.framework_share or 0.0, summary.totals.framework
    if larger <= settings.batchsize:
        yield Untried("a larger batch", f"{settings.batchsize} inputs are many already")
        return
    if framework is None or share < MUCH:
        yield Untried(
            "a larger batch",
            f"only {format_percent(share)} of a trial is spent between the functions, and "
            "a larger batch saves no more than that",
        )
        return
    trains = BACKWARD in set(summary.layers["phase"])
    per_call_s = framework.mean_s / int(summary.layers["calls"].sum())
    yield Finding(
        "batch",
        STEP,
        f"{format_percent(share)} of the trial is spent between the functions (framework). A "
        f"larger batch spreads this over more inputs{', but changes the training' * trains}.",
        evidence=f"The framework takes {format_duration(per_call_s)} a call{_main_phase(summary)}.",
        gain=gain_without(share),
        changes=(Change(batchsize=larger),),
    )


def _main_phase(summary: Summary) -> str:
    """A clause that names the phase with the most framework time; empty if it is unknown."""
    by_phase, framework = summary.phases["framework_s"], summary.totals.framework
    if len(by_phase.drop(OUTSIDE, errors="ignore")) < 2 or framework is None:
        return ""
    phase = by_phase.idxmax()
    part = format_percent(by_phase.max() / framework.mean_s)
    return "" if phase == OUTSIDE else f"; {part} of it in {phase}"


def data_type(summary: Summary) -> Proposals:
    """float32 in place of float16."""
    settings, change = summary.recording.settings, Change(dtype="float32")
    if settings.dtype == "float32":
        yield Untried("float16", "NumPy computes it in software, slower than float32")
        return
    command = "--dtype float32" if takes_options(settings) else "chainer.config.dtype = 'float32'"
    text = f"NumPy computes {settings.dtype} in software."
    yield Finding("dtype", STEP, text, "Use float32.", command=command, changes=(change,))
