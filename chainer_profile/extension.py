"""A Trainer extension that profiles chosen iterations of a real training."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainer.dataset.convert import Converter
from chainer.training import Extension

from chainer_profile import environment, output
from chainer_profile.clock import Clock
from chainer_profile.devices import clock_of
from chainer_profile.errors import ProfileError
from chainer_profile.journal import Journal, JournalError, Kind
from chainer_profile.recorder import Recorder
from chainer_profile.recording import COMPLETE, Conditions, Settings
from chainer_profile.structure import Structure, StructureError, learn_structure
from chainer_profile.units import format_count, plural
from chainer_profile.windows import Mark, Replacements, replacing, time_optimizer, timed

if TYPE_CHECKING:
    from chainer_profile.output import RunFolder
    from chainer_profile.windows import Enter, Leave


class LayerProfile(Extension):
    """Profiles iterations of a training by layer: data, forward, backward and update.

    ::

        trainer.extend(LayerProfile(trigger=(100, "iteration")))

    When the trigger fires after an iteration, the next one is profiled. The first time, one more
    iteration teaches the layers, link paths and shapes. The iterations before and behind a
    profiled one are timed as a whole, which shows the profiler's own cost. All other iterations
    run as they are. At the end of the training the recording and its reports are written, as
    ``profile.py`` writes them; ``profile.py report`` recovers them after a kill.

    A training is never stopped by this: iterations that differ from the first one (in their calls
    or in the size of the batch) are left out with a warning, and so is a disk that is full.

    Args:
        trigger: When to profile; the iteration after each firing.
        out: Folder of the results in the trainer's ``out``; a number is added to its name where
            it holds a run already.
        title: Name of the network for the reports; by default the name of its class.
        command: The command line that started the training, for the reports.
        clock: The clock that measures; by default one that fits the device.
    """

    def __init__(
        self,
        trigger: Any = (100, "iteration"),
        out: str | Path | None = None,
        title: str = "",
        command: str = "",
        clock: Clock | None = None,
    ) -> None:
        self.trigger = trigger
        self._out = Path(out or "profile")
        self._title = title
        self._command = command
        self._clock = clock
        self._replacements = Replacements()
        self._files = ExitStack()
        self._folder: RunFolder | None = None
        self._journal = Journal()
        self._step: _UpdaterStep | None = None
        self._structure: Structure | None = None
        self._recorder: Recorder | None = None
        self._settings = Settings()
        self._conditions = Conditions()
        self._wanted = False
        self._profiled = 0
        self._left_out: list[str] = []
        # Start and wall time of the last iteration that ran as it is, and whether the next such
        # one stands behind a profiled one.
        self._plain: tuple[int, int] | None = None
        self._behind = False

    # -- Chainer's interface

    def initialize(self, trainer: Any) -> None:
        """Take the place of the updater's ``update``."""
        updater = trainer.updater
        self._step = _UpdaterStep(updater, updater.update)
        self._clock = self._clock or clock_of(self._step.roots[0][1].device)
        self._recorder = Recorder(self._clock.now_ns, self._step)
        self._out = Path(trainer.out) / self._out
        self._replacements.put(updater, "update", self._update)

    def __call__(self, trainer: Any) -> None:
        """Profile the next iteration."""
        self._wanted = True

    def finalize(self) -> None:
        """Bring the updater's ``update`` back, and write what was measured."""
        self._replacements.undo()
        with self._files:
            if self._profiled:
                self._write()
            self._journal.close()
        if self._left_out:
            warnings.warn(
                f"LayerProfile left {plural(len(self._left_out), 'iteration')} out: "
                f"{self._left_out[0]}",
                stacklevel=2,
            )

    # -- one iteration

    def _update(self) -> None:
        assert self._step is not None
        assert self._clock is not None
        if not self._wanted:
            start_ns = self._clock.now_ns()
            self._step()
            self._plain = start_ns, self._clock.now_ns() - start_ns
            if self._behind:
                self._behind = False
                self._add_plain()
        elif self._structure is None:
            self._learn()
        else:
            self._wanted = False
            self._profile(self._structure)

    def _learn(self) -> None:
        """Learn the structure from an iteration; the next one is profiled."""
        assert self._step is not None
        try:
            structure = learn_structure(self._step)
        except StructureError as error:
            raise error.cause from None
        self._begin(structure)
        self._structure = structure

    def _profile(self, structure: Structure) -> None:
        assert self._step is not None
        assert self._recorder is not None
        assert self._clock is not None
        recorder = self._recorder
        recorder.clear()
        with recorder:
            start_ns = self._clock.now_ns()
            self._step()
            wall_ns = self._clock.now_ns() - start_ns
        stamps = recorder.stamps
        difference = structure.difference(recorder.entries, recorder.backwards, len(stamps))
        if not difference and self._step.batchsize != self._settings.batchsize:
            difference = (
                f"its batch has {format_count(self._step.batchsize)} examples, and "
                f"{format_count(self._settings.batchsize)} in the first one"
            )
        if difference:
            self._left_out.append(difference)
            return
        self._add_plain()
        times = structure.times_ns(stamps)
        recorder.clear()
        self._add(Kind.PROFILED, start_ns, wall_ns, times.tobytes())
        self._profiled += 1
        self._behind = True

    def _add_plain(self) -> None:
        """Keep the last iteration that ran as it is."""
        if self._plain is not None:
            self._add(Kind.CLEAN, *self._plain)
        self._plain = None

    def _add(self, kind: Kind, start_ns: int, wall_ns: int, more: bytes = b"") -> None:
        try:
            self._journal.add(kind, start_ns, wall_ns, more)
        except JournalError as error:
            # What could not be written is kept in memory, and written at the end if it can be.
            warnings.warn(f"LayerProfile: {self._out} cannot be written: {error}", stacklevel=2)

    # -- what came out

    def _begin(self, structure: Structure) -> None:
        """Take a folder and open the journal."""
        assert self._step is not None
        assert self._recorder is not None
        assert self._clock is not None
        step, first = self._step, structure.layers[0] if structure.layers else None
        target = step.roots[0][1]
        inputs = [layer for layer in structure.layers if layer.phase == "forward"]
        shape = inputs[0].input_shapes[0] if inputs and inputs[0].input_shapes else ()
        self._settings = Settings(
            model=self._title or type(getattr(target, "predictor", target)).__name__,
            input="training batches" if first else "",
            input_shape=shape,
            batchsize=step.batchsize or (shape[0] if shape else 1),
            device=_device_name(target.device),
            phase="train",
            optimizer=" and ".join(type(optimizer).__name__ for optimizer in step.optimizers),
            train_mode=True,
            command=self._command,
        )
        step.batchsize = self._settings.batchsize
        self._conditions = Conditions(
            clock_resolution_ns=self._clock.resolution_ns(), window_ns=self._recorder.window_ns()
        )
        try:
            take = output.take_folder(None, self._out, force=False)
            self._folder = self._files.enter_context(take)
            self._journal = Journal(self._folder.journal)
            self._begin_journal(structure)
        except (ProfileError, JournalError) as error:
            warnings.warn(f"LayerProfile: {error}", stacklevel=2)
            self._journal = Journal()
            self._begin_journal(structure)

    def _begin_journal(self, structure: Structure) -> None:
        self._journal.begin(
            structure.layers,
            self._settings,
            environment.collect(),
            phases=structure.phases,
            links=structure.links,
        )

    def _write(self) -> None:
        from chainer_profile.summaries import summarise

        recording = self._journal.recording(self._conditions, COMPLETE)
        settings = replace(
            self._settings, trials=recording.n_trials, clean_trials=len(recording.clean_ns)
        )
        recording = replace(recording, settings=settings)
        self._journal.close()
        if self._folder is None:
            return
        try:
            self._folder.save(recording)
            output.write_reports(self._folder.path, summarise(recording))
        except ProfileError as error:
            warnings.warn(f"LayerProfile: {error}", stacklevel=2)


class _UpdaterStep:
    """One iteration of an updater, as what a trial runs."""

    def __init__(self, updater: Any, update: Callable[[], None]) -> None:
        self._updater = updater
        self._call = update
        named = updater.get_all_optimizers()
        self.optimizers = list(named.values())
        # One optimizer's network gives its own link paths; of several, each has its name in front.
        prefixes = [""] if len(named) == 1 else [f"/{name}" for name in named]
        self._prefixes = prefixes
        self.roots: Sequence[tuple[str, Any]] = [
            (prefix, optimizer.target)
            for prefix, optimizer in zip(prefixes, self.optimizers, strict=True)
        ]
        self.inputs: tuple[Any, ...] = ()
        self.batchsize = 0

    def __call__(self) -> None:
        self._call()

    @contextmanager
    def timed(self, enter: Enter, leave: Leave) -> Iterator[None]:
        """Times the loading of data, and all parts of the optimizers' updates."""
        with replacing() as replacements:
            for iterator in getattr(self._updater, "_iterators", {}).values():
                mark = Mark("data", "data", type(iterator).__name__)
                load = timed(iterator.next, mark, enter, leave)
                replacements.put(iterator, "next", self._counted(load))
            converter = getattr(self._updater, "converter", None)
            if converter is not None:
                replacements.put(
                    self._updater, "converter", _timed_converter(converter, enter, leave)
                )
            for prefix, optimizer in zip(self._prefixes, self.optimizers, strict=True):
                time_optimizer(replacements, optimizer, enter, leave, prefix)
            yield

    def _counted(self, load: Callable[[], Any]) -> Callable[[], Any]:
        def next_batch() -> Any:
            batch = load()
            self.batchsize = len(batch)
            return batch

        return next_batch


def _timed_converter(converter: Any, enter: Enter, leave: Leave) -> Any:
    """A converter with a window around it, old or new in style as the one it stands for."""
    # Chainer's concat_examples is an object around a function concat_examples_func.
    inner = getattr(converter, "base_callable", converter)
    name = str(getattr(inner, "__name__", type(inner).__name__)).removesuffix("_func")
    convert = timed(converter, Mark("data", "data", name), enter, leave)
    if not isinstance(converter, Converter):
        return convert

    class TimedConverter(Converter):
        def __call__(self, batch: Any, device: Any = None) -> Any:
            return convert(batch, device)

    return TimedConverter()


def _device_name(device: Any) -> str:
    """``cpu``, or ``gpu:0`` and so on."""
    number = getattr(getattr(device, "device", None), "id", None)
    return "cpu" if number is None else f"gpu:{number}"
