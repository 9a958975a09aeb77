"""A Trainer extension that profiles the iterations of a real training."""

from __future__ import annotations

import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import get_ident
from typing import Any

import chainer
from chainer.training import Extension

from chainer_profile.basics.checks import flag, short_repr, text
from chainer_profile.basics.errors import ProfileError, UsageError, one_line
from chainer_profile.basics.warning import warner
from chainer_profile.integrations.results import Results
from chainer_profile.measure import observers, patches
from chainer_profile.measure.clock import Clock, check_clock
from chainer_profile.measure.devices import clock_of, device_of
from chainer_profile.measure.iterations import Iterations
from chainer_profile.measure.loop import loop_of
from chainer_profile.measure.ranks import rank_of
from chainer_profile.record.budget import TRAINING
from chainer_profile.record.recording import Layer
from chainer_profile.runs.write import write_reports

#: Layers of an iteration that are reported.
_MAX_REPORTED = 5


class LayerProfile(Extension):
    """Profiles iterations of a training by layer: data, forward, backward and update.

    ::

        trainer.extend(LayerProfile())

    Every iteration is profiled. Iterations may differ; a row is a function of a link.

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
        clock: The clock that measures. Default: the clock of the device.
        memory: Make the memory pass: the second and the third iteration are not timed. The third
            shows what each row allocates; allocations are counted from the second on.
        report: Report the milliseconds of each iteration by phase (``profile/forward``)
            and of its slowest layers (``profile/layer/forward/res4/0/conv1``) to the trainer's
            observation, for LogReport and others.
        machine: Add this machine's limits if they were measured before; see
            :func:`chainer_profile.measure.machine.with_saved_limits`.

    Raises:
        UsageError: An argument is invalid.
    """

    def __init__(
        self,
        out: str | Path | None = None,
        title: str = "",
        command: str = "",
        clock: Clock | None = None,
        memory: bool = False,
        machine: bool = True,
        report: bool = False,
    ) -> None:
        if out is not None and not isinstance(out, str | os.PathLike):
            raise UsageError(f"out is {short_repr(out)}: give the name of a folder")
        self._out = Path(out or "profile")
        self._title, self._command = text("title", title), text("command", command)
        self._clock: Clock | None = check_clock(clock)
        self._with_memory = flag("memory", memory)
        self._with_limits, self._with_report = flag("machine", machine), flag("report", report)
        self._warn: Callable[[str], None] = warner("LayerProfile: ")
        self._results: Results
        self._iterations: Iterations | None = None
        # The updater whose iterations are profiled, as an observer knows it.
        self._trainer: Any = None
        self.thread = 0

    # -- Chainer's interface

    def initialize(self, trainer: Any) -> None:
        """Begin to observe the updater's ``update``."""
        self._warn = warner("LayerProfile: ")
        loop = loop_of(trainer.updater, self._title, self._command)
        clock = self._clock or clock_of(device_of(loop.roots[0][1]))
        rank = loop.rank = rank_of(loop.optimizers)
        out, number = Path(trainer.out) / self._out, None if rank is None else rank.number
        self._results = Results(None, out, False, number, self._warn, self._with_limits)
        journal = partial(self._results.journal, TRAINING)
        self._iterations = Iterations(loop, clock, journal, self._warn, self._with_memory)
        self._trainer, self.thread = trainer, get_ident()
        patches.add_observer(self)
        patches.observe_class(observers.ITERATION, type(trainer.updater))

    def begin_operation(
        self, operation: str, owner: Any, args: tuple[Any, ...]
    ) -> observers.End | None:
        """Begin an iteration if the operation is an ``update`` of the updater."""
        iterations = self._iterations
        if operation != observers.ITERATION or owner is not self._trainer.updater:
            return None
        assert iterations is not None
        iterations.iteration = owner.iteration
        iterations.begin()
        return self._end_iteration

    def begin_elsewhere(self, operation: str) -> None:
        """Ignore operations of other threads."""

    def fail(self, error: Exception) -> None:
        """Warn that measuring has stopped, after a failure of the profiler."""
        self._warn(f"measuring stopped: {one_line(error)}")

    def _end_iteration(self, error: BaseException | None, result: Any) -> None:
        assert self._iterations is not None
        self._iterations.finish(error)
        if error is None and self._with_report:
            chainer.report(_scalars(self._iterations.times()))

    def __call__(self, trainer: Any) -> None:
        """Do nothing: the iteration is recorded already."""

    def finalize(self) -> None:
        """Stop observing the updater, and write what was measured."""
        patches.remove_observer(self)
        iterations, self._iterations = self._iterations, None
        if iterations is None:
            return
        with warnings.catch_warnings():
            # The program may have made warnings of other packages errors.
            warnings.simplefilter("ignore")
            try:
                failures = self._write(iterations)
            except Exception as error:  # the training is complete
                failures = [f"the reports could not be made: {one_line(error)}"]
        for failure in failures:
            self._warn(failure)

    def _write(self, iterations: Iterations) -> list[str]:
        """Save the iterations and write their reports; returns what failed."""
        from chainer_profile.analyse.summaries import summarise

        iterations.end()
        self._trainer, failures = None, []
        with closing(self._results):
            recording = iterations.recording()
            if recording is not None and recording.n_trials:
                for folder, saved in self._results.save({TRAINING: recording}).items():
                    try:
                        write_reports(folder, summarise(saved))
                    except ProfileError as error:
                        failures.append(str(error))
        return failures


def _scalars(times: Mapping[Layer | str, float]) -> dict[str, float]:
    """Milliseconds by phase and of the slowest layers, by the names they are reported by."""
    phases: defaultdict[str, float] = defaultdict(float)
    layers: defaultdict[str, float] = defaultdict(float)
    for owner, seconds in times.items():
        phase = owner if isinstance(owner, str) else owner.phase
        phases[f"profile/{phase}"] += seconds * 1e3
        if not isinstance(owner, str):
            layers[f"profile/layer/{phase}/{owner.path.strip('/')}"] += seconds * 1e3
    slowest = sorted(layers, key=lambda name: -layers[name])[:_MAX_REPORTED]
    return phases | {name: layers[name] for name in slowest}
