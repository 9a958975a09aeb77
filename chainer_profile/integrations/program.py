"""Watches a program that uses Chainer: where its whole time goes, and the layers of its trials."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any
from weakref import ref

import chainer
from chainer.training import extensions

from chainer_profile.basics.errors import one_line
from chainer_profile.basics.replacements import Replacements
from chainer_profile.measure import entries
from chainer_profile.measure.devices import clock_of, device_of
from chainer_profile.measure.entries import Entries
from chainer_profile.measure.live import COUNTING, TRACING, LiveTrials
from chainer_profile.measure.loop import LoopTrial, name_of, trial_of
from chainer_profile.measure.ranks import rank_of
from chainer_profile.measure.windows import actual_optimizer
from chainer_profile.record.budget import (
    CALLS,
    DATA,
    EVALUATION,
    EXTENSIONS,
    IMPORTS,
    ITERATIONS,
    PROFILER,
    REST,
    SNAPSHOTS,
    UPDATES,
)

if TYPE_CHECKING:
    from chainer_profile.measure.accounts import Account, Accounts
    from chainer_profile.record.journal import Journal
    from chainer_profile.record.recording import Rank, Recording

#: Trials of a kind that are all profiled as far as the cost allows, behind which they get ever
#: rarer, and the part of them that is left as it is, to see what profiling adds.
_DENSE, _PLAIN = 400, 0.125
#: First trials that are profiled whatever they cost, and what profiling may cost of the trials' own
#: time behind them.
_FIRST, _COST = 2, 0.05
#: Of several ranks all profile the same trials: every second one at first, then every tenth.
_OFTEN, _SELDOM, _OFTEN_TRIALS = 0.5, 0.1, 60
#: Nanoseconds that the memory pass takes for each call, about: tracemalloc sees all of Python's
#: allocations. Those that it may add whatever the trials take, and else of their own time.
_MEMORY_CALL_NS, _MEMORY_NS, _MEMORY_COST = 500_000, 300_000_000, 0.03
#: Trainings that are measured, and networks that are called outside of them.
_MOST = 4
#: What the profiler does in a program.
AROUND, WITHIN, FOLDING = "around trials", "in profiled trials", "putting trials together"
#: Names of the kinds of trials; the second one of a kind has a number behind it.
TRAINING, TEST = "train", "test"
#: Of a class that is not built in, whose methods can be replaced.
_HEAP_TYPE = 1 << 9
_SLOWED = (COUNTING, TRACING)
#: Where a program's own code runs, in which a trial may begin.
_OWN = (REST, IMPORTS)


class _Abandoned(BaseException):
    """A trial that turned out to be none."""


def _abandoned(error: object, live: LiveTrials | None) -> Account | None:
    """Where the time goes of a trial that turned out to be none: it is not counted."""
    if not isinstance(error, _Abandoned):
        return None
    if live is not None:
        live.iteration -= 1
    account: Account = error.args[0]
    return account


@dataclass
class Watched:
    """Trials of one kind of a program.

    Attributes:
        name: ``train``, or ``test`` for calls of a network outside of a training; with a number
            behind it from the second on.
        trial: What a trial is; None when no more are to come, so that its network may go.
        live: What measures them; None where none is to be measured.
        rank: Which rank of several this process is.
        recording: What was measured, at the end.
        spent: The account that the time of a trial goes to.
        count: Trials so far.
        own_ns: Their time, without that of other accounts within.
        profiling_ns: What profiling added to them so far.
    """

    name: str
    trial: LoopTrial | None
    live: LiveTrials | None = None
    rank: Rank | None = None
    recording: Recording | None = None
    spent: Account = (ITERATIONS, "")
    count: int = 0
    own_ns: int = 0
    profiling_ns: int = 0
    # Time of the last trial that no counting of memory slowed.
    usual_ns: int = 0

    def stop(self) -> None:
        """Measure no more."""
        live, self.live = self.live, None
        if live is not None:
            live.end()
            self.recording = live.recording()


class _Plain:
    """A trial that is timed as a whole and no more: as most are, it takes few steps.

    Args:
        accounts: Keeps the time.
        watched: The kind of trials.
        count: How often it counts in its account.
    """

    __slots__ = ("_accounts", "_began", "_count", "_live", "_watched")

    def __init__(self, accounts: Accounts, watched: Watched, count: int) -> None:
        self._accounts, self._watched, self._count = accounts, watched, count
        self._live, self._began = watched.live, (0, 0)

    def __enter__(self) -> None:
        self._accounts.open(*self._watched.spent)
        if self._live is not None:
            self._began = self._live.begin_plain()

    def __exit__(self, kind: type[BaseException] | None, error: object, _: object) -> None:
        watched = self._watched
        if kind is not None:
            self._accounts.close(_abandoned(error, self._live), 0)
            return
        if self._live is not None:
            self._live.end_plain(self._began)
        ns = self._accounts.close(None, self._count)
        watched.count += 1
        watched.own_ns += ns
        watched.usual_ns = ns


class Program:
    """Within ``with``, a program's time is kept by account, and its trials are measured.

    With a Trainer, an iteration is an ``update`` of its updater. Without one it lasts from the
    first batch, call of a network or backward to the end of an optimizer's ``update``. Outermost
    calls of networks in test mode or without a graph are trials of their own, and so are all in a
    program without optimizers.

    Args:
        accounts: Keeps the time.
        journal: Gives the journal of a kind of trials by its name.
        command: The command line.
        warn: Is told of what goes wrong, behind the name of the kind of trials.
        saved: Is called with the first call of Chainer, and before every trial.
        layers: Measure trials by layer.
        memory: Make the memory pass.

    Attributes:
        watched: The kinds of trials.
    """

    def __init__(
        self,
        accounts: Accounts,
        journal: Callable[[str], Journal],
        command: str = "",
        warn: Callable[[str, str], None] = lambda name, problem: None,
        saved: Callable[[], None] = lambda: None,
        layers: bool = True,
        memory: bool = True,
    ) -> None:
        self.watched: list[Watched] = []
        self._called_chainer = False
        self._accounts, self._journal = accounts, journal
        self._command, self._warn = command, warn
        self._saved, self._layers, self._memory = saved, layers, memory
        self._entries = Entries(self._around)
        self._handlers: dict[str, Callable[[Any, Callable[[], Any]], Any]] = {
            entries.SETUP: self._set_up,
            entries.UPDATE: self._update,
            entries.CALL: self._call,
            entries.RUN: self._run,
        }
        self._replacements = Replacements()
        # The optimizers of the training that runs, which began when the first of them was set up;
        # and whether any has updated.
        self._optimizers: list[ref[Any]] = []
        self._updated = self._has_trained = False
        self._trainers = 0
        self._training: Watched | None = None
        self._waits = False
        self._updating: LoopTrial | None = None
        # The trial of the training that is open, and whether more than data was seen of it.
        self._open: AbstractContextManager[None] | None = None
        self._begun = False
        # What it began with, whose update was the last one, and optimizers whose updates do not end
        # an iteration: others update behind them, by what was computed before.
        self._began_by = ""
        self._last: Any = None
        self._not_last: set[int] = set()
        # Networks that are called outside of trainings, and the kind that each one is of.
        self._networks: dict[int, tuple[ref[Any], Watched]] = {}
        self._alike: dict[Any, Watched] = {}
        self._coin = Random(0)

    @property
    def called_chainer(self) -> bool:
        """Whether anything of Chainer's was called."""
        return self._called_chainer or bool(self.untimed)

    @property
    def untimed(self) -> dict[str, int]:
        """What other threads called, and how often."""
        counts = self._entries.elsewhere
        names = {entries.CALL: CALLS, entries.UPDATE: UPDATES}
        return {name: counts[entry] for entry, name in names.items() if counts[entry]}

    def __enter__(self) -> Program:
        for name in dir(chainer.serializers):
            if name.startswith(("save_", "load_")):
                self._put_account(chainer.serializers, name, SNAPSHOTS)
        for name in dir(chainer.datasets):
            if name.startswith("get_"):
                self._put_account(chainer.datasets, name, DATA)
        self._entries.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._open is not None and self._entries.mine:
            self._abandon((REST, ""))
        self._entries.__exit__()
        self._replacements.undo()
        if self._entries.mine:
            for watched in self.watched:
                self._end(watched)

    def _end(self, watched: Watched) -> None:
        """Of these trials no more are to come."""
        if watched.trial is not None:
            with self._accounts.within(PROFILER, FOLDING), self._excused(watched):
                watched.stop()
            watched.trial = None  # its network may go

    def _put_account(self, owner: Any, name: str, part: str) -> None:
        """Have the time of a function of Chainer's in an account of its own."""

        def counted(function: Any) -> Any:
            @functools.wraps(function)
            def in_account(*args: Any, **kwargs: Any) -> Any:
                if self._accounts.part not in _OWN or not self._entries.mine:
                    return function(*args, **kwargs)
                with self._accounts.within(part, name):
                    return function(*args, **kwargs)

            return in_account

        self._replacements.wrap(owner, name, counted)

    # -- Chainer's entries

    def _around(self, entry: str, owner: Any, call: Callable[[], Any]) -> Any:
        if not self._called_chainer:
            self._called_chainer = True
            self._saved()
        if self._updating is not None:  # within an updater's iteration
            return self._updating.around(entry, owner, call)
        handler = self._handlers.get(entry)
        if handler is not None:
            return handler(owner, call)
        if self._own and self._now_optimizers():
            self._begin(entry)
            return self._first(entry, owner, call)
        if self._own:
            data = DATA, type(owner).__name__
            account = (self._calls, "") if entry == entries.BACKWARD else data
            with self._accounts.within(*account, count=int(account == data)):
                return call()
        self._begun |= entry == entries.BACKWARD
        return self._through(entry, owner, call)

    def _first(self, entry: str, owner: Any, call: Callable[[], Any]) -> Any:
        """What a trial begins with; one that fails, as at the end of the data, begins none."""
        self._begun = entry == entries.BACKWARD
        try:
            return self._through(entry, owner, call)
        except BaseException:
            self._abandon((REST, ""))
            raise

    @property
    def _own(self) -> bool:
        """Whether the program's own code runs, in which a trial may begin."""
        return self._accounts.part in _OWN and not self._trainers

    @property
    def _calls(self) -> str:
        """What calls of networks belong to, outside of any training."""
        return EVALUATION if self._has_trained else CALLS

    def _through(self, entry: str, owner: Any, call: Callable[[], Any]) -> Any:
        if self._open is None or self._training is None:
            return call()
        assert self._training.trial is not None
        return self._training.trial.around(entry, owner, call)

    def _set_up(self, optimizer: Any, call: Callable[[], Any]) -> Any:
        if self._updated:  # another training begins
            if self._training is not None:
                self._end(self._training)
            self._optimizers, self._training = [], None
            self._updated = False
            self._last, self._not_last = None, set()
        self._optimizers.append(ref(optimizer))
        # Those of ChainerMN are no optimizers of Chainer's, and stand for one.
        several = sys.modules.get("chainermn.optimizers")
        for name in ("_MultiNodeOptimizer", "_DoubleBufferingOptimizer"):
            if hasattr(several, name):
                self._entries.stand_at(entries.UPDATE, getattr(several, name))
        return call()

    def _now_optimizers(self) -> list[Any]:
        found = [one() for one in self._optimizers]
        return [one for one in found if one is not None and one.target is not None]

    def _call(self, link: Any, call: Callable[[], Any]) -> Any:
        train, graph = chainer.config.train, chainer.config.enable_backprop
        test = not (train and graph)
        if self._open is not None:
            if (self._begun or not test) and (train or graph):
                self._begun = True
                return self._through(entries.CALL, link, call)
            # The data was for this; or an epoch ends before the next update.
            self._abandon((ITERATIONS if self._begun else EVALUATION, ""))
        if self._own and not test and self._now_optimizers():
            self._begin(entries.CALL)
            self._begun = True
            return self._through(entries.CALL, link, call)
        return self._own_call(link, call)

    def _update(self, optimizer: Any, call: Callable[[], Any]) -> Any:
        if self._own and self._open is None:
            self._begin(entries.UPDATE)
        if self._open is None:  # a Trainer's
            return call()
        self._updated = self._begun = self._has_trained = True
        actual = actual_optimizer(optimizer)
        if actual is not optimizer:
            self._optimizers = [
                ref(optimizer) if one() is actual else one for one in self._optimizers
            ]
        try:
            given = call()
        except BaseException:
            self._abandon((REST, ""))
            raise
        goes_on = self._began_by in (entries.BACKWARD, entries.UPDATE)
        if goes_on and self._last not in (None, id(optimizer)):
            self._not_last.add(self._last)
        self._last = id(optimizer)
        if id(optimizer) not in self._not_last:
            self._finish()
        return given

    # -- the trials of a loop

    def _begin(self, by: str) -> None:
        if self._training is None:
            self._training = self._watch(TRAINING, self._loop_trial())
            # The first update of one of ChainerMN's optimizers shows which one that is.
            self._waits = "chainermn" in sys.modules
            if not self._waits:
                self._measure(self._training)
        elif self._waits and self._training.count:
            self._waits = False
            self._training.trial = self._loop_trial()
            self._measure(self._training)
        self._begun, self._began_by = False, by
        self._open = self._trial(self._training)
        self._open.__enter__()

    def _finish(self) -> None:
        opened, self._open = self._open, None
        assert opened is not None
        opened.__exit__(None, None, None)

    def _abandon(self, into: Account) -> None:
        opened, self._open = self._open, None
        assert opened is not None
        opened.__exit__(_Abandoned, _Abandoned(into), None)

    def _loop_trial(self) -> LoopTrial:
        """What an iteration of the training is that runs now."""
        optimizers = self._now_optimizers()
        roots = _named([one.target for one in optimizers])
        prefixes = {id(root): prefix for prefix, root in roots}
        of = [(prefixes.get(id(one.target), ""), one) for one in optimizers]
        return LoopTrial(roots, of, command=self._command)

    def _own_call(self, link: Any, call: Callable[[], Any]) -> Any:
        """A call that is a trial of its own."""
        watched = self._watched_network(link)
        if watched.trial is not None and watched.trial.roots[0][1] is not link:
            watched.trial.roots = [("", link)]
        own = self._accounts.part in _OWN
        watched.spent = (self._calls, "") if own else self._accounts.account
        first = not watched.count
        with self._trial(watched, int(own)):
            given = call()
        if first:  # parameters may have got their shapes
            self._alike.setdefault(_likeness(link), watched)
        return given

    def _watched_network(self, link: Any) -> Watched:
        """The trials of a network, and of its copies: an evaluation may make one each time."""
        if id(link) in self._networks:
            known, watched = self._networks[id(link)]
            if known() is link and watched.trial is not None:
                return watched
        like = _likeness(link)
        if like not in self._alike or self._alike[like].trial is None:
            trial = LoopTrial([("", link)], command=self._command)
            self._alike[like] = self._watch(TEST, trial)
            self._measure(self._alike[like], not (self._has_trained or self._now_optimizers()))
        self._networks[id(link)] = ref(link), self._alike[like]
        return self._alike[like]

    # -- any trials

    def _watch(self, kind: str, trial: LoopTrial) -> Watched:
        number = sum(one.name.partition("-")[0] == kind for one in self.watched) + 1
        self.watched.append(Watched(kind if number == 1 else f"{kind}-{number}", trial))
        return self.watched[-1]

    def _measure(self, watched: Watched, memory: bool = True) -> None:
        """Measure some of these trials from now on; memory of one kind at a time."""
        trial, number = watched.trial, watched.name.partition("-")[2]
        if self._layers and trial is not None and int(number or 1) <= _MOST:
            clock = clock_of(device_of(trial.roots[0][1]))
            journal = functools.partial(self._journal, watched.name)
            warn = functools.partial(self._warn, watched.name)
            memory = memory and self._memory
            watched.rank = rank_of(trial.optimizers, clock.now_ns)
            watched.live = LiveTrials(
                *(trial, clock, self._entries, journal, warn, memory, watched.rank),
                calibrates=len(self.watched) == 1,
            )

    def _trial(self, watched: Watched, count: int = 1) -> AbstractContextManager[None]:
        """A trial runs within this; what the profiler does around it is kept apart."""
        self._saved()
        live = watched.live
        if live is not None:
            most_ns = max(_MEMORY_NS, _MEMORY_COST * watched.own_ns)
            live.counts = live.calls * _MEMORY_CALL_NS <= most_ns
            if self._chooses(watched):
                live.want()
        if live is None or live.is_plain:
            return _Plain(self._accounts, watched, count)
        return self._seen_trial(watched, live, count)

    @contextmanager
    def _seen_trial(self, watched: Watched, live: LiveTrials, count: int) -> Iterator[None]:
        """A trial that is profiled, or whose memory is counted."""
        accounts = self._accounts
        accounts.open(*watched.spent)
        into: Account | None = None
        try:
            with self._measured(watched, live):
                yield
        except BaseException as error:
            into, count = _abandoned(error, live), 0
            raise
        finally:
            ns = accounts.close(into, count)
        watched.count += 1
        watched.own_ns += self._without_added(watched, live, ns)

    def _without_added(self, watched: Watched, live: LiveTrials, ns: int) -> int:
        """A trial's own time; what profiling added to it is the profiler's."""
        added_ns = live.added_ns
        if live.mode in _SLOWED and watched.usual_ns:
            added_ns = ns - watched.usual_ns
        added_ns = max(0, min(ns, added_ns))
        if live.mode not in _SLOWED:
            watched.usual_ns = ns - added_ns
            self._spend(watched, added_ns)
        if added_ns:
            self._accounts.move(watched.spent, (PROFILER, WITHIN), added_ns)
        return ns - added_ns

    @contextmanager
    def _measured(self, watched: Watched, live: LiveTrials) -> Iterator[None]:
        with ExitStack() as stack:
            with self._around_trial(watched):
                trial = live.trial()
                with self._excused(watched):
                    trial.__enter__()
            stack.push(self._ending(watched, trial))
            yield

    def _chooses(self, watched: Watched) -> bool:
        """Whether the next trial is to be profiled: late ones are, too, however long it goes on."""
        count, chance = watched.count, self._coin.random()
        if watched.rank is not None:
            return chance < (_OFTEN if count < _OFTEN_TRIALS else _SELDOM)
        optimizers = len(watched.trial.optimizers) if watched.trial is not None else 1
        if optimizers > 1 and count < optimizers:
            return False  # which one's update ends an iteration is not known yet
        if count < _FIRST:
            return True
        cheap = watched.profiling_ns <= _COST * watched.own_ns
        return cheap and chance < min(1 - _PLAIN, _DENSE / count)

    def _ending(
        self, watched: Watched, trial: AbstractContextManager[None]
    ) -> Callable[..., bool | None]:
        def end(*raised: Any) -> bool | None:
            goes_on = None
            with self._around_trial(watched), self._excused(watched):
                if watched.live is not None:
                    goes_on = trial.__exit__(*raised)
            return goes_on

        return end

    @contextmanager
    def _excused(self, watched: Watched) -> Iterator[None]:
        """What goes wrong in measuring ends that, and not the program."""
        try:
            yield
        except Exception as error:
            self._warn(watched.name, f"measured no further: {one_line(error)}")
            with suppress(Exception):
                watched.stop()

    @contextmanager
    def _around_trial(self, watched: Watched) -> Iterator[None]:
        self._accounts.open(PROFILER, AROUND)
        try:
            yield
        finally:
            self._spend(watched, self._accounts.close())

    def _spend(self, watched: Watched, ns: int) -> None:
        """Count what profiling a trial took, but what it takes once: looking up, and memory."""
        live = watched.live
        if live is not None and live.mode not in _SLOWED and live.profiled > 1:
            watched.profiling_ns += ns

    # -- a Trainer

    def _run(self, trainer: Any, call: Callable[[], Any]) -> Any:
        """Run a Trainer: its iterations are the trials, its extensions have accounts."""
        trial = trial_of(trainer.updater, command=self._command)
        watched = self._watch(TRAINING, trial)
        self._measure(watched)
        self._has_trained = True
        self._trainers += 1
        with ExitStack() as stack:
            stack.callback(self._ran, watched)
            replacements = stack.enter_context(Replacements())

            def in_trial(update: Callable[[], None]) -> Callable[[], None]:
                def measured_update() -> None:
                    if not self._entries.mine:  # a child goes on with it
                        return update()
                    with self._trial(watched):
                        self._updating = trial
                        try:
                            update()
                        finally:
                            self._updating = None

                return measured_update

            replacements.wrap(trainer.updater, "update", in_trial)
            self._count_extensions(replacements, trainer)
            return call()

    def _ran(self, watched: Watched) -> None:
        self._trainers -= 1
        self._updated = True
        self._end(watched)

    def _count_extensions(self, replacements: Replacements, trainer: Any) -> None:
        named = {id(entry.extension): name for name, entry in trainer._extensions.items()}

        def counted(account: Account, method: Any) -> Any:
            @functools.wraps(method)
            def in_account(*args: Any, **kwargs: Any) -> Any:
                with self._accounts.within(*account):
                    return method(*args, **kwargs)

            return in_account

        def by_instance(count: int, method: Any) -> Any:
            @functools.wraps(method)
            def in_account(extension: Any, *args: Any, **kwargs: Any) -> Any:
                name = named.get(id(extension))
                if name is None or self._accounts.part not in _OWN:
                    return method(extension, *args, **kwargs)
                with self._accounts.within(*_account_of(extension, name), count):
                    return method(extension, *args, **kwargs)

            return in_account

        seen: set[tuple[type, str]] = set()
        for name, entry in trainer._extensions.items():
            kind = type(entry.extension)
            if not kind.__flags__ & _HEAP_TYPE:  # a function
                account = _account_of(entry.extension, name)
                replacements.wrap(entry, "extension", functools.partial(counted, account))
                continue
            for method in ("__call__", "initialize", "finalize"):
                owner = next((one for one in kind.__mro__ if method in vars(one)), None)
                if owner is not None and (owner, method) not in seen:
                    seen.add((owner, method))
                    count = int(method == "__call__")
                    replacements.wrap(owner, method, functools.partial(by_instance, count))


def _likeness(link: Any) -> tuple[Any, ...]:
    """What is the same of a network and its copies: its class, and its parameters' shapes."""
    arrays = [(path, param.array) for path, param in sorted(link.namedparams())]
    shapes = [(path, None if array is None else array.shape) for path, array in arrays]
    return type(link), *shapes


def _account_of(extension: Any, name: str) -> Account:
    if isinstance(extension, extensions.Evaluator):
        return EVALUATION, name
    if "snapshot" in type(extension).__name__.lower() or "snapshot" in name:
        return SNAPSHOTS, name.lstrip("_").lower()
    return EXTENSIONS, name


def _named(trained: Sequence[Any]) -> list[tuple[str, Any]]:
    """Networks with what is put before their links' paths: names of classes, or nothing for one.

    Links of others are left out.
    """
    networks = list({id(network): network for network in trained}.values())
    below = {id(link) for network in networks for link in network.links(skipself=True)}
    outermost = [network for network in networks if id(network) not in below]
    if len(outermost) == 1:
        return [("", outermost[0])]
    names = [name_of(network) for network in outermost]
    numbered = [
        f"/{name}" if names.count(name) == 1 else f"/{name}-{names[:at].count(name) + 1}"
        for at, name in enumerate(names)
    ]
    return list(zip(numbered, outermost, strict=True))
