"""A drop-in for Chainer's TimerHook that knows layers."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

import chainer
import numpy as np
from chainer import FunctionHook, LinkHook
from chainer.function_hooks import TimerHook

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.replacements import Replacements
from chainer_profile.measure import environment
from chainer_profile.measure.calibration import calibrate
from chainer_profile.measure.calls import read
from chainer_profile.measure.clock import HOST_CLOCK, Clock
from chainer_profile.measure.configuration import as_now
from chainer_profile.measure.devices import device_name, device_of
from chainer_profile.measure.events import TimedTrial
from chainer_profile.measure.hooks import (
    CALLBACKS,
    Marks,
    WalkHook,
    end_when_raising,
    host_callbacks,
    unique_name,
    windows,
)
from chainer_profile.measure.learner import Learner, Paused
from chainer_profile.measure.links import LinkStack, is_running
from chainer_profile.measure.variants import PASSES, Known, Variants
from chainer_profile.record.folding import fold_call_history
from chainer_profile.record.recording import Conditions, Recording, Settings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from chainer_profile.measure.calls import Log
    from chainer_profile.measure.structure import Structure
    from chainer_profile.measure.windows import Mark

_GROUP_NS = 1_000_000_000
_MOST_ITEMS = 100_000
#: Trials in which networks are looked for beside the first one.
_SEARCHED = 3
#: First trials whose kind is looked up at once.
_WATCHED = 30


class LayerTimerHook(FunctionHook):
    """Times every function call, as TimerHook does, and folds the calls into layers.

    ::

        hook = LayerTimerHook()
        with hook:
            for x in images:
                model(x)
        hook.print_report()                  # by function, like TimerHook
        recording = hook.recording()         # by layer
        print(summarise(recording).layers)

    Each call of the outermost link is a trial. The first one also teaches the layers' link paths
    and shapes; so does the trial behind one whose calls or shapes were not seen before. Trials of
    different kinds (a smaller last batch, train and test mode in turn) are the recording's
    :attr:`~.Recording.variants`. Times are the host's, without what learning takes; functions of
    backward passes and outside the network are in ``call_history`` but not in the recording.

    Several hooks may be active at once.
    """

    name = "LayerTimerHook"

    def __init__(self, clock: Clock = HOST_CLOCK) -> None:
        self.name = unique_name("LayerTimerHook")
        self._now_ns = clock.now_ns
        self._log: Log = []
        self._enter, self.leave = windows(self._now_ns, self._log)
        self._history = _History()
        self._networks: dict[int, _Network] = {}
        # The network whose trial runs, the frames of its calls, and its begin.
        self._network: _Network
        self._frames: list[FrameType] = []
        self._begin_at, self._begin_ns = 0, 0
        # Trials whose log is not folded yet: the network, the begin in the log, the trial, and the
        # structure that it taught.
        self._trials: list[tuple[_Network, int, TimedTrial, Structure | None]] = []
        self._searched = 0
        self._links: _Links | None = None
        self._learner: Learner | None = None
        self._paused = Paused(self._now_ns)
        # Classes of functions that raise, and their methods that say so.
        self._raising: frozenset[type] = frozenset()
        self._replacements = Replacements()
        self._conditions: Conditions | None = None
        # The fastest callbacks are methods of a class made on the spot; see hooks.py.
        self._timing = _with_callbacks(host_callbacks(self._now_ns, self._log))
        self._learning = _with_callbacks(_learning_callbacks(self))
        self.__class__ = self._timing

    # -- Chainer's interface

    def added(self, function: Any) -> None:
        """Begin: Chainer calls this when the hook is registered."""
        for network in self._networks.values():
            network.watch(self)
        end_when_raising(self._replacements, self._raising, self)
        self._look_at_links(True)
        self._look_less()

    def deleted(self, function: Any) -> None:
        """End: Chainer calls this when the hook is taken away."""
        self._abandon()
        self._look_at_links(False)
        for network in self._networks.values():
            network.ignore()
        self._replacements.undo()
        self._fold()
        self._history.clear()

    # -- TimerHook's interface

    @property
    def call_history(self) -> list[tuple[str, float]]:
        """Pairs of function name and time in seconds, in the order in which the calls ended.

        The time of a call holds that of the calls within it.
        """
        self._fold()
        return self._history.pairs()

    @property
    def self_history(self) -> list[tuple[str, float]]:
        """The same without the time of the calls within each."""
        self._fold()
        return self._history.pairs(own=True)

    def total_time(self) -> float:
        """Time in seconds inside functions; nested calls are counted once."""
        self._fold()
        return self._history.total_ns / 1e9

    def summary(self) -> dict[str, dict[str, float]]:
        """Time and number of calls by function name: TimerHook's dictionary."""
        summary: dict[str, dict[str, float]] = {}
        for name, seconds in self.call_history:
            record = summary.setdefault(name, {"elapsed_time": 0, "occurrence": 0})
            record["elapsed_time"] += seconds
            record["occurrence"] += 1
        return summary

    def print_report(self, unit: str = "auto", file: TextIO | None = None) -> None:
        """Print time and calls by function name, as TimerHook does.

        Args:
            unit: ``sec``, ``ms``, ``us``, ``ns``, ``auto`` or ``auto_foreach``.
            file: Where to; standard output by default.
        """
        file = file or sys.stdout
        timer = TimerHook()
        timer.call_history = self.call_history
        if not timer.call_history:
            file.write("no function was called under this hook\n")
            return
        timer.print_report(unit, file)

    # -- layers

    @property
    def networks(self) -> list[Any]:
        """The outermost links that were called under the hook, most trials first."""
        self._fold()
        found = sorted(self._networks.values(), key=lambda network: -network.n_trials)
        return [network.root for network in found]

    def recording(self, network: Any = None) -> Recording:
        """The trials so far, folded into layers.

        Trials that taught a structure are kept apart as warm-ups where there are others.

        Args:
            network: One of :attr:`networks`; by default the first.

        Raises:
            ProfileError: Nothing ran, no trial came to its end, this network was not called, or
                functions without links ran that have no period.
        """
        if not self.networks:
            return fold_call_history(self)
        root = self.networks[0] if network is None else network
        found = self._networks.get(id(root))
        if found is None:
            raise ProfileError(f"no {type(root).__name__} of this kind was called under this hook")
        if self._conditions is None:
            self._conditions = Conditions(calibrations=(calibrate(self._now_ns),))
        return replace(found.recording(), conditions=self._conditions)

    # -- trials

    def _look_at_links(self, look: bool) -> None:
        """Be told of all links that are called, or no more."""
        if look and self._links is None:
            self._links = _Links(self)
            self._links.__enter__()
        elif not look and self._links is not None:
            self._links.__exit__(None, None, None)
            self._links = None

    def _look_less(self) -> None:
        """Hear of the known networks only, once there were enough trials to know them all."""
        # Chainer tells nothing of a network whose class has a __call__ of its own.
        if self._searched >= _SEARCHED and all(one.has_hook for one in self._networks.values()):
            self._look_at_links(False)

    def call_begins(self, link: Any, args: tuple[Any, ...], frame: FrameType) -> None:
        """A link is called that may be an outermost one."""
        while self._frames and not is_running(self._frames[-1]):
            self._frames.pop()
        if self._frames:
            # A network may call itself. Of one call both a hook and its own __call__ may tell.
            if link is self._network.root and frame is not self._frames[-1]:
                self._frames.append(frame)
            return
        if self._learner is not None:
            self._abandon()
        network = self._networks.get(id(link))
        if network is None:
            network = self._networks[id(link)] = _Network(link)
            network.watch(self)
        self._network, self._frames = network, [frame]
        if network.learns:
            network.called(args)
            self._learn(link, frame)
        self._begin_at, self._begin_ns = len(self._log), self._now_ns()

    def call_ends(self, frame: FrameType) -> None:
        """The call of such a link has ended."""
        if frame not in self._frames:
            return
        del self._frames[self._frames.index(frame) :]
        if self._frames:
            return
        wall_ns = self._now_ns() - self._paused.spent_ns - self._begin_ns
        end = len(self._log)
        structure = None if self._learner is None else self._learned()
        timed = TimedTrial(self._begin_ns, wall_ns, end, 0, None)
        self._trials.append((self._network, self._begin_at, timed, structure))
        if self._links is not None:
            self._searched += 1
            self._look_less()
        network, first_ns = self._network, self._trials[0][2].start_ns
        network.passed += 1
        if (
            structure is not None
            or self._begin_ns - first_ns >= _GROUP_NS
            or end >= _MOST_ITEMS
            # A trial of another kind is to be known before the next one begins.
            or network.passed < _WATCHED
            or not network.regular(end - self._begin_at)
        ):
            self._fold()

    def note(self, mark: Mark) -> None:
        """A link is called that nothing else in the log tells of."""
        if self._frames and self._learner is None:
            self._enter(mark)
            self.leave()

    # A function that raises leaves its window by these, and by ``leave``.

    def position(self) -> int:
        """Length of the log."""
        return len(self._log)

    def running(self, position: int) -> int:
        """Number of windows that were entered since the log was so long, and not left."""
        if self._learner is not None:
            with self._paused:
                self._learner.end_dead()
        return len(read(self._log, position).running)

    def _abandon(self) -> None:
        """Forget the trial that an exception left unfinished; its calls are in the history."""
        self._frames.clear()
        self._learned()

    def _learn(self, link: Any, frame: FrameType) -> None:
        """Learn from the trial that begins."""
        self._look_at_links(True)
        assert self._links is not None
        self._links.restart(link, frame)
        self._paused.spent_ns = 0
        roots, paused = [("", link)], self._paused
        learner = self._learner = Learner(
            roots, self._links, self._log, lambda: paused.at_ns, later=True
        )
        self._links.noted = paused.around(learner.called)
        self.__class__ = self._learning

    def _learned(self) -> Structure | None:
        """What was learned from the trial that ends, if it was learned from."""
        if self._learner is None:
            return None
        structure, self._learner = self._learner.structure(), None
        self._network.mark(self)
        assert self._links is not None
        self._links.noted = lambda link: None
        self._paused.spent_ns = 0
        end_when_raising(self._replacements, structure.raising - self._raising, self)
        self._raising |= structure.raising
        self.__class__ = self._timing
        return structure

    def _fold(self) -> None:
        """Fold the trials that have ended, and forget their log."""
        log, at = self._log, self._fold_a_row()
        for network, begin, timed, structure in self._trials:
            if begin > at or network is not self._trials[0][0]:
                self._flush()
                self._history.add(log[at:begin])
            at = timed.end
            network.add(timed, log[begin:at], structure, self._history)
        self._trials.clear()
        self._flush()
        if not self._frames:
            self._history.add(log[at:])
            at = len(log)
        del log[:at]
        self._begin_at -= at

    def _fold_a_row(self) -> int:
        """Fold trials with nothing between them at once; how much of the log is done."""
        if not self._trials or any(structure for *_, structure in self._trials):
            return 0
        network, first, *_ = self._trials[0]
        timed = [one for _, _, one, _ in self._trials]
        begins = [first, *(one.end for one in timed[:-1])]
        if [(known, begin) for known, begin, _, _ in self._trials] != [
            (network, begin) for begin in begins
        ]:
            return 0
        stretch = self._log[first : timed[-1].end]
        stamps = network.all_stamps(stretch, len(timed))
        if stamps is None:
            return 0
        self._history.add(self._log[:first])
        network.add_all(timed, stamps, self._history)
        self._trials.clear()
        return timed[-1].end

    def _flush(self) -> None:
        for network in self._networks.values():
            network.flush(self._history)


def _with_callbacks(callbacks: dict[str, Callable[..., None]]) -> type[LayerTimerHook]:
    return type("LayerTimerHook", (LayerTimerHook,), callbacks)


def _learning_callbacks(timer: LayerTimerHook) -> dict[str, Callable[..., None]]:
    """The callbacks in a trial that is learned from: their own time counts for nothing."""

    def begin(*seen: Any) -> None:
        assert timer._learner is not None
        with timer._paused:
            timer._learner.begin(*seen)

    def end(*seen: Any) -> None:
        assert timer._learner is not None
        with timer._paused:
            timer._learner.end(*seen)

    walk = WalkHook(begin, end)
    return {name: getattr(walk, name) for name in CALLBACKS}


class _Links(LinkStack):
    """Tells a LayerTimerHook of the calls of all links."""

    def __init__(self, timer: LayerTimerHook) -> None:
        super().__init__()
        self._timer = timer

    def restart(self, link: Any, frame: FrameType) -> None:
        """Let this link be the only one that runs, and count from now on."""
        by_method = type(link).__call__ is not chainer.Link.__call__
        self.calls, self._running = {id(link): 1}, [(link, frame, by_method)]

    def began(self, link: Any, args: tuple[Any, ...], frame: FrameType) -> None:
        self._timer.call_begins(link, args, frame)

    def ended(self, frame: FrameType) -> None:
        self._timer.call_ends(frame)


class _Outermost(LinkHook):
    """Tells a LayerTimerHook of the calls of one link."""

    def __init__(self, timer: LayerTimerHook, link: Any) -> None:
        self.name = unique_name("Outermost")
        self._timer = timer
        self._link = link

    def __enter__(self) -> _Outermost:
        self._link.add_hook(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._link.delete_hook(self.name)

    def forward_preprocess(self, args: Any) -> None:
        self._timer.call_begins(args.link, args.args, sys._getframe(1))

    def forward_postprocess(self, args: Any) -> None:
        self._timer.call_ends(sys._getframe(1))


class _Network:
    """An outermost link that was called under a hook, and its trials."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.variants = Variants()
        self._hooks, self._marks = ExitStack(), ExitStack()
        self._watched = False
        self._now = Settings()
        self._settings: list[Settings] = []
        self._warmups: list[Known] = []
        # Trials, and those that taught a structure.
        self.passed = self._passes = 0
        self._most_passes = 1
        self._left_out = 0
        # Of every kind the trials that are folded: times, wall times and starts.
        self._samples: list[tuple[array[int], array[int], array[int]]] = []
        # Trials of one kind whose clock reads are not folded yet.
        self._kind = 0
        self._reads: list[tuple[int, ...]] = []
        self._timed: list[TimedTrial] = []

    @property
    def has_hook(self) -> bool:
        """Whether Chainer tells of its calls."""
        return type(self.root).__call__ is chainer.Link.__call__

    @property
    def n_trials(self) -> int:
        return sum(len(walls) for _, walls, _ in self._samples)

    @property
    def learns(self) -> bool:
        """Whether the next trial is to teach a structure."""
        variants = self.variants
        if not variants.structures:
            return True
        return self._passes < self._most_passes and variants.wants_pass()

    def regular(self, length: int) -> bool:
        """Whether a log has the length of the kind that came last."""
        return not self.variants.waiting and length == len(self.variants.structures[self._kind].log)

    def watch(self, timer: LayerTimerHook) -> None:
        """Tell of its calls from now on."""
        if not self._watched:
            self._watched = True
            self.mark(timer)
            if self.has_hook:
                self._hooks.enter_context(_Outermost(timer, self.root))

    def mark(self, timer: LayerTimerHook) -> None:
        """Note the calls of the links that need it: fewer, once a structure was learned."""
        self._marks.close()
        self._marks.enter_context(Marks([("", self.root)], timer.note))

    def ignore(self) -> None:
        """Tell of them no more."""
        self._marks.close()
        self._hooks.close()
        self._watched = False

    def called(self, args: tuple[Any, ...]) -> None:
        """Note with what it is called, for the settings of a recording."""
        self._passes += 1
        shape = tuple(int(n) for n in getattr(args[0], "shape", ())) if args else ()
        self._now = Settings(
            model=type(self.root).__name__,
            input="the caller's",
            input_shape=shape,
            batchsize=shape[0] if shape else 1,
            device=device_name(device_of(self.root)),
            train_mode=bool(chainer.config.train),
            **as_now(),
        )

    def add(
        self, timed: TimedTrial, log: Log, structure: Structure | None, history: _History
    ) -> None:
        """Add a trial; if it taught a structure, as a warm-up."""
        if structure is not None:
            self.flush(history)
            waiting = self.variants.learn(structure)
            for _ in range(len(self._settings), len(self.variants.structures)):
                self._settings.append(self._now)
                self._samples.append((array("q"), array("q"), array("q")))
            for number, trial, times_ns in waiting:
                self._keep(number, [trial], times_ns)
            history.add(log)
            known = self.variants.add(timed, structure.log)
            if known is not None:
                self._warmups.append(known)
            return
        found = self.variants.find(log)
        if found is None:
            history.add(log)
            self.variants.add(timed, log)
            self._left_out += not self.variants.waits(timed)
            self._most_passes += PASSES
            return
        if found[0] != self._kind:
            self.flush(history)
        self._kind = found[0]
        self._reads.append(found[1])
        self._timed.append(timed)

    def all_stamps(self, log: Log, count: int) -> NDArray[np.int64] | None:
        """The clock reads of trials in a row, if they are of the kind that came last."""
        if not self.variants.structures:
            return None
        return self.variants.structures[self._kind].all_stamps(log, count)

    def add_all(
        self, timed: Sequence[TimedTrial], stamps: NDArray[np.int64], history: _History
    ) -> None:
        """Add trials of the kind that came last, with their clock reads, (trials, reads)."""
        structure = self.variants.structures[self._kind]
        history.add_trials(structure, stamps)
        self._keep(self._kind, timed, structure.times_ns(stamps))

    def flush(self, history: _History) -> None:
        """Fold the trials whose clock reads are kept."""
        if not self._reads:
            return
        self.add_all(self._timed, np.array(self._reads, np.int64), history)
        self._reads, self._timed = [], []

    def _keep(self, number: int, trials: Sequence[TimedTrial], times_ns: NDArray[np.int64]) -> None:
        samples, walls, starts = self._samples[number]
        samples.frombytes(times_ns.tobytes())
        walls.extend(trial.wall_ns for trial in trials)
        starts.extend(trial.start_ns for trial in trials)

    def recording(self) -> Recording:
        """Its trials; those of the commonest kind first.

        Raises:
            ProfileError: No call came to its end.
        """
        kinds = [self._recording(number) for number in range(len(self._samples))]
        if not self.n_trials:
            kinds = [self._recording(*known) for known in self._warmups]
        if not kinds:
            raise ProfileError("no call of the network came to its end under this hook")
        main, *others = sorted(kinds, key=lambda kind: -kind.n_trials)
        walls = [trial.wall_ns for _, trial, _ in self._warmups] if self.n_trials else []
        return replace(
            main,
            warmup_ns=np.array(walls, np.int64),
            environment=environment.collect(main.settings.device),
            variants=tuple(kind for kind in others if kind.n_trials),
            left_out=self._left_out + len(self.variants.unknown),
        )

    def _recording(
        self, number: int, trial: TimedTrial | None = None, times_ns: Any = None
    ) -> Recording:
        structure = self.variants.structures[number]
        samples: Sequence[int]
        walls: Sequence[int]
        starts: Sequence[int]
        samples, walls, starts = self._samples[number]
        if trial is not None:
            samples, walls, starts = times_ns, [trial.wall_ns], [trial.start_ns]
        n_layers, settings = len(structure.layers), self._settings[number]
        times = np.array(samples, np.int64).reshape(len(walls), n_layers + len(structure.phases))
        return Recording(
            layers=structure.layers,
            links=structure.links,
            self_ns=np.ascontiguousarray(times[:, :n_layers]),
            trial_ns=np.array(walls, np.int64),
            start_ns=np.array(starts, np.int64),
            settings=replace(settings, trials=len(walls)),
        )


class _History:
    """All calls in the order in which they ended, with their times.

    Attributes:
        total_ns: Time within functions, that of a nested one once.
    """

    def __init__(self) -> None:
        self.total_ns = 0
        self._names: list[str] = []
        self._elapsed_ns, self._self_ns = array("q"), array("q")
        # What runs: its name, its begin, and the time of the calls in it that have ended.
        self._running: list[tuple[str, int, int]] = []

    def pairs(self, own: bool = False) -> list[tuple[str, float]]:
        """Names and times in seconds; on request without the time of nested calls."""
        times = self._self_ns if own else self._elapsed_ns
        return [(name, time_ns / 1e9) for name, time_ns in zip(self._names, times, strict=True)]

    def add(self, log: Log) -> None:
        """Add a stretch of a log."""
        at = 0
        while at < len(log):
            if type(log[at]) is not int:
                self._running.append((getattr(log[at], "__name__", ""), log[at + 3], 0))
                at += 4
                continue
            if self._running:
                name, begin_ns, nested_ns = self._running.pop()
                self._end(name, log[at] - begin_ns, nested_ns)
            at += 1

    def _end(self, name: str, elapsed_ns: int, nested_ns: int) -> None:
        if not name:  # of a link
            return
        self._names.append(name)
        self._elapsed_ns.append(elapsed_ns)
        self._self_ns.append(elapsed_ns - nested_ns)
        self._ended(elapsed_ns, elapsed_ns - nested_ns)

    def _ended(self, elapsed_ns: int, own_ns: int) -> None:
        self.total_ns += own_ns
        if self._running:
            name, begin_ns, nested_ns = self._running[-1]
            self._running[-1] = name, begin_ns, nested_ns + elapsed_ns

    def add_trials(self, structure: Structure, stamps: NDArray[np.int64]) -> None:
        """Add trials of one kind: their clock reads, (trials, reads)."""
        names, begins, ends, within = structure.history
        elapsed = stamps[:, ends] - stamps[:, begins]
        own = elapsed.copy()
        for inner, outer in within:
            own[:, outer] -= elapsed[:, inner]
        self._names += names * len(stamps)
        self._elapsed_ns.frombytes(elapsed.tobytes())
        self._self_ns.frombytes(own.tobytes())
        self._ended(int(own.sum()), int(own.sum()))

    def clear(self) -> None:
        """Forget what runs: an exception left it."""
        self._running.clear()
