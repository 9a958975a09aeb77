"""The kinds of a program's trials: its trainings, and calls of networks that are alike."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import ref

import chainer

from chainer_profile.integrations.networks import Network, Networks, ShownPaths, Training
from chainer_profile.integrations.results import TEST, TRAINING, TRIED
from chainer_profile.integrations.trial_kinds import Subjects, TrialKind
from chainer_profile.integrations.units import TimedUnit
from chainer_profile.measure.accounts import Account
from chainer_profile.measure.clock import Clock
from chainer_profile.measure.event_log import EventLog
from chainer_profile.measure.patterns import UnitKind
from chainer_profile.record import budget
from chainer_profile.record.journal import Journal
from chainer_profile.record.recording import Recording

#: At most so many trainings are measured, and so many kinds of calls.
_MOST_KINDS = 8


class ProgramKinds:
    """The kinds of a program's trials.

    Args:
        networks: The program's networks.
        journal: Opens the journal of a kind of trials.
        command: How the program was called.
        warn: Called with the name of a kind of trials, and a problem that the user should know.
    """

    def __init__(
        self,
        networks: Networks,
        journal: Callable[[str], Journal],
        command: str,
        warn: Callable[[str, str], None],
    ) -> None:
        self.networks = networks
        self._journal, self._command, self._warn = journal, command, warn
        #: All of them, in their order.
        self.every: list[TrialKind] = []
        self._by_training: dict[int, TrialKind] = {}
        self._by_updater: dict[int, Training] = {}
        # By the kind of trials without a change.
        self._changed: dict[TrialKind, TrialKind] = {}
        # By account and likeness of the network.
        self._by_likeness: dict[Any, TrialKind] = {}

    def training_of_updater(self, updater: Any, training: Training | None) -> Training:
        """The training that an updater's iterations belong to: a Trainer's, or its own."""
        known = self._by_updater.get(self.networks.number_of(updater))
        if known is None or (training is not None and known is not training):
            known = training or self.networks.new_training()
            self._by_updater[self.networks.number_of(updater)] = known
            named = updater.get_all_optimizers()
            known.optimizers = [ref(one) for one in named.values()]
            kind = self.kind_of_training(known.number)
            for name, optimizer in named.items():
                self._mark_updated(optimizer)
                number = self.networks.add_root(optimizer.target)
                # One optimizer's network gives its own paths; of several, each has its name.
                kind.shown.show(number, "" if len(named) == 1 else f"/{name}")
            # A ParallelUpdater has a copy of the network for every other device.
            for name, model in (getattr(updater, "_models", None) or {}).items():
                number = self.networks.add_root(model)
                kind.shown.show(number, f"/{name}")
            self.begin_training(known)
        return known

    def _mark_updated(self, optimizer: Any) -> None:
        found = self.networks.training_of(optimizer)
        if found is not None:
            found[0].has_updated = True

    def kind_of_training(self, number: int) -> TrialKind:
        """The kind of a training's iterations."""
        kind = self._by_training.get(number)
        if kind is None:
            training, shown = self.networks.trainings[number], ShownPaths(self.networks)
            kind = self._new_kind(TRAINING, partial(_subjects_of, training), shown)
            self._by_training[number] = kind
        return kind

    def begin_training(self, training: Training) -> None:
        """The first update of a training, or its first iteration, begins."""
        training.has_updated = True
        kind, targets = self.kind_of_training(training.number), training.targets()
        kind.shown.show_training(targets)
        kind.note_subject(train_mode=bool(chainer.config.train))
        for target in targets:
            self.networks.note_links(target)

    def kind_of_calls(self, network: Network, account: Account) -> TrialKind:
        """The kind of calls of a network and its copies: an evaluation may make a copy each."""
        kind = self._by_likeness.get((account, network.likeness))
        if kind is None:
            shown = ShownPaths(self.networks)
            kind = self._new_kind(TEST, _nothing, shown, account)
            self._by_likeness[account, network.likeness] = kind
        kind.subjects = partial(_only, network.reference)
        kind.note_subject(network.subject, network.train_mode)
        kind.shown.show(network.prefix, "")
        return kind

    def kind_of_own_call(self, unit: TimedUnit) -> TrialKind:
        """The kind of a call of a network outside of iterations and extensions."""
        is_test = unit.kind is UnitKind.TEST and unit.is_trained
        assert unit.network is not None
        return self.kind_of_calls(
            unit.network, (budget.TEST_CALLS if is_test else budget.CALLS, "")
        )

    def _new_kind(
        self,
        name: str,
        subjects: Subjects,
        shown: ShownPaths,
        spent: Account = (budget.ITERATIONS, ""),
    ) -> TrialKind:
        kind = TrialKind(self._numbered(name), subjects, shown, self._command, spent)
        self.every.append(kind)
        return kind

    def _numbered(self, name: str) -> str:
        number = sum(kind.name.partition("-")[0] == name for kind in self.every) + 1
        return name if number == 1 else f"{name}-{number}"

    def with_changes(self, kind: TrialKind) -> TrialKind:
        """The kind of those trials of a kind in which changes are tried."""
        if kind not in self._changed:
            self._changed[kind] = kind.with_changes(self._numbered(TRIED))
            self.every.append(self._changed[kind])
        return self._changed[kind]

    def alike(self, kind: TrialKind) -> list[TrialKind]:
        """A kind, and that of its trials in which changes are tried."""
        return [kind, self._changed[kind]] if kind in self._changed else [kind]

    def measure(self, kind: TrialKind, log: EventLog, clock: Clock) -> None:
        """Measure trials of a kind by row, if they should be."""
        if kind.writer is None and kind.number <= _MOST_KINDS and not kind.has_failed:
            calibrates = not any(other.writer for other in self.every)
            journal, warn = partial(self._journal, kind.name), partial(self._warn, kind.name)
            kind.measure(log, clock, journal, warn, calibrates)

    def recordings(self) -> dict[str, Recording]:
        """The recordings by kind: a training first, then the others by their time."""
        ranked = sorted(self.every, key=lambda kind: (kind.name != TRAINING, -kind.own_ns))
        return {
            kind.name: kind.recording
            for kind in ranked
            if kind.recording is not None and kind.recording.n_trials
        }

    def unmeasured(self) -> tuple[budget.Spent, ...]:
        """The time of calls of networks that are not measured, by account."""
        calls: dict[Account, tuple[int, int]] = {}
        for kind in self.every:
            if kind.count and not kind.is_measured:
                ns, count = calls.get(kind.spent, (0, 0))
                calls[kind.spent] = ns + kind.own_ns, count + kind.count
        return tuple(budget.Spent(*account, *spent) for account, spent in calls.items())


def _nothing() -> tuple[list[Any], list[Any]]:
    return [], []


def _only(reference: ref[Any]) -> tuple[list[Any], list[Any]]:
    """One network, if it exists."""
    network = reference()
    return ([] if network is None else [network]), []


def _subjects_of(training: Training) -> tuple[list[Any], list[Any]]:
    return training.targets(), training.running()
