"""A Trainer extension that profiles chosen iterations of a real training."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainer.dataset.convert import Converter
from chainer.training import Extension

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.basics.replacements import Replacements
from chainer_profile.basics.units import format_count
from chainer_profile.measure import machine
from chainer_profile.measure.clock import Clock
from chainer_profile.measure.configuration import as_now
from chainer_profile.measure.devices import clock_of, device_name, device_of
from chainer_profile.measure.live import LiveTrials
from chainer_profile.measure.windows import Mark, actual_optimizer, time_optimizer, timed
from chainer_profile.record.journal import Journal
from chainer_profile.record.recording import Settings
from chainer_profile.runs.folder import take_folder
from chainer_profile.runs.write import write_reports

if TYPE_CHECKING:
    from chainer_profile.measure.structure import Structure
    from chainer_profile.measure.windows import Enter, Leave
    from chainer_profile.record.recording import MachineLimits, Recording
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
        self._live: LiveTrials | None = None

    # -- Chainer's interface

    def initialize(self, trainer: Any) -> None:
        """Take the place of the updater's ``update``."""
        step = UpdaterStep(trainer.updater, self._title, self._command)
        clock = self._clock or clock_of(device_of(step.roots[0][1]))
        live = self._live = LiveTrials(step, clock, self._journal, self._warn, self._with_memory)
        self._out = Path(trainer.out) / self._out

        def instead(update: Callable[[], None]) -> Callable[[], None]:
            def profiled_update() -> None:
                with live.trial():
                    update()

            return profiled_update

        self._replacements.wrap(trainer.updater, "update", instead)

    def __call__(self, trainer: Any) -> None:
        """Profile the next iteration."""
        assert self._live is not None
        self._live.want()

    def finalize(self) -> None:
        """Bring the updater's ``update`` back, and write what was measured."""
        self._replacements.undo()
        if self._live is None:
            return
        self._live.end()
        with self._files:
            recording = self._live.recording()
            if recording is not None:
                self._write(recording)

    def _journal(self) -> Journal:
        """Take a folder and open the journal."""
        try:
            self._folder = self._files.enter_context(take_folder(None, self._out, force=False))
        except ProfileError as error:
            self._warn(str(error))
            return Journal()
        return Journal(self._folder.journal)

    def _warn(self, problem: str) -> None:
        warnings.warn(f"LayerProfile: {problem}", stacklevel=2)

    def _write(self, recording: Recording) -> None:
        from chainer_profile.analyse.summaries import summarise

        if self._folder is None or not recording.n_trials:
            return
        recording = replace(recording, limits=self._limits(recording))
        try:
            self._folder.save(recording)
            write_reports(self._folder.path, summarise(recording))
        except ProfileError as error:
            self._warn(str(error))

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


class UpdaterStep:
    """One iteration of an updater, as what a trial is.

    Args:
        updater: The updater.
        title: Name of the network for the reports; by default the name of its class.
        command: The command line that started the training.
    """

    def __init__(self, updater: Any, title: str = "", command: str = "") -> None:
        self._updater, self._title, self._command = updater, title, command
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
        # Of the batches of the last iteration that was noted: their examples, and their bytes as
        # they were loaded and as they were converted.
        self._batchsize = 0
        self._sizes: dict[str, int] = {}
        self._noting = False

    @property
    def noting(self) -> bool:
        """Whether batches are looked at; those of an earlier iteration are forgotten."""
        return self._noting

    @noting.setter
    def noting(self, on: bool) -> None:
        if on:
            self._batchsize = 0
            self._sizes.clear()
        self._noting = on

    @property
    def input_nbytes(self) -> int:
        """Bytes of the inputs of the iteration whose batches were noted: of converted arrays.

        Of the examples as they were loaded where the updater's converter is not used.
        """
        return self._sizes.get("converted") or self._sizes.get("loaded", 0)

    def settings(self, structure: Structure) -> Settings:
        """What an iteration of such windows was."""
        first = structure.layers[0] if structure.layers else None
        target = self.roots[0][1]
        inputs = [layer for layer in structure.layers if layer.phase == "forward"]
        shape = inputs[0].input_shapes[0] if inputs and inputs[0].input_shapes else ()
        return Settings(
            model=self._title or type(getattr(target, "predictor", target)).__name__,
            input="training batches" if first else "",
            input_shape=shape,
            batchsize=self._batchsize or (shape[0] if shape else 1),
            device=device_name(device_of(target)),
            phase="train",
            optimizer=" and ".join(
                type(actual_optimizer(optimizer)).__name__ for optimizer in self.optimizers
            ),
            train_mode=True,
            command=self._command,
            **as_now(),
        )

    def difference(self, first: Settings) -> str:
        """How its batch differs in size, in words; empty if it does not."""
        if self._batchsize in (0, first.batchsize):  # 0 without iterators
            return ""
        return (
            f"its batch has {format_count(self._batchsize)} examples, and "
            f"{format_count(first.batchsize)} in the first one"
        )

    def _note_size(self, kind: str, batch: Any) -> None:
        if not self._noting:
            return
        with suppress(Exception):  # of a batch of a kind of its own
            self._sizes[kind] = self._sizes.get(kind, 0) + _nbytes(batch)

    def _note_converted(self, arrays: Any) -> None:
        self._note_size("converted", arrays)

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
            if self._noting:
                self._batchsize += len(batch)
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
