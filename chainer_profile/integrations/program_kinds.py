"""The kinds of a program's trials: its trainings, and calls of networks with the same signature."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import ref

import chainer

from chainer_profile.integrations.networks import Network, Networks, RecordedPaths, Training
from chainer_profile.integrations.trial_kinds import Subjects, TrialKind
from chainer_profile.integrations.units import TimedUnit
from chainer_profile.measure.accounts import Account
from chainer_profile.measure.clock import Clock
from chainer_profile.measure.event_log import EventLog
from chainer_profile.measure.patterns import UnitKind
from chainer_profile.record import budget
from chainer_profile.record.journal import Journal
from chainer_profile.record.recording import Recording

#: At most this many trainings are measured, and as many kinds of calls.
_MAX_KINDS = 8


class ProgramKinds:
    """The kinds of a program's trials.

    Args:
        log: The log of the program, which the trials are cut from.
        journal: Opens the journal of a kind of trials.
        command: How the program was called.
        warn: Called with the name of a kind of trials, and a problem that the user should know.
    """

    def __init__(
        self,
        log: EventLog,
        journal: Callable[[str], Journal],
        command: str,
        warn: Callable[[str, str], None],
    ) -> None:
        self.log, self.warn = log, warn
        #: The program's networks.
        self.networks = Networks(log.links)
        self._journal, self._command = journal, command
        #: All kinds, in the order of their first trials.
        self.every: list[TrialKind] = []
        self._by_training: dict[int, TrialKind] = {}
        self._by_updater: dict[int, Training] = {}
        # Kinds of trials with changes, by the kind of the same trials without changes.
        self._changed: dict[TrialKind, TrialKind] = {}
        # The kinds of calls, by account and signature of the network.
        self._by_signature: dict[Any, TrialKind] = {}

    def training_of_updater(self, updater: Any, training: Training | None) -> Training:
        """Return the training of an updater's iterations, and note its networks the first time.

        Args:
            updater: The updater.
            training: The training of the Trainer that runs it; None without a Trainer.
        """
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
                # Paths begin with the optimizer's name if there are several.
                kind.paths.show(number, "" if len(named) == 1 else f"/{name}")
            # A ParallelUpdater has a copy of the network for every other device.
            for name, model in (getattr(updater, "_models", None) or {}).items():
                number = self.networks.add_root(model)
                kind.paths.show(number, f"/{name}")
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
            training, paths = self.networks.trainings[number], RecordedPaths(self.networks)
            kind = self._new_kind(budget.TRAINING, partial(_subjects_of_training, training), paths)
            self._by_training[number] = kind
        return kind

    def begin_training(self, training: Training) -> None:
        """Note the networks of a training before its first update or iteration."""
        training.has_updated = True
        kind, targets = self.kind_of_training(training.number), training.targets()
        kind.paths.show_training(targets)
        kind.note_subject(train_mode=bool(chainer.config.train))
        for target in targets:
            self.networks.note_links(target)

    def kind_of_calls(self, network: Network, account: Account) -> TrialKind:
        """The kind of calls of a network and its copies; each evaluation may make a copy."""
        kind = self._by_signature.get((account, network.signature))
        if kind is None:
            paths = RecordedPaths(self.networks)
            kind = self._new_kind(budget.TEST, _no_subjects, paths, account)
            self._by_signature[account, network.signature] = kind
        kind.subjects = partial(_subjects_of_call, network.reference)
        kind.note_subject(network.subject, network.train_mode)
        kind.paths.show(network.prefix, "")
        return kind

    def kind_of_own_call(self, unit: TimedUnit) -> TrialKind:
        """The kind of a call of a network outside of iterations and extensions."""
        assert unit.network is not None
        return self.kind_of_calls(unit.network, account_of_own_call(unit))

    def _new_kind(
        self,
        name: str,
        subjects: Subjects,
        paths: RecordedPaths,
        account: Account = (budget.ITERATIONS, ""),
    ) -> TrialKind:
        kind = TrialKind(self._numbered(name), subjects, paths, self._command, account)
        self.every.append(kind)
        return kind

    def _numbered(self, name: str) -> str:
        number = sum(kind.name.partition("-")[0] == name for kind in self.every) + 1
        return name if number == 1 else f"{name}-{number}"

    def with_changes(self, kind: TrialKind) -> TrialKind:
        """Return the kind for the trials of a kind that have changes."""
        if kind not in self._changed:
            self._changed[kind] = kind.with_changes(self._numbered(budget.TRIED))
            self.every.append(self._changed[kind])
        return self._changed[kind]

    def kind_and_changed(self, kind: TrialKind) -> list[TrialKind]:
        """Return a kind, and the kind of its trials with changes, if any."""
        return [kind, self._changed[kind]] if kind in self._changed else [kind]

    def measure(self, kind: TrialKind, clock: Clock) -> None:
        """Measure trials of a kind by row from now on, unless that failed or there are too many."""
        if kind.writer is None and kind.number <= _MAX_KINDS and not kind.has_failed:
            calibrates = not any(other.writer for other in self.every)
            journal, warn = partial(self._journal, kind.name), partial(self.warn, kind.name)
            kind.measure(self.log, clock, journal, warn, calibrates)

    def recordings(self) -> dict[str, Recording]:
        """The recordings by kind: a training first, then the others by their time."""
        ranked = sorted(self.every, key=lambda kind: (kind.name != budget.TRAINING, -kind.own_ns))
        return {
            kind.name: kind.recording
            for kind in ranked
            if kind.recording is not None and kind.recording.n_trials
        }

    def unmeasured(self) -> tuple[budget.Spent, ...]:
        """The time, by account, of calls of networks that are not measured by row."""
        calls: dict[Account, tuple[int, int]] = {}
        for kind in self.every:
            if kind.count and not kind.is_measured:
                ns, count = calls.get(kind.account, (0, 0))
                calls[kind.account] = ns + kind.own_ns, count + kind.count
        return tuple(budget.Spent(*account, *spent) for account, spent in calls.items())


def account_of_own_call(unit: TimedUnit) -> Account:
    """The account of a call of a network outside of iterations and extensions."""
    is_test = unit.kind is UnitKind.TEST and unit.is_trained
    return budget.TEST_CALLS if is_test else budget.CALLS, ""


# The functions that return the networks and the optimizers of a kind of trials.


def _no_subjects() -> tuple[list[Any], list[Any]]:
    return [], []


def _subjects_of_call(reference: ref[Any]) -> tuple[list[Any], list[Any]]:
    """The called network, if it exists; no optimizers."""
    network = reference()
    return ([] if network is None else [network]), []


def _subjects_of_training(training: Training) -> tuple[list[Any], list[Any]]:
    return training.targets(), training.existing_optimizers()
