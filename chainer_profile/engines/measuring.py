"""A network and engines -> the results of their race, and a recording for each."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from chainer_profile.basics.errors import ProfileError, one_line
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

#: Numbers of 8 bytes that a race keeps of a trial of an engine: a tuple, and columns of it.
_RACE_ROWS = 20


@dataclass(frozen=True, eq=False)
class Measured:
    """What came out."""

    run: EnginesRun
    recordings: dict[str, Recording]
    #: What ended it, where Chainer itself or keeping an engine failed.
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
    """Have the engines race, and fold what came out."""
    step = make_step("forward", model, (array,))
    threads = (
        nullcontext() if settings.threads is None else threadpool_limits(settings.threads, "blas")
    )
    with threads, step.configured():
        taped = runner.learn(step, settings, clock)
        check_samples(settings, _RACE_ROWS * len(contestants))
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
        where, watch = environment.collect(settings.device), environment.CpuWatch()
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
                for one in contestants:
                    if one.to_save is not None:
                        _keep(one, one.to_save)
            except ProfileError as error:
                failure = error
        conditions = Conditions(
            clock_resolution_ns=float(clock.resolution_ns()),
            other_cpu=watch.other_cpu(),
            calibrations=tuple(one for one in calibrations if one is not None),
        )
    run, recordings = _folded(race, settings, where, conditions, taped)
    if failure is not None:
        run = replace(run, ended=f"failed: {failure}")
    return Measured(run, recordings, failure)


def _keep(contestant: Contestant, path: Path) -> None:
    if contestant.error or contestant.prepare_s is None:
        why = contestant.error or "the run was interrupted"
        raise ProfileError(f"--save-engine: {contestant.name} cannot be saved: {why}")
    try:
        contestant.engine.save(path)
    except ProfileError:
        raise
    except Exception as error:  # an engine's own code
        raise ProfileError(f"--save-engine {path}: failed ({one_line(error)})") from error


def _folded(
    race: Race,
    settings: Settings,
    where: Environment,
    conditions: Conditions,
    taped: TapedStep,
) -> tuple[EnginesRun, dict[str, Recording]]:
    folders = folder_names([one.name for one in race.contestants])
    recordings: dict[str, Recording] = {}
    for one in race.contestants:
        if one.profile is not None:
            own = replace(settings, trials=len(one.profile.run_ns))
            known: dict[str, Any] = {
                "links": taped.links,
                "clean_ns": one.clean_ns,
                "clean_start_ns": one.start_ns,
                "environment": where,
                "conditions": conditions,
            }
            try:
                if one.name == BASELINE:
                    # All that its recorder knows, such as a GPU's own times, but its starts: the
                    # profiled trials came behind the unprofiled ones, so the two tell nothing about
                    # what the recorder adds.
                    recorded: Recording = one.engine.recording
                    known["conditions"] = replace(
                        recorded.conditions,
                        other_cpu=conditions.other_cpu,
                        calibrations=conditions.calibrations,
                    )
                    recordings[one.name] = replace(
                        recorded, start_ns=None, clean_cpu_ns=None, settings=own, **known
                    )
                else:
                    own = replace(own, engine=f"{one.name} {one.version}".strip())
                    recordings[one.name] = engine_recording(one.profile, taped.layers, own, **known)
            except (EngineError, ValueError) as error:
                one.add_note(f"the times of its nodes are unusable: {error}")
        one.folder = folders[one.name] if one.name in recordings else ""
    run = EnginesRun(
        engines=tuple(one.result for one in race.contestants),
        n_layers=len(taped.layers),
        settings=settings,
        environment=where,
        other_cpu=conditions.other_cpu,
        ended=race.ended,
    )
    return run, recordings
