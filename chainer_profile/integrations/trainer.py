"""A Trainer extension that profiles the iterations of a real training."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import chainer
from chainer.training import Extension

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.replacements import Replacements
from chainer_profile.integrations.results import TRAINING, Results
from chainer_profile.measure.clock import Clock
from chainer_profile.measure.devices import clock_of, device_of
from chainer_profile.measure.entries import Entries
from chainer_profile.measure.live import LiveTrials
from chainer_profile.measure.loop import trial_of
from chainer_profile.measure.ranks import rank_of
from chainer_profile.record.recording import Layer
from chainer_profile.runs.write import write_reports

#: Layers of an iteration that are reported.
_MOST_REPORTED = 5


class LayerProfile(Extension):
    """Profiles iterations of a training by layer: data, forward, backward and update.

    ::

        trainer.extend(LayerProfile())

    Every iteration is profiled. Iterations may differ; a row is a function of a link. Only the
    second and the third iteration have no times: they are the memory pass, which shows what each
    row allocates in the third (allocations count from the second on).

    At the end of the training the recording and its reports are written, as ``profile.py`` writes
    them, with the machine's limits if ``profile.py`` or ``profile.py --machine`` has measured them
    before. After a kill, ``profile.py report`` recovers them, without memory and limits. A full
    disk causes a warning and never stops the training.

    With ChainerMN, add the extension on each rank. The ranks write to ``rank-0``, ``rank-1`` and so
    on in the folder of the results, with a phase ``communication``: a row for each parameter, or
    bucket, that a collective of the optimizer's ``update`` moves.

    Args:
        out: Folder of the results within the trainer's ``out``; a number is added to its name if
            the folder is not empty.
        title: Name of the network for the reports. Default: the name of its class.
        command: The command line that started the training, for the reports.
        clock: The clock that measures. Default: one that fits the device.
        memory: Make the memory pass, in one iteration of the training.
        report: Report the milliseconds of each iteration by phase (``profile/forward``)
            and of its slowest layers (``profile/layer/forward/res4/0/conv1``) to the trainer's
            observation, for LogReport and others.
        machine: Add this machine's limits if they were measured before; see
            :func:`chainer_profile.measure.machine.with_saved_limits`.
    """

    def __init__(
        self,
        out: str | Path | None = None,
        title: str = "",
        command: str = "",
        clock: Clock | None = None,
        memory: bool = True,
        machine: bool = True,
        report: bool = False,
    ) -> None:
        self._out = Path(out or "profile")
        self._title = title
        self._command = command
        self._clock = clock
        self._with_memory = memory
        self._with_limits, self._with_report = machine, report
        self._replacements = Replacements()
        self._results: Results
        self._entries: Entries
        self._live: LiveTrials | None = None

    # -- Chainer's interface

    def initialize(self, trainer: Any) -> None:
        """Take the place of the updater's ``update``."""
        trial = trial_of(trainer.updater, self._title, self._command)
        clock = self._clock or clock_of(device_of(trial.roots[0][1]))
        rank = rank_of(trial.optimizers)
        out, number = Path(trainer.out) / self._out, None if rank is None else rank.number
        self._results = Results(None, out, False, number, _warn, self._with_limits)
        journal = partial(self._results.journal, TRAINING)
        entries = self._entries = Entries(trial.around)
        live = self._live = LiveTrials(
            trial, clock, entries, journal, _warn, self._with_memory, rank
        )

        def instead(update: Callable[[], None]) -> Callable[[], None]:
            def profiled_update() -> None:
                live.iteration = trainer.updater.iteration
                with live.trial():
                    update()
                if self._with_report:
                    chainer.report(_scalars(live.times()))

            return profiled_update

        self._replacements.wrap(trainer.updater, "update", instead)
        entries.__enter__()

    def __call__(self, trainer: Any) -> None:
        """Do nothing: the iteration is on the tape already."""

    def finalize(self) -> None:
        """Bring the updater's ``update`` back, and write what was measured."""
        self._replacements.undo()
        if self._live is None:
            return
        self._entries.__exit__()
        from chainer_profile.analyse.summaries import summarise

        self._live.end()
        with closing(self._results):
            recording = self._live.recording()
            if recording is not None and recording.n_trials:
                for folder, saved in self._results.save({TRAINING: recording}).items():
                    try:
                        write_reports(folder, summarise(saved))
                    except ProfileError as error:
                        _warn(str(error))


def _warn(problem: str) -> None:
    warnings.warn(f"LayerProfile: {problem}", stacklevel=2)


def _scalars(times: Mapping[Layer | str, float]) -> dict[str, float]:
    """Milliseconds by phase and of the slowest layers, by the names they are reported by."""
    phases: defaultdict[str, float] = defaultdict(float)
    layers: defaultdict[str, float] = defaultdict(float)
    for owner, seconds in times.items():
        phase = owner if isinstance(owner, str) else owner.phase
        phases[f"profile/{phase}"] += seconds * 1e3
        if not isinstance(owner, str):
            layers[f"profile/layer/{phase}/{owner.path.strip('/')}"] += seconds * 1e3
    slowest = sorted(layers, key=lambda name: -layers[name])[:_MOST_REPORTED]
    return phases | {name: layers[name] for name in slowest}
