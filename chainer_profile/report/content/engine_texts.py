"""Sentences about a run of engines: the answer, warnings, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from chainer_profile.analyse.unsteady import busy_warning
from chainer_profile.basics.describe import NS
from chainer_profile.basics.units import (
    format_duration,
    format_factor,
    format_percent,
    format_scientific,
    format_significant,
    plural,
)
from chainer_profile.basics.words import export_command_of
from chainer_profile.engines.catalogue import BASELINE, FAST, provider_of
from chainer_profile.engines.results import EngineResult, EnginesRun, speedup
from chainer_profile.record.recording import COMPLETE, Recording
from chainer_profile.report import text
from chainer_profile.report.content.engine_table import (
    crowded,
    node_times,
    speedups_over_chainer,
)
from chainer_profile.report.document import Inline, code

#: An engine's own clock is mentioned if it adds this fraction to a trial.
_MIN_ADDED_SHARE = 0.05


def title(run: EnginesRun) -> str:
    """The network and the number of engines: ``resnet20 under 3 engines``."""
    return f"{text.model_name(run.settings)} under {plural(len(run.measured), 'engine')}"


def how_it_ran(run: EnginesRun) -> str:
    """The input, threads and trials, in one line."""
    settings = run.settings
    threads = "" if settings.threads is None else f", {plural(settings.threads, 'thread')}"
    trials = plural(settings.trials, "trial")
    return f"{text.settings_text(settings)}{threads}; {trials} of each, in turn"


def verdict(run: EnginesRun) -> str:
    """The answer: ``onnxruntime is 11x as fast as chainer: 0.43 ms a trial instead of 4.7 ms.``"""
    chainer = run.baseline
    if chainer is None or chainer.statistics is None:
        return f"{plural(len(run.measured), 'engine')} ran, and Chainer did not."
    before, speedups = format_duration(chainer.statistics.median_s), speedups_over_chainer(run)
    if not speedups:
        did = "gave right outputs" if len(run.measured) > 1 else "ran"
        return f"Only {chainer.label} {did}: {before} a trial."
    best, gain = next((pair for pair in speedups if pair[1].is_faster), (None, None))
    if best is None or gain is None or best.statistics is None:
        return f"No engine is significantly faster than {chainer.label}: {before} a trial."
    factor, after = format_factor(gain.factor), format_duration(best.statistics.median_s)
    if crowded(run):  # the medians of all trials may contradict the factor, which is by rounds
        return (
            f"{best.label} was {factor} as fast as {chainer.label}, but other programs kept the "
            "cores busy; the speed-up without them is unknown."
        )
    interval = text.interval_text(gain.low, gain.high, format_factor)
    in_brackets = f" ({interval})" if interval else ""
    return (
        f"{best.label} is {factor} as fast as {chainer.label}{in_brackets}: {after} a trial "
        f"instead of {before}."
    )


def warnings(run: EnginesRun) -> Iterator[str]:
    """A sentence for each reason to doubt the times."""
    if run.ended != COMPLETE:
        trials = text.ends_text([len(engine.clean_ns) for engine in run.measured] or [0])
        yield f"The trials ended early ({run.ended}): {trials} of each engine."
    if warning := busy_warning(run.other_cpu, run.environment.usable_cores):
        yield warning


def other_line(engine: EngineResult) -> str:
    """Why an engine made no trials, and how to install it."""
    parts = (engine.label, engine.error or "made no trials", engine.install)
    return ": ".join(filter(None, parts))


def wrong_lines(run: EnginesRun) -> list[str]:
    """A line for each engine with wrong outputs: how far they differ, and from which layer on."""
    return [_wrong_line(engine) for engine in run.wrong]


def _wrong_line(engine: EngineResult) -> str:
    difference = engine.difference
    assert difference is not None
    where = f"; {engine.worst_layer}" if engine.worst_layer else ""
    return (
        f"{engine.label}: wrong outputs: they differ by up to "
        f"{format_scientific(difference.largest)} ({format_scientific(difference.relative)} of the "
        f"largest output, {format_significant(difference.magnitude)}), more than the tolerance of "
        f"{format_scientific(engine.tolerance)}{where}"
    )


def next_steps(run: EnginesRun) -> Iterator[Inline]:
    """Advise which engine to use, and how."""
    for engine in run.wrong:
        yield (f"Do not use {engine.label} as it is.",)
    speedups = [] if crowded(run) else speedups_over_chainer(run)
    faster = [engine for engine, gain in speedups if gain.is_faster]
    if not faster:
        if speedups:
            yield (f"Stay with {BASELINE}.",)
        return
    best = faster[0]
    yield (f"Use {best.label}.", *_how(best, run))
    for second in faster[1:2]:
        lead = speedup(best, second)
        if lead is not None and not lead.low > 1:
            yield (
                f"{second.label} is equally fast within the accuracy of these trials: use the "
                "one that suits you.",
                *_how(second, run),
            )
    for engine, gain in speedups:
        if engine.name == FAST != best.name and gain.factor > 1:
            yield (
                f"If you can install nothing but Chainer, {FAST} gives "
                f"{format_factor(gain.factor)}.",
                *_how(engine, run),
            )


def _how(engine: EngineResult, run: EnginesRun) -> Inline:
    """How to run a network under an engine."""
    if engine.name == FAST:
        call = code("with chainer_profile.accelerate():")
        return (" In Python, call the network within ", call, ".")
    provider = provider_of(engine.name)
    if not provider and engine.name != "onnxruntime":
        return ()
    command = code(text.printable(export_command_of(run.settings.command)))
    to_write = (" To write the ONNX file that it runs, run: ", command)
    opened = f'. Open it with InferenceSession("net.onnx", providers=["{provider}"]).'
    return (*to_write, opened) if provider else to_write


def nodes_text(run: EnginesRun, recording: Recording, chainer: Recording | None) -> str:
    """An engine's nodes: ``66 layers became 27 nodes: 5.421 ms -> 0.512 ms, and ...``.

    Args:
        run: The run.
        recording: The recording of the engine.
        chainer: The recording of Chainer; None if Chainer did not run.
    """
    times = node_times(run, recording)
    nodes, nodes_took = plural(times.nodes, "node"), format_duration(times.nodes_s)
    between = format_duration(times.between_s)
    if times.gone is None:
        words = (
            f"{nodes}, {nodes_took}, and {between} between them; they do not say which layers they "
            "compute"
        )
    else:
        gone = f" ({plural(times.gone, 'layer')} without a node)" if times.gone else ""
        if chainer is not None:
            layers_s = float(chainer.self_ns.sum(axis=1).mean()) * NS
            nodes_took = f"{format_duration(layers_s)} -> {nodes_took}"
        words = (
            f"{plural(run.n_layers, 'layer')} became {nodes}{gone}: {nodes_took}, and {between} "
            "between the nodes"
        )
    added = _added_by_clock(recording)
    if added >= _MIN_ADDED_SHARE:
        words += f"; its own clock adds {format_percent(added)} to a trial"
    return words


def _added_by_clock(recording: Recording) -> float:
    """The fraction that timing the nodes adds to a trial; 0 if it is unknown."""
    trials_ns, unprofiled_ns = recording.trial_ns, recording.clean_ns
    if trials_ns is None or not len(trials_ns) or not len(unprofiled_ns):
        return 0.0
    return float(np.median(trials_ns) / np.median(unprofiled_ns)) - 1
