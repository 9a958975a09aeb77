"""The networks and optimizers of a program, by identity: nothing here keeps them alive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any
from weakref import ref

import chainer

from chainer_profile.basics.paths import joined, link_of
from chainer_profile.measure.devices import device_name, device_of
from chainer_profile.measure.links import Links, int_if_whole
from chainer_profile.measure.loop import Subject, name_of
from chainer_profile.measure.operations import actual_optimizer
from chainer_profile.measure.patterns import NO_TRAINING
from chainer_profile.record.recording import LinkCalls

#: Paths in the log begin with this and the number of the network.
_PREFIX = "/@"


class Numbers:
    """Gives each object a number, not reused if the object supports weak references."""

    def __init__(self) -> None:
        self._numbers = count()
        self._known: dict[int, tuple[ref[Any] | None, int]] = {}

    def number_of(self, thing: Any) -> int:
        """The number of an object."""
        known = self._known.get(id(thing))
        if known is not None and (known[0] is None or known[0]() is thing):
            return known[1]
        number = next(self._numbers)
        try:
            reference = ref(thing, partial(self._forget, id(thing)))
        except TypeError:  # objects of this class have no weak references
            reference = None
        self._known[id(thing)] = reference, number
        return number

    def assign(self, thing: Any, number: int) -> None:
        """Give an object the number of another one, which it replaces."""
        self._known[id(thing)] = ref(thing, partial(self._forget, id(thing))), number

    def _forget(self, key: int, reference: ref[Any]) -> None:
        if key in self._known and self._known[key][0] is reference:
            del self._known[key]


@dataclass(eq=False)
class Training:
    """The optimizers of an updater, or the optimizers that are set up before the first update."""

    number: int
    optimizers: list[ref[Any]] = field(default_factory=list)
    has_updated: bool = False  #: If so, the next optimizer that is set up begins another training.
    has_own_loop: bool = False  #: Whether the program calls the optimizers itself, without updater.

    def existing_optimizers(self) -> list[Any]:
        """The optimizers that still exist and have a network."""
        existing = filter(None, (optimizer() for optimizer in self.optimizers))
        return [optimizer for optimizer in existing if optimizer.target is not None]

    def targets(self) -> list[Any]:
        """The networks of the optimizers, each once."""
        targets = [optimizer.target for optimizer in self.existing_optimizers()]
        return list({id(target): target for target in targets}.values())


@dataclass(eq=False)
class Network:
    """A network that the program has called."""

    reference: ref[Any]
    number: int
    prefix: int  #: The number in the prefix of its paths.
    training: int  #: Number of the training of its parameters.
    signature: int  #: A number that its copies have as well; see :func:`_signature`.
    #: Its name and device, and Chainer's mode, noted after its first call.
    subject: Subject | None = None
    train_mode: bool = True


class Networks:
    """The networks of a program, and the trainings of their parameters."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._numbers = Numbers()
        self.trainings: list[Training] = []
        self._by_optimizer: dict[int, Training] = {}
        # Class and network of each optimizer by its number, in the order in which they were set up.
        self._set_up: dict[int, tuple[type, ref[Any]]] = {}
        self._known: dict[int, Network] = {}
        # The networks and the names of their classes, by the number in their prefix.
        self._roots: dict[int, ref[Any]] = {}
        self._class_names: dict[int, str] = {}
        # Numbers of signatures, and the last prefix of each.
        self._signatures: dict[tuple[Any, ...], int] = {}
        self._prefixes: dict[int, int] = {}
        #: The links of networks by that number and by path.
        self.links: dict[int, dict[str, LinkCalls]] = {}

    # -- trainings

    def new_training(self) -> Training:
        """Add another training."""
        self.trainings.append(Training(len(self.trainings)))
        return self.trainings[-1]

    def begins_training(self, optimizer: Any) -> bool:
        """Whether an optimizer that is set up begins another training."""
        return self._joined_training(actual_optimizer(optimizer)) is None

    def set_up(self, optimizer: Any) -> tuple[Training, int]:
        """Note an optimizer; return its training and number.

        An optimizer that replaces another one of its class, for the same network, has its number
        and continues its training: a program may make an optimizer for each iteration.
        """
        optimizer = actual_optimizer(optimizer)
        training = self._joined_training(optimizer) or self.new_training()
        replaced = self._replaced_by(optimizer)
        if replaced is not None:
            self._numbers.assign(optimizer, replaced)
        number = self._numbers.number_of(optimizer)
        others = [known for known in training.optimizers if known() not in (None, optimizer)]
        training.optimizers = [*others, ref(optimizer)]
        self._by_optimizer[number] = training
        self._known.clear()
        if optimizer.target is not None:
            self._set_up.pop(number, None)
            self._set_up[number] = type(optimizer), ref(optimizer.target)
            self.add_root(optimizer.target)
        return training, number

    def _joined_training(self, optimizer: Any) -> Training | None:
        """The training that an optimizer joins when it is set up; None if it begins another."""
        replaced = self._replaced_by(optimizer)
        if replaced is not None:
            return self._by_optimizer[replaced]
        last = next((one for one in reversed(self.trainings) if one.optimizers), None)
        return None if last is None or last.has_updated else last

    def _replaced_by(self, optimizer: Any) -> int | None:
        """The number of the last optimizer of this class for the same network, if it updates."""
        target = optimizer.target
        for number, (cls, network) in reversed(self._set_up.items()):
            if target is not None and network() is target and cls is type(optimizer):
                training = self._by_optimizer[number]
                return number if training.has_updated and training.has_own_loop else None
        return None

    def training_of(self, optimizer: Any) -> tuple[Training, int] | None:
        """The training and the number of an optimizer that updates; None if it is unknown."""
        actual = actual_optimizer(optimizer)
        number = self._numbers.number_of(actual)
        training = self._by_optimizer.get(number)
        if training is None:
            return None
        if actual is not optimizer:  # an optimizer of ChainerMN, which wraps it
            training.optimizers = [
                ref(optimizer) if known() is actual else known for known in training.optimizers
            ]
        return training, number

    # -- networks

    def known_network(self, network: Any) -> Network:
        """Return the record of a network that the program calls; makes it for the first call."""
        known = self._known.get(id(network))
        if known is None or known.reference() is not network:
            prefix = self.add_root(network)
            self._known = {key: one for key, one in self._known.items() if one.reference()}
            known = self._known[id(network)] = Network(
                ref(network),
                self._numbers.number_of(network),
                prefix,
                self._training_of_network(network),
                self._signature_of(network),
            )
        return known

    def note_end(self, known: Network) -> None:
        """Note the name, device and links of a network after a call, when all shapes are known."""
        network = known.reference()
        if network is not None:
            known.signature = self._signature_of(network)
            known.subject = Subject(name_of(network), device_name(device_of(network)))
            known.train_mode = bool(chainer.config.train)
            self.note_links(network)

    def note_links(self, network: Any) -> None:
        """Remember the links of a network, which may not exist when its trials are read."""
        prefix = self.path_of(network)
        sizes: Counter[str] = Counter()
        for path, param in network.namedparams(include_uninit=False):
            sizes[link_of(path)] += int(param.size)
        table = self.links.setdefault(_number(prefix)[0] or 0, {})
        for path, link in network.namedlinks():
            full = joined("" if prefix == "/" else prefix, str(path))
            table[full] = LinkCalls(full, type(link).__name__, 0, sizes[str(path)])

    def number_of(self, thing: Any) -> int:
        """The number of any object."""
        return self._numbers.number_of(thing)

    def add_root(self, network: Any) -> int:
        """Return the number that the paths of a network begin with; a new network gets one."""
        known = _number(self.path_of(network))[0]
        if known is not None:
            return known
        same = self._signature_of(network)
        number = self._prefixes.get(same, -1)
        if number < 0 or self._roots[number]() is not None:
            number = self._prefixes[same] = len(self._class_names)
        self._roots[number] = ref(network)
        self._class_names[number] = name_of(network)
        self._links.add_network(f"{_PREFIX}{number}", network)
        return number

    def _signature_of(self, network: Any) -> int:
        return self._signatures.setdefault(_signature(network), len(self._signatures))

    def _training_of_network(self, network: Any) -> int:
        """Number of the last training with a parameter of a network."""
        params = {id(param) for param in network.params()}
        for training in reversed({one.number: one for one in self._by_optimizer.values()}.values()):
            for target in training.targets():
                if any(id(param) in params for param in target.params()):
                    return training.number
        return NO_TRAINING

    def class_name(self, number: int) -> str:
        return self._class_names[number]

    def path_of(self, network: Any) -> str:
        """The path of a network in the log; ``/`` if it is unknown."""
        caller = self._links.callers.get(id(network))
        return "/" if caller is None else caller.path

    def links_of(self, number: int) -> list[LinkCalls]:
        """The links of the network with this prefix number, without calls; it may be gone."""
        return [*self.links.get(number, {}).values()]

    def link_calls(self, calls: Counter[str], trials: int) -> tuple[LinkCalls, ...]:
        """All existing links with their mean calls, from the calls by path in the log."""
        return self._links.link_calls(calls, trials)


class RecordedPaths:
    """Translates paths in the log to paths in a recording.

    A recording shows some of the networks; the paths of a single one have no prefix.
    """

    def __init__(self, networks: Networks) -> None:
        self._networks = networks
        # The prefixes of paths in the recording, by the number of the network.
        self._prefixes: dict[int, str] = {}

    def show(self, number: int, prefix: str) -> None:
        """Show the network with this number; its paths begin with the prefix."""
        self._prefixes.setdefault(number, prefix)

    def show_training(self, targets: Sequence[Any]) -> None:
        """Show the networks of a training, except networks within others.

        If there are several, the prefix of each is the name of its class.
        """
        numbers = [_number(self._networks.path_of(target))[0] for target in targets]
        outermost = dict(zip(numbers, targets, strict=True))
        outermost.pop(None, None)
        names = [name_of(target) for target in outermost.values()]
        for index, (number, name) in enumerate(zip(outermost, names, strict=True)):
            prefix = f"/{name}"
            if names.count(name) > 1:
                prefix += f"-{names[:index].count(name) + 1}"
            if number is not None:
                self.show(number, "" if len(names) == 1 else prefix)

    def prefix_of(self, network: Any) -> str:
        """The prefix of a network's paths in the recording."""
        path = self(self._networks.path_of(network))
        return "" if path == "/" else path

    def __call__(self, path: str) -> str:
        """Translate a path in the log; a network that is not shown yet is shown by its class."""
        number, rest = _number(path)
        if number is None:
            return path
        prefix = self._prefixes.get(number)
        if prefix is None:
            prefix = first = f"/{self._networks.class_name(number)}"
            others = count(2)
            while prefix in self._prefixes.values():
                prefix = f"{first}-{next(others)}"
            self._prefixes[number] = prefix
        return f"{prefix}{rest}" or "/"

    def link_calls(self, calls: Counter[str], trials: int) -> tuple[LinkCalls, ...]:
        """The links of the shown networks with their mean calls; the networks may be gone."""
        links = [link for number in self._prefixes for link in self._networks.links_of(number)]
        links += self._networks.link_calls(calls, trials)
        means: Counter[str] = Counter()
        for path, number in calls.items():
            means[self._shown(path)] += number
        links_by_path = {self._shown(link.path): link for link in links}
        links_by_path.pop("", None)
        return tuple(
            replace(link, path=path, calls=int_if_whole(means[path] / max(1, trials)))
            for path, link in links_by_path.items()
        )

    def _shown(self, path: str) -> str:
        """Translate a path in the log; empty if its network is not shown."""
        return self(path) if _number(path)[0] in self._prefixes else ""


def _number(path: str) -> tuple[int | None, str]:
    """Split a path in the log into the number of its network and the rest."""
    if not path.startswith(_PREFIX):
        return None, path
    number, slash, rest = path[len(_PREFIX) :].partition("/")
    return int(number), slash + rest


def _signature(network: Any) -> tuple[Any, ...]:
    """The class of a network and the shapes of its parameters, which are equal for its copies."""
    arrays = [(path, param.array) for path, param in sorted(network.namedparams())]
    shapes = [(path, None if array is None else array.shape) for path, array in arrays]
    return type(network), *shapes
