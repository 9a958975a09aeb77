"""A network and engines -> the results of their race, and a recording of each engine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from chainer_profile.basics.errors import ProfileError
from chainer_profile.engines.catalogue import BASELINE
from chainer_profile.engines.engine_recording import engine_recording
from chainer_profile.engines.protocol import EngineError, Network
from chainer_profile.engines.race import Contestant, Race
from chainer_profile.engines.results import EnginesRun, folder_names
from chainer_profile.measure import environment, runner
from chainer_profile.measure.clock import HOST_CLOCK, Clock
from chainer_profile.measure.progress import ProgressBar
from chainer_profile.measure.steps import make_step
from chainer_profile.measure.taped_step import TapedStep
from chainer_profile.measure.trials import Stop, check_samples
from chainer_profile.record.recording import Conditions, Environment, Recording, Settings

#: Numbers of 8 bytes that a race keeps of an engine's trial, as list entries and array elements.
_NUMBERS_PER_TRIAL = 20


@dataclass(frozen=True, eq=False)
class Measured:
    """A run of engines."""

    run: EnginesRun
    recordings: dict[str, Recording]
    #: The error that ended the run, if Chainer itself failed.
    failure: ProfileError | None = None


def measure(
    model: Any,
    array: Any,
    settings: Settings,
    contestants: Sequence[Contestant],
    *,
    layer_trials: int,
    tolerance: float | None = None,
    clock: Clock = HOST_CLOCK,
    stop: Stop | None = None,
    measuring: AbstractContextManager[None] | None = None,
    bar: ProgressBar | None = None,
) -> Measured:
    """Have the engines race, and make the recordings."""
    step = make_step("forward", model, (array,))
    threads = (
        nullcontext() if settings.threads is None else threadpool_limits(settings.threads, "blas")
    )
    with threads, step.configured():
        taped = runner.learn(step, settings, clock)
        check_samples(settings, _NUMBERS_PER_TRIAL * len(contestants))
        if getattr(step, "with_graph", False):
            raise ProfileError(
                "the network computes gradients in its forward pass, which no engine can do: "
                "profile it with Chainer"
            )
        network = Network(
            name=settings.model,
            model=model,
            inputs=(array,),
            layers=taped.layers,
            device=settings.device,
            threads=settings.threads,
        )
        calibrate = runner.calibration_of(step, clock)
        machine, watch = environment.collect(settings.device), environment.CpuWatch()
        failure: ProfileError | None = None
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
            calibrations = [calibrate()]
            try:
                race.run()
                calibrations.append(calibrate())
                race.profile_nodes(layer_trials)
            except ProfileError as error:
                failure = error
        conditions = Conditions(
            clock_resolution_ns=float(clock.resolution_ns()),
            other_cpu=watch.other_cpu(),
            calibrations=tuple(filter(None, calibrations)),
        )
    run, recordings = _results(race, settings, machine, conditions, taped)
    if failure is not None:
        run = replace(run, ended=f"failed: {failure}")
    return Measured(run, recordings, failure)


def _results(
    race: Race,
    settings: Settings,
    machine: Environment,
    conditions: Conditions,
    taped: TapedStep,
) -> tuple[EnginesRun, dict[str, Recording]]:
    folders = folder_names([contestant.name for contestant in race.contestants])
    recordings: dict[str, Recording] = {}
    for contestant in race.contestants:
        name = contestant.name
        if contestant.profile is not None:
            try:
                recordings[name] = _recording(contestant, settings, machine, conditions, taped)
            except (EngineError, ValueError) as error:
                contestant.add_note(f"the times of its nodes are unusable: {error}")
        contestant.folder = folders[name] if name in recordings else ""
    run = EnginesRun(
        engines=tuple(contestant.result for contestant in race.contestants),
        n_layers=len(taped.layers),
        settings=settings,
        environment=machine,
        other_cpu=conditions.other_cpu,
        ended=race.ended,
    )
    return run, recordings


def _recording(
    contestant: Contestant,
    settings: Settings,
    machine: Environment,
    conditions: Conditions,
    taped: TapedStep,
) -> Recording:
    profile = contestant.profile
    assert profile is not None
    settings = replace(settings, trials=len(profile.run_ns))
    of_race: dict[str, Any] = {
        "links": taped.links,
        "clean_ns": contestant.clean_ns,
        "clean_start_ns": np.array(contestant.start_ns, np.int64),
        "environment": machine,
    }
    if contestant.name != BASELINE:
        settings = replace(settings, engine=f"{contestant.name} {contestant.version}".strip())
        return engine_recording(profile, taped.layers, settings, conditions=conditions, **of_race)
    # Chainer's recorder knows more than an engine's profile, such as a GPU's own times. Its trials
    # came after all of the race, so their begins say nothing about what the recorder adds.
    recorded: Recording = contestant.engine.recording
    own_conditions = replace(
        recorded.conditions,
        other_cpu=conditions.other_cpu,
        calibrations=conditions.calibrations,
    )
    return replace(
        recorded,
        start_ns=None,
        clean_cpu_ns=None,
        settings=settings,
        conditions=own_conditions,
        **of_race,
    )
