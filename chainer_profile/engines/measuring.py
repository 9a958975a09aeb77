"""Measures a network by several engines: runs their race, and makes a recording of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from chainer_profile.basics.errors import ProfileError
from chainer_profile.engines.catalogue import BASELINE
from chainer_profile.engines.engine_recording import engine_recording
from chainer_profile.engines.protocol import EngineError, Network
from chainer_profile.engines.race import Contestant, Race
from chainer_profile.engines.results import EnginesRun, folder_names
from chainer_profile.measure import calibration, environment
from chainer_profile.measure.clock import HOST_CLOCK, Clock
from chainer_profile.measure.learning import learn
from chainer_profile.measure.progress import ProgressBar
from chainer_profile.measure.step_session import StepSession
from chainer_profile.measure.steps import make_step
from chainer_profile.measure.threads import limit_blas_threads
from chainer_profile.measure.too_large import check_samples
from chainer_profile.measure.trials import Stop
from chainer_profile.record.recording import (
    Calibration,
    Conditions,
    Environment,
    Recording,
    Settings,
)

#: Memory that a race needs per trial of an engine, in numbers of 8 bytes (list entries and arrays).
_NUMBERS_PER_TRIAL = 20
_NEEDS_CHAINER = (
    "the network computes gradients in its forward pass, which engines cannot do: profile it with "
    "Chainer"
)


def measure(
    model: Any,
    inputs: tuple[Any, ...],
    settings: Settings,
    contestants: Sequence[Contestant],
    *,
    layer_trials: int,
    tolerance: float | None = None,
    clock: Clock = HOST_CLOCK,
    stop: Stop | None = None,
    measuring: AbstractContextManager[None] | None = None,
    bar: ProgressBar | None = None,
) -> tuple[EnginesRun, dict[str, Recording], ProfileError | None]:
    """Run a race of engines, and time the nodes of each in ``layer_trials`` trials.

    ``measuring`` is a context manager around the race, for signals.

    Returns:
        The results; the recordings by the engines' names; the error that ended the run, if Chainer
        itself failed.
    """
    step = make_step("forward", model, inputs)
    with limit_blas_threads(settings.threads), step.configured():
        session = learn(step, settings, clock)
        check_samples(settings, _NUMBERS_PER_TRIAL * len(contestants))
        if getattr(step, "with_graph", False):
            raise ProfileError(_NEEDS_CHAINER)
        network = _network(model, inputs, session, settings)
        machine, watch = environment.collect(settings.device), environment.CpuWatch()
        with measuring or nullcontext(), bar or nullcontext() as progress:
            race = Race(
                contestants,
                network,
                trials=settings.trials,
                warmups=settings.warmups,
                tolerance=tolerance,
                clock=clock,
                max_seconds=settings.max_seconds,
                stop=stop,
                progress=progress,
            )
            calibrate = calibration.calibration_of(step, clock)
            calibrations, failure = _run_race(race, calibrate, layer_trials)
        conditions = Conditions(
            clock_resolution_ns=float(clock.resolution_ns()),
            other_cpu=watch.other_cpu(),
            calibrations=calibrations,
        )
    recordings = _recordings(contestants, settings, machine, conditions, session)
    run = EnginesRun(
        engines=tuple(contestants),
        n_layers=len(session.layers),
        settings=settings,
        environment=machine,
        other_cpu=conditions.other_cpu,
        ended=race.ended if failure is None else f"failed: {failure}",
    )
    return run, recordings, failure


def _network(
    model: Any, inputs: tuple[Any, ...], session: StepSession, settings: Settings
) -> Network:
    """Describe a network, whose layers the session knows, to the engines."""
    return Network(
        name=settings.model,
        model=model,
        inputs=inputs,
        layers=session.layers,
        device=settings.device,
        threads=settings.threads,
    )


def _run_race(
    race: Race, calibrate: Callable[[], Calibration | None], layer_trials: int
) -> tuple[tuple[Calibration, ...], ProfileError | None]:
    """Run a race, and time the nodes after it; return the calibrations, and why it has failed."""
    calibrations, failure = [calibrate()], None
    try:
        race.run()
        calibrations.append(calibrate())
        race.profile_nodes(layer_trials)
    except ProfileError as error:
        failure = error
    return tuple(filter(None, calibrations)), failure


def _recordings(
    contestants: Sequence[Contestant],
    settings: Settings,
    machine: Environment,
    conditions: Conditions,
    session: StepSession,
) -> dict[str, Recording]:
    """Make recordings of the engines that timed their nodes, by name; set the engines' folders."""
    recordings: dict[str, Recording] = {}
    folders = folder_names([contestant.name for contestant in contestants])
    for contestant in contestants:
        name, profile = contestant.name, contestant.profile
        if profile is None:
            continue
        engine_settings = replace(settings, trials=len(profile.run_ns))
        engine_conditions = conditions
        try:
            if name == BASELINE:
                # Chainer's recording has more than an engine's profile, such as times of the GPU.
                # Its profiled trials ran after the race, far from the unprofiled trials. Without
                # start times, they are not compared to find the recorder's overhead.
                recording = replace(contestant.engine.recording, start_ns=None, clean_cpu_ns=None)
                engine_conditions = replace(
                    recording.conditions,
                    other_cpu=conditions.other_cpu,
                    calibrations=conditions.calibrations,
                )
            else:
                label = f"{name} {contestant.version}".strip()
                engine_settings = replace(engine_settings, engine=label)
                recording = engine_recording(profile, session.layers, engine_settings)
            recordings[name] = replace(
                recording,
                settings=engine_settings,
                links=session.links,
                clean_ns=contestant.clean_ns,
                clean_start_ns=np.array(contestant.start_ns, np.int64),
                environment=machine,
                conditions=engine_conditions,
            )
        except (EngineError, ValueError) as error:
            contestant.add_note(f"the times of its nodes are unusable: {error}")
        else:
            contestant.folder = folders[name]
    return recordings
