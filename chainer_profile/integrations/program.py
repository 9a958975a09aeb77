"""Watches a program that uses Chainer: where its whole time goes, and the layers of its trials."""

from __future__ import annotations

import functools
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any
from weakref import ref

import chainer
from chainer.training.trainer import _ExtensionEntry

from chainer_profile.basics.errors import one_line
from chainer_profile.basics.replacements import Replacements
from chainer_profile.integrations.extensions import (
    account_of,
    described,
    part_of,
    progress_of,
)
from chainer_profile.integrations.results import TEST, TRAINING
from chainer_profile.integrations.watched import Abandoned, End, Watched
from chainer_profile.measure import patches
from chainer_profile.measure.accounts import Account, Accounts
from chainer_profile.measure.loop import Loop, loop_of, name_of
from chainer_profile.measure.operations import actual_optimizer
from chainer_profile.record import budget
from chainer_profile.record.journal import Journal
from chainer_profile.record.recording import Recording

if TYPE_CHECKING:
    from chainer_profile.integrations.trying import Trying

#: At most so many trainings are measured, and so many networks that are called outside of them.
_MOST_KINDS = 8
#: Name of the profiler's work in a program, beside those in :mod:`.watched`.
FOLDING = "merging trials"
#: Flag of classes that are not built in: their methods can be replaced.
_HEAP_TYPE = 1 << 9
_COUNTING = Lock()
#: Parts in which the program's own code runs, where a trial may begin.
_OWN = (budget.REST, budget.IMPORTS)


@dataclass(eq=False)
class _Loop:
    """A training, which began when the first of its optimizers was set up."""

    optimizers: list[ref[Any]] = field(default_factory=list)
    has_updated: bool = False  #: Then the next optimizer that is set up begins another training.
    watched: Watched | None = None  #: The iterations of its own loop, without a Trainer.
    #: Whether it waits for the first update, which shows which optimizer is one of ChainerMN's.
    waits: bool = False
    #: The optimizer that updated last, and those whose updates do not end an iteration, as others
    #: follow that use the same gradients.
    last: int = 0
    not_last: set[int] = field(default_factory=set)

    def running(self) -> list[Any]:
        """The optimizers that still exist."""
        alive = filter(None, (optimizer() for optimizer in self.optimizers))
        return [optimizer for optimizer in alive if optimizer.target is not None]

    def trial(self, command: str) -> Loop:
        """What an iteration is."""
        optimizers = self.running()
        roots = _named([optimizer.target for optimizer in optimizers])
        return Loop(roots, optimizers, command=command)


@dataclass(eq=False)
class Program:
    """Within ``with``, a program's time is kept by account, and its trials are measured.

    With a Trainer, an iteration is an ``update`` of its updater. Without one it lasts from the
    first batch, call of a network or backward to the end of an optimizer's ``update``. Outermost
    calls of networks in test mode or without a graph are trials of their own, and so are all in a
    program without optimizers.
    """

    accounts: Accounts
    journal: Callable[[str], Journal]
    command: str = ""
    warn: Callable[[str, str], None] = lambda name, problem: None
    saved: Callable[[], None] = lambda: None
    layers: bool = True
    memory: bool = False
    tries: bool = False

    def __post_init__(self) -> None:
        self.watched: list[Watched] = []  #: The kinds of trials.
        self._called_chainer = False
        self.thread, self._process = 0, 0
        self._open_operations: set[str] = set()
        self._elsewhere: Counter[str] = Counter()
        self._handlers: dict[str, Callable[[Any], patches.End | None]] = {
            patches.SETUP: self._set_up,
            patches.UPDATE: self._update,
            patches.RUN: self._run,
            patches.ITERATION: self._iterate,
            patches.NETWORK: self._begin_call,
            patches.LOAD: functools.partial(self._load, patches.LOAD),
            patches.CONVERT: functools.partial(self._load, patches.CONVERT),
            patches.BACKWARD: functools.partial(self._load, patches.BACKWARD),
        }
        # The updaters of the Trainers that run, with what begins an iteration of each.
        self._updaters: dict[int, Callable[[], patches.End | None]] = {}
        self._replacements = Replacements()
        self._loop = _Loop()
        self._has_trained = False
        self._trainers = 0
        self.extensions: tuple[budget.Extension, ...] = ()  #: Those of Trainers that have ended.
        self.trying: Trying | None = None  #: What is tried in the trials of a kind.
        self._updating = False
        # Ends the loop's open iteration; whether that is beyond the loading of data; and the entry
        # by which it began.
        self._open: End | None = None
        self._begun = False
        self._began_by = ""
        # Networks that are called outside of trainings, with the kind of each by account: so the
        # rows of a kind add up to a part of its account.
        self._networks: dict[tuple[int, Account], tuple[ref[Any], Watched]] = {}
        self._alike: dict[Any, Watched] = {}

    @property
    def called_chainer(self) -> bool:
        """Whether the program called anything in Chainer."""
        return self._called_chainer or bool(self.untimed)

    @property
    def untimed(self) -> dict[str, int]:
        """How often other threads called what."""
        counts = self._elsewhere
        names = {patches.NETWORK: budget.CALLS, patches.UPDATE: budget.UPDATES}
        return {name: counts[operation] for operation, name in names.items() if counts[operation]}

    def what_runs(self) -> str:
        """The code that the main thread runs now: a network, data loading, or other code."""
        opened = self._open_operations
        if not opened.isdisjoint((patches.NETWORK, patches.BACKWARD, patches.UPDATE)):
            return budget.NETWORK
        loads = patches.LOAD in opened or patches.CONVERT in opened
        return budget.LOADING if loads else budget.OTHER

    def unmeasured(self) -> tuple[budget.Spent, ...]:
        """The time of calls of networks that are not measured, by account."""
        calls: dict[Account, tuple[int, int]] = {}
        for trials in self.watched:
            if trials.count and not (trials.live or trials.recording):
                ns, count = calls.get(trials.spent, (0, 0))
                calls[trials.spent] = ns + trials.own_ns, count + trials.count
        return tuple(budget.Spent(*account, *spent) for account, spent in calls.items())

    def recordings(self) -> dict[str, Recording]:
        """The recordings by kind: a training first, then the others by their time."""
        ranked = sorted(self.watched, key=lambda trials: (trials.name != TRAINING, -trials.own_ns))
        return {
            trials.name: trials.recording
            for trials in ranked
            if trials.recording and trials.recording.n_trials
        }

    def __enter__(self) -> Program:
        for owner, begins, part in (
            (chainer.serializers, ("save_", "load_"), budget.SNAPSHOTS),
            (chainer.datasets, ("get_",), budget.DATA),
        ):
            for name in dir(owner):
                if name.startswith(begins):
                    account = _save_npz if name == budget.SAVE_NPZ else (part, name)
                    counted = functools.partial(self._counted, account)
                    self._replacements.wrap(owner, name, counted)
        self.thread, self._process = get_ident(), os.getpid()
        self._open_operations = patches.open_operations()
        patches.add_observer(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._open is not None and self._mine:
            self._finish(Abandoned((budget.REST, "")))
        if self._mine and self.trying is not None:
            self.trying.close()  # its patch is above those of the observers
        patches.remove_observer(self)
        self._replacements.undo()
        if self._mine:
            for watched in self.watched:
                self._end(watched)

    def _end(self, watched: Watched) -> None:
        """No more of these trials are to come."""
        if watched.trial is not None:
            with self.accounts.within(budget.PROFILER, FOLDING):
                watched.end()

    def _counted(
        self, account: Account | Callable[..., Account | None], function: Any, count: int = 1
    ) -> Any:
        """The same function; its time goes to an account, which may depend on its arguments."""

        @functools.wraps(function)
        def in_account(*args: Any, **kwargs: Any) -> Any:
            own = account if isinstance(account, tuple) else account(*args, **kwargs)
            if own is None or self.accounts.part not in _OWN or not self._mine:
                return function(*args, **kwargs)
            return in_own_account(own, args, kwargs)

        # For the sampler, this frame differs from the one that passes a call on.
        def in_own_account(own: Account, args: Any, kwargs: Any) -> Any:
            with self.accounts.within(*own, count):
                return function(*args, **kwargs)

        return in_account

    @property
    def _mine(self) -> bool:
        """Whether this is the thread, and the process, that is watched."""
        return get_ident() == self.thread and os.getpid() == self._process

    # -- the interface of patches.Observer

    def begin_operation(
        self, operation: str, owner: Any, args: tuple[Any, ...]
    ) -> patches.End | None:
        handler = self._handlers.get(operation)
        if handler is None:
            return None
        if operation == patches.BACKWARD and self.trying is not None:
            self.trying.turns.note_loss(owner.array)
        if operation != patches.NETWORK:
            self._note_chainer()
        if self._updating:  # within an updater's iteration
            return None
        return handler(owner)

    def begin_elsewhere(self, operation: str) -> None:
        with _COUNTING:
            self._elsewhere[operation] += 1

    def fail(self, error: Exception) -> None:
        """Watch no more."""
        self.warn("run", f"measuring stopped: {one_line(error)}")

    def _load(self, operation: str, owner: Any) -> patches.End | None:
        """Data is loaded or converted, or a backward begins."""
        if self._own and self._loop.running():
            self._begin(operation)
            return self._abandon_if_raised
        if self._own:
            data = budget.DATA, type(owner).__name__
            account = (self._calls, "") if operation == patches.BACKWARD else data
            within = self.accounts.within(*account, count=int(account == data))
            within.__enter__()
            return lambda error, result: _leave(within, error)
        self._begun |= operation == patches.BACKWARD
        return None

    def _abandon_if_raised(self, error: BaseException | None, result: Any) -> None:
        """An exception, such as the end of the data, begins no trial."""
        if error is not None and self._open is not None:
            self._finish(Abandoned((budget.REST, "")))

    def _note_chainer(self) -> None:
        if not self._called_chainer:
            self._called_chainer = True
            self.saved()

    @property
    def _own(self) -> bool:
        """Whether the program's own code runs, in which a trial may begin."""
        return self.accounts.part in _OWN and self._open is None and not self._trainers

    @property
    def _calls(self) -> str:
        """The part that calls of networks outside of any training belong to."""
        return budget.EVALUATION if self._has_trained else budget.CALLS

    def _train_by(self, optimizer: Any) -> None:
        """Note a new optimizer: of the training that has not begun yet, or of another one."""
        if self._loop.has_updated:
            if self._loop.watched is not None:
                self._end(self._loop.watched)
            self._loop = _Loop()
        self._loop.optimizers.append(ref(optimizer))

    def _set_up(self, optimizer: Any) -> None:
        self._train_by(optimizer)
        # ChainerMN's wrap an optimizer of Chainer's, and have another base class.
        patches.patch_multi_node_optimizers()

    def _begin_call(self, link: Any) -> patches.End | None:
        end = self._begin_call_of(link)
        return None if end is None else lambda error, result: end(error)

    def _begin_call_of(self, link: Any) -> End | None:
        """Begin the trial that a call of a network is, and return what ends it; or return None."""
        # Calls in test mode may be many and short, so this takes few steps.
        if self._open is not None:
            train, graph = _mode()
            if (self._begun or (train and graph)) and (train or graph):
                self._begun = True
                return None
            # The data was for this call, or an epoch ends before the next update.
            self._finish(Abandoned((budget.ITERATIONS if self._begun else budget.EVALUATION, "")))
        if self._loop.optimizers and all(_mode()) and self._own and self._loop.running():
            self._note_chainer()
            self._begin(patches.NETWORK)
            return None
        account = self.accounts.account
        is_own = account[0] in _OWN
        if is_own:
            account = self._calls, ""
        watched = self._watched_network(link, account)
        if watched.trial is not None and watched.trial.roots[0][1] is not link:
            watched.trial.roots = [("", link)]
        if self.trying is not None and watched is not self.trying.watched:
            self.trying.turns.pause()
        end = watched.begin(int(is_own))
        if watched.count:
            return end

        def end_first(error: BaseException | None) -> None:
            end(error)
            if error is None:  # parameters may have got their shapes
                self._alike.setdefault((account, *_likeness(link)), watched)

        return end_first

    def _update(self, optimizer: Any) -> patches.End | None:
        if self._own:
            if not self._loop.running():  # it was not set up here, but unpickled
                self._train_by(optimizer)
            self._begin(patches.UPDATE)
        if self._open is None:  # a Trainer's
            return None
        loop = self._loop
        loop.has_updated = self._begun = self._has_trained = True
        actual = actual_optimizer(optimizer)
        if actual is not optimizer:
            loop.optimizers = [
                ref(optimizer) if before() is actual else before for before in loop.optimizers
            ]
        return functools.partial(self._end_update, id(optimizer))

    def _end_update(self, optimizer: int, error: BaseException | None, result: Any) -> None:
        loop = self._loop
        if self._open is None:
            return
        if error is not None:
            self._finish(Abandoned((budget.REST, "")))
            return
        goes_on = self._began_by in (patches.BACKWARD, patches.UPDATE)
        if goes_on and loop.last not in (0, optimizer):
            loop.not_last.add(loop.last)
        loop.last = optimizer
        if optimizer not in loop.not_last:
            self._finish()

    # -- the trials of a loop

    def _begin(self, by: str) -> None:
        loop = self._loop
        if loop.watched is None:
            loop.watched = self._watch(TRAINING, loop.trial(self.command))
            loop.waits = "chainermn" in sys.modules
            if not loop.waits:
                self._measure(loop.watched)
        elif loop.waits and loop.watched.count:
            loop.waits = False
            loop.watched.trial = loop.trial(self.command)
            self._measure(loop.watched)
        self._begun, self._began_by = by in (patches.NETWORK, patches.BACKWARD), by
        self._open = loop.watched.begin()

    def _finish(self, error: Abandoned | None = None) -> None:
        end, self._open = self._open, None
        assert end is not None
        end(error)

    def _watched_network(self, link: Any, account: Account) -> Watched:
        """The trials of a network and its copies: an evaluation may make a copy each time."""
        if (id(link), account) in self._networks:
            network, watched = self._networks[id(link), account]
            if network() is link and watched.trial is not None:
                return watched
        self._note_chainer()
        like = account, *_likeness(link)
        if like not in self._alike or self._alike[like].trial is None:
            trial = Loop([("", link)], command=self.command)
            self._alike[like] = self._watch(TEST, trial)
            self._alike[like].spent = account
            self._measure(self._alike[like], alone=not (self._has_trained or self._loop.running()))
        self._networks[id(link), account] = ref(link), self._alike[like]
        return self._alike[like]

    # -- any trials

    def _watch(self, kind: str, trial: Loop) -> Watched:
        number = sum(trials.name.partition("-")[0] == kind for trials in self.watched) + 1
        name = kind if number == 1 else f"{kind}-{number}"
        warn = functools.partial(self.warn, name)
        self.watched.append(Watched(name, trial, self.accounts, warn, self.saved))
        return self.watched[-1]

    def _measure(self, watched: Watched, alone: bool = True) -> None:
        """Measure some of these trials from now on; memory and cures in one kind at a time.

        ``alone`` says that they are no evaluation beside a training.
        """
        number = int(watched.name.partition("-")[2] or 1)
        if not self.layers or number > _MOST_KINDS:
            return
        journal = functools.partial(self.journal, watched.name)
        calibrates = len(self.watched) == 1
        watched.measure(journal, alone and self.memory, calibrates)
        if not (alone and self.tries):
            return
        if self.trying is not None:
            # Those of a network give way to those of the first training.
            if watched.name != TRAINING or self.trying.watched.name == TRAINING:
                return
            self.trying.close()
        # It imports pandas and the findings, so only a program with cures waits for them.
        from chainer_profile.integrations.trying import Trying

        self.trying = Trying(watched)

    # -- a Trainer

    def _run(self, trainer: Any) -> patches.End:
        """A Trainer runs: its iterations are the trials, its extensions have accounts."""
        watched = self._watch(TRAINING, loop_of(trainer.updater, command=self.command))
        self._measure(watched)
        # When the first iteration begins: a snapshot may be loaded before.
        before: dict[str, int] = {}
        if watched.turns is not None:
            watched.turns.progress = functools.partial(part_of, trainer, before)
        self._has_trained = True
        self._trainers += 1
        patches.observe_class(patches.ITERATION, type(trainer.updater))

        def begin_iteration() -> patches.End:
            before.update({} if before else progress_of(trainer))
            end = watched.begin(ends=True)
            self._updating = True

            def end_iteration(error: BaseException | None, result: Any) -> None:
                self._updating = False
                end(error)

            return end_iteration

        self._updaters[id(trainer.updater)] = begin_iteration
        replacements = Replacements()
        self._count_extensions(replacements, trainer)

        def end_run(error: BaseException | None, result: Any) -> None:
            replacements.undo()
            del self._updaters[id(trainer.updater)]
            self._trainers -= 1
            self.extensions += tuple(described(trainer, before or progress_of(trainer)))
            self._loop.has_updated = True
            self._end(watched)

        return end_run

    def _iterate(self, updater: Any) -> patches.End | None:
        begin = self._updaters.get(id(updater))
        return None if begin is None else begin()

    def _count_extensions(self, replacements: Replacements, trainer: Any) -> None:
        named = {id(entry.extension): name for name, entry in trainer._extensions.items()}

        def account_by_object(extension: Any, *_: Any) -> Account | None:
            name = named.get(id(extension))
            return None if name is None else account_of(extension, name)

        seen: set[tuple[type, str]] = set()
        functions: dict[int, Any] = {}
        for name, entry in trainer._extensions.items():
            kind = type(entry.extension)
            if not kind.__flags__ & _HEAP_TYPE:  # a function
                account = account_of(entry.extension, name)
                functions[id(entry)] = self._counted(account, entry.extension)
                continue
            for method in ("__call__", "initialize", "finalize"):
                owner = next((base for base in kind.__mro__ if method in vars(base)), None)
                if owner is not None and (owner, method) not in seen:
                    seen.add((owner, method))
                    by_instance = functools.partial(
                        self._counted, account_by_object, count=int(method == "__call__")
                    )
                    replacements.wrap(owner, method, by_instance)
        if functions:
            replacements.put(_ExtensionEntry, "extension", _counted_extension(functions))


def _counted_extension(functions: dict[int, Any]) -> property:
    """In place of the attribute of Chainer's entries: gives functions that count their time."""

    def get(entry: Any) -> Any:
        return functions.get(id(entry)) or vars(entry)["extension"]

    def put(entry: Any, extension: Any) -> None:
        functions.pop(id(entry), None)
        vars(entry)["extension"] = extension

    return property(get, put)


def _leave(within: AbstractContextManager[None], error: BaseException | None) -> None:
    within.__exit__(None if error is None else type(error), error, None)


def _mode() -> tuple[bool, bool]:
    """``chainer.config.train`` and ``enable_backprop``, in a quarter of the time."""
    here, elsewhere = chainer.config._local.__dict__, chainer.global_config
    train = here.get("train", elsewhere.train)
    return train, here.get("enable_backprop", elsewhere.enable_backprop)


def _likeness(link: Any) -> tuple[Any, ...]:
    """What a network has in common with its copies: class, and shapes of parameters."""
    arrays = [(path, param.array) for path, param in sorted(link.namedparams())]
    shapes = [(path, None if array is None else array.shape) for path, array in arrays]
    return type(link), *shapes


def _save_npz(file: Any, obj: Any, compression: bool = True) -> Account:
    return budget.SNAPSHOTS, budget.SAVE_NPZ if compression else budget.SAVE_NPZ_PLAIN


def _named(trained: Sequence[Any]) -> list[tuple[str, Any]]:
    """Networks, with prefixes for their links' paths: their classes, or nothing for a single one.

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
