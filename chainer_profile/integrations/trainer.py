"""A Trainer extension that profiles chosen iterations of a real training."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from struct import pack
from typing import TYPE_CHECKING, Any

from chainer.dataset.convert import Converter
from chainer.training import Extension

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.basics.replacements import Replacements
from chainer_profile.basics.units import format_count, plural
from chainer_profile.measure import environment, machine
from chainer_profile.measure.calibration import calibrate
from chainer_profile.measure.clock import Clock
from chainer_profile.measure.configuration import as_now
from chainer_profile.measure.devices import clock_of, device_name, device_of
from chainer_profile.measure.events import EventPool
from chainer_profile.measure.iteration_memory import IterationMemory
from chainer_profile.measure.learner import StructureError, learn_structure
from chainer_profile.measure.recorder import Recorder
from chainer_profile.measure.structure import Structure
from chainer_profile.measure.variants import PASSES, Known, Variants
from chainer_profile.measure.windows import Mark, actual_optimizer, time_optimizer, timed
from chainer_profile.record.journal import Journal, JournalError, Kind
from chainer_profile.record.recording import COMPLETE, Conditions, Settings
from chainer_profile.runs.folder import take_folder
from chainer_profile.runs.write import write_reports

if TYPE_CHECKING:
    from chainer_profile.measure.windows import Enter, Leave
    from chainer_profile.record.recording import Calibration, MachineLimits, MemoryUse, Recording
    from chainer_profile.runs.folder import RunFolder


class LayerProfile(Extension):
    """Profiles iterations of a training by layer: data, forward, backward and update.

    ::

        trainer.extend(LayerProfile(trigger=(100, "iteration")))

    When the trigger fires after an iteration, the next one is profiled. The first time, one more
    iteration teaches the layers, link paths and shapes, and another one shows what each layer
    allocates: that one is the memory pass, and allocations are counted from the iteration before
    it on. The iterations before and behind a profiled one are timed as a whole, which shows the
    profiler's own cost. All other iterations run as they are. At the end of the training the
    machine's limits are looked up, or measured, which takes 4 s on a machine for the first time.
    Then the recording and its reports are written, as ``profile.py`` writes them;
    ``profile.py report`` recovers them after a kill, without memory and limits.

    A training is never stopped by this: iterations that differ from the first one (in their calls
    or in the size of the batch) are left out with a warning, and so is a disk that is full. After
    three such iterations in place of the memory pass there is none; and there are no limits where
    they cannot be measured, or where an exception ended the training and none are kept yet.

    Args:
        trigger: When to profile; the iteration after each firing.
        out: Folder of the results in the trainer's ``out``; a number is added to its name where
            it holds a run already.
        title: Name of the network for the reports; by default the name of its class.
        command: The command line that started the training, for the reports.
        clock: The clock that measures; by default one that fits the device.
        memory: Make the memory pass, in one iteration of the training.
        machine: Give the recording the limits of this machine; see
            :func:`chainer_profile.measure.machine.find_limits`.
    """

    def __init__(
        self,
        trigger: Any = (100, "iteration"),
        out: str | Path | None = None,
        title: str = "",
        command: str = "",
        clock: Clock | None = None,
        memory: bool = True,
        machine: bool = True,
    ) -> None:
        self.trigger = trigger
        self._out = Path(out or "profile")
        self._title = title
        self._command = command
        self._clock = clock
        self._with_memory = memory
        self._with_limits = machine
        self._replacements = Replacements()
        self._files = ExitStack()
        self._folder: RunFolder | None = None
        self._journal = Journal()
        self._step: _UpdaterStep | None = None
        self._variants = Variants()
        # Whether the next profiled iteration is to teach a structure instead.
        self._learns = True
        self._passes, self._most_passes = 0, 1
        self._recorder: Recorder | None = None
        self._memory: IterationMemory | None = None
        self._settings = Settings()
        self._conditions = Conditions()
        self._wanted = False
        self._profiled = 0
        # Start, wall and CPU time of the last iteration that ran as it is, and whether the next
        # such one stands behind a profiled one.
        self._plain: tuple[int, int, bytes] | None = None
        self._behind = False

    # -- Chainer's interface

    def initialize(self, trainer: Any) -> None:
        """Take the place of the updater's ``update``."""
        updater = trainer.updater
        step = self._step = _UpdaterStep(updater)
        self._clock = self._clock or clock_of(device_of(self._step.roots[0][1]))
        device = self._clock.device
        events = None if device is None else EventPool(device)
        raising = self._variants.raising
        self._recorder = Recorder(self._clock.now_ns, self._step, events, raising)
        self._memory = IterationMemory(self._step) if self._with_memory else None
        self._out = Path(trainer.out) / self._out

        def instead(update: Callable[[], None]) -> Callable[[], None]:
            step.update = update
            return self._update

        self._replacements.wrap(updater, "update", instead)

    def __call__(self, trainer: Any) -> None:
        """Profile the next iteration."""
        self._wanted = True
        if self._variants.structures:
            # Before it, one that may teach of those that wait.
            self._learns = self._passes < self._most_passes and self._variants.wants_pass()

    def finalize(self) -> None:
        """Bring the updater's ``update`` back, and write what was measured."""
        self._replacements.undo()
        if self._memory is not None:
            self._memory.end()
        with self._files:
            if self._profiled:
                self._write()

    # -- one iteration

    def _update(self) -> None:
        assert self._step is not None
        assert self._clock is not None
        if not self._wanted:
            self._run_plain(self._clock)
        elif self._learns:
            self._learn()
        elif self._memory is not None and self._memory.is_on:
            self._trace(self._memory, self._variants.watched())
        else:
            self._wanted = False
            self._profile()

    def _run_plain(self, clock: Clock) -> None:
        """Run an iteration as it is, and time it as a whole.

        On a GPU only those behind a profiled one are timed: waiting for the device in all of them
        would slow the training down.
        """
        assert self._step is not None
        if clock.device is not None and not self._behind:
            self._step()
            return
        now_ns, cpu_ns = clock.waiting().now_ns, clock.cpu_ns
        begin_ns, start_ns = cpu_ns(), now_ns()
        self._step()
        wall_ns = now_ns() - start_ns
        self._plain = start_ns, wall_ns, pack("<q", cpu_ns() - begin_ns)
        if self._behind:
            self._behind = False
            self._add_plain()

    def _learn(self) -> None:
        """Learn the structure from an iteration; the next one is traced or profiled."""
        assert self._step is not None
        assert self._recorder is not None
        assert self._clock is not None
        first = not self._variants.structures
        if first:
            # Counting of memory would make the windows longer.
            self._conditions = Conditions(
                clock_resolution_ns=float(self._clock.resolution_ns()),
                window_ns=self._recorder.window_ns(),
                calibrations=self._calibrations(),
            )
            if self._memory is not None:
                self._memory.begin()
        try:
            structure = learn_structure(self._step)
        except BaseException as error:
            if self._memory is not None and first:
                self._memory.end()
            if isinstance(error, StructureError):
                raise error.cause from None
            raise
        self._learns = False
        self._passes += 1
        before = len(self._variants.structures)
        waiting = self._variants.learn(structure)
        if first:
            if self._memory is not None:
                self._warn(self._memory.problem)
            self._begin(structure)
        elif len(self._variants.structures) > before:
            seen = structure.layers, structure.phases, structure.links
            settings = self._settings_of(structure)
            self._try_to_write(partial(self._journal.add_variant, *seen, settings))
        self._keep(waiting)

    def _trace(self, memory: IterationMemory, structure: Structure) -> None:
        """Count what an iteration allocates; the next one is profiled, or else traced again."""
        assert self._step is not None
        self._step.begin_sizes()
        try:
            memory.trace(structure, self._other_batch)
        finally:
            self._step.end_sizes()
        self._warn(memory.problem)

    def _profile(self) -> None:
        assert self._step is not None
        assert self._recorder is not None
        assert self._clock is not None
        recorder, variants = self._recorder, self._variants
        recorder.clear()
        if self._clock.device is not None:
            self._clock.device.synchronize()
        with recorder:
            trial = recorder.trial()
        known = variants.add(trial, recorder.log.copy())
        recorder.clear()
        self._add_plain()
        self._behind = True
        if known is not None:
            self._keep([known])
        else:
            self._profiled += 1
            self._most_passes += PASSES
            if not variants.waits(trial):
                self._add(Kind.LEFT_OUT, trial.start_ns, trial.wall_ns)

    def _keep(self, trials: Sequence[Known]) -> None:
        """Write profiled iterations."""
        for number, trial, times_ns in trials:
            record = trial.start_ns, trial.wall_ns, times_ns.tobytes()
            self._try_to_write(partial(self._journal.add_group, Kind.PROFILED, [record], number))
            self._profiled += 1

    def _other_batch(self) -> str:
        """How the last iteration's batch differs in size, in words; empty if it does not."""
        assert self._step is not None
        seen, first = self._step.batchsize, self._settings.batchsize
        if seen in (0, first):  # 0 without iterators
            return ""
        return (
            f"its batch has {format_count(seen)} examples, and {format_count(first)} in the first "
            "one"
        )

    def _warn(self, problem: str) -> None:
        if problem:
            warnings.warn(f"LayerProfile: {problem}", stacklevel=2)

    def _add_plain(self) -> None:
        """Keep the last iteration that ran as it is."""
        if self._plain is not None:
            self._add(Kind.CLEAN, *self._plain)
        self._plain = None

    def _add(self, kind: Kind, start_ns: int, wall_ns: int, more: bytes = b"") -> None:
        self._try_to_write(partial(self._journal.add, kind, start_ns, wall_ns, more))

    def _try_to_write(self, write: Callable[[], object]) -> None:
        try:
            write()
        except JournalError as error:
            # What could not be written is kept in memory, and written at the end if it can be.
            self._warn(f"{self._out} cannot be written: {error}")

    # -- what came out

    def _settings_of(self, structure: Structure) -> Settings:
        """What an iteration of such windows was."""
        assert self._step is not None
        step, first = self._step, structure.layers[0] if structure.layers else None
        target = step.roots[0][1]
        inputs = [layer for layer in structure.layers if layer.phase == "forward"]
        shape = inputs[0].input_shapes[0] if inputs and inputs[0].input_shapes else ()
        return Settings(
            model=self._title or type(getattr(target, "predictor", target)).__name__,
            input="training batches" if first else "",
            input_shape=shape,
            batchsize=step.batchsize or (shape[0] if shape else 1),
            device=device_name(device_of(target)),
            phase="train",
            optimizer=" and ".join(
                type(actual_optimizer(optimizer)).__name__ for optimizer in step.optimizers
            ),
            train_mode=True,
            command=self._command,
            **as_now(),
        )

    def _begin(self, structure: Structure) -> None:
        """Take a folder and open the journal."""
        assert self._step is not None
        self._settings = self._settings_of(structure)
        try:
            take = take_folder(None, self._out, force=False)
            self._folder = self._files.enter_context(take)
            self._journal = Journal(self._folder.journal)
            self._begin_journal(structure)
        except (ProfileError, JournalError) as error:
            self._warn(str(error))
            self._journal = Journal()
            self._begin_journal(structure)

    def _begin_journal(self, structure: Structure) -> None:
        self._journal.begin(
            structure.layers,
            self._settings,
            environment.collect(self._settings.device),
            phases=structure.phases,
            links=structure.links,
            on_device=self._clock is not None and self._clock.device is not None,
            cpu=True,
        )

    def _write(self) -> None:
        from chainer_profile.analyse.summaries import summarise

        for trial in self._variants.unknown:
            self._add(Kind.LEFT_OUT, trial.start_ns, trial.wall_ns)
        calibrations = (*self._conditions.calibrations, *self._calibrations())
        conditions = replace(self._conditions, calibrations=calibrations)
        recording = self._journal.recording(conditions, COMPLETE)
        settings = replace(
            recording.settings, trials=recording.all_trials, clean_trials=len(recording.clean_ns)
        )
        recording = replace(recording, settings=settings)
        if recording.layers == self._variants.structures[0].layers:
            recording = replace(recording, memory=self._memory_use())
        if recording.left_out:
            self._warn(
                f"{plural(recording.left_out, 'profiled iteration')} of a kind that no other one "
                f"taught: left out; {self._variants.difference}"
            )
        if self._folder is None or not recording.n_trials:
            return
        recording = replace(recording, limits=self._limits(recording))
        try:
            self._folder.save(recording)
            write_reports(self._folder.path, summarise(recording))
        except ProfileError as error:
            self._warn(str(error))

    def _calibrations(self) -> tuple[Calibration, ...]:
        """How fast the machine is now; nothing where that cannot be measured."""
        assert self._step is not None
        assert self._clock is not None
        xp = device_of(self._step.roots[0][1]).xp
        try:
            return (calibrate(self._clock.waiting().now_ns, xp),)
        except Exception:  # such as a full GPU: nothing of the training depends on it
            return ()

    def _memory_use(self) -> MemoryUse | None:
        """What the memory pass found, if there was one."""
        if self._memory is None or self._memory.use is None:
            return None
        assert self._step is not None
        return replace(self._memory.use, input_nbytes=self._step.input_nbytes)

    def _limits(self, recording: Recording) -> MachineLimits | None:
        """The machine's limits; None where they are not wanted, or cannot be measured."""
        if not self._with_limits:
            return None
        try:
            device = machine.find_device(recording.settings.device)
            if sys.exc_info()[1] is not None:
                # An exception or Ctrl-C ended the training: nobody waits for the measuring.
                return machine.kept_limits(recording.environment, device)
            return machine.find_limits(recording.environment, device).limits
        except Exception as error:
            self._warn(f"the machine's limits are left out: {one_line(error)}")
            return None


class _UpdaterStep:
    """One iteration of an updater, as what a trial runs."""

    def __init__(self, updater: Any) -> None:
        self._updater = updater
        #: The updater's own, or that of another extension.
        self.update: Callable[[], None] = updater.update
        named = updater.get_all_optimizers()
        self.optimizers = list(named.values())
        # One optimizer's network gives its own link paths; of several, each has its name in front.
        prefixes = [""] if len(named) == 1 else [f"/{name}" for name in named]
        self._prefixes = prefixes
        self.roots: list[tuple[str, Any]] = [
            (prefix, optimizer.target)
            for prefix, optimizer in zip(prefixes, self.optimizers, strict=True)
        ]
        # A ParallelUpdater has a copy of the network for every other device.
        known = [root for _, root in self.roots]
        self.roots += [
            (f"/{name}", model)
            for name, model in (getattr(updater, "_models", None) or {}).items()
            if not any(model is one for one in known)
        ]
        self.inputs: tuple[Any, ...] = ()
        #: Examples of all batches of the last iteration that was looked at.
        self.batchsize = 0
        # Bytes of the batches of one iteration, as they were loaded and as they were converted.
        self._sizes: dict[str, int] = {}
        self._sizing = False

    @property
    def input_nbytes(self) -> int:
        """Bytes of the inputs of the iteration whose sizes were noted: of the converted arrays.

        Of the examples as they were loaded where the updater's converter is not used.
        """
        return self._sizes.get("converted") or self._sizes.get("loaded", 0)

    def begin_sizes(self) -> None:
        """Note how large the inputs are; those of an earlier iteration are forgotten."""
        self._sizes.clear()
        self._sizing = True

    def end_sizes(self) -> None:
        """Note it no more."""
        self._sizing = False

    def _note_size(self, kind: str, batch: Any) -> None:
        if not self._sizing:
            return
        with suppress(Exception):  # of a batch of a kind of its own
            self._sizes[kind] = self._sizes.get(kind, 0) + _nbytes(batch)

    def _note_converted(self, arrays: Any) -> None:
        self._note_size("converted", arrays)

    def __call__(self) -> None:
        self.batchsize = 0
        self.update()

    @contextmanager
    def timed(self, enter: Enter, leave: Leave) -> Iterator[None]:
        """Times the loading of data, and all parts of the optimizers' updates."""
        with Replacements() as replacements:
            for iterator in getattr(self._updater, "_iterators", {}).values():
                mark = Mark("data", "data", type(iterator).__name__)
                load = timed(iterator.next, mark, enter, leave)
                replacements.put(iterator, "next", self._counted(load))
            converter = getattr(self._updater, "converter", None)
            if converter is not None:
                convert = _timed_converter(converter, enter, leave, self._note_converted)
                replacements.put(self._updater, "converter", convert)
            for prefix, optimizer in zip(self._prefixes, self.optimizers, strict=True):
                time_optimizer(replacements, optimizer, enter, leave, prefix)
            yield

    def _counted(self, load: Callable[[], Any]) -> Callable[[], Any]:
        def next_batch() -> Any:
            batch = load()
            self.batchsize += len(batch)
            self._note_size("loaded", batch)
            return batch

        return next_batch


def _timed_converter(
    converter: Any, enter: Enter, leave: Leave, note: Callable[[Any], None]
) -> Any:
    """A converter with a window around it, old or new in style as the one it stands for.

    What it gives is noted as well, after its window.
    """
    # Chainer's concat_examples is an object around a function concat_examples_func.
    inner = getattr(converter, "base_callable", converter)
    name = str(getattr(inner, "__name__", type(inner).__name__)).removesuffix("_func")
    in_window = timed(converter, Mark("data", "data", name), enter, leave)

    def convert(*args: Any, **kwargs: Any) -> Any:
        arrays = in_window(*args, **kwargs)
        note(arrays)
        return arrays

    if not isinstance(converter, Converter):
        return convert

    class TimedConverter(Converter):
        def __call__(self, batch: Any, device: Any = None) -> Any:
            return convert(batch, device)

    return TimedConverter()


def _nbytes(batch: Any) -> int:
    """Bytes of the arrays in a batch: in tuples, lists and dictionaries of them."""
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, tuple | list):
        return sum(map(_nbytes, batch))
    return int(getattr(batch, "nbytes", 0))
