"""What a trial is in a program: an iteration of an updater, or of a loop of its own, or a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import chainer
from chainer.dataset import Converter

from chainer_profile.basics.paths import joined
from chainer_profile.basics.replacements import Replacements
from chainer_profile.measure import entries
from chainer_profile.measure.configuration import as_now
from chainer_profile.measure.devices import device_name, device_of
from chainer_profile.measure.windows import (
    BACKWARD,
    FORWARD,
    Enter,
    Leave,
    Mark,
    actual_optimizer,
    time_optimizer,
    timed,
)
from chainer_profile.record.recording import Layer, Settings

#: The forward phase as an outermost link's call: no function in it is a loss function's.
CALL = Mark(FORWARD.phase, "/")


class LoopTrial:
    """A trial that the user's own code makes."""

    def __init__(
        self,
        roots: Sequence[tuple[str, Any]],
        optimizers: Sequence[tuple[str, Any]] = (),
        title: str = "",
        command: str = "",
        updater: Any = None,
    ) -> None:
        self.roots: Sequence[tuple[str, Any]] = roots
        self.inputs: tuple[Any, ...] = ()
        self._timed = optimizers
        self.optimizers = [optimizer for _, optimizer in optimizers]
        self._title, self._command, self._updater = title, command, updater
        self._windows: tuple[Enter, Leave] | None = None
        #: Whether what stands around the optimizers' methods stays there between trials.
        self.stays = False
        self._stands, self._replacements = False, Replacements()
        # The links of the optimizers' networks, and the rules of their parameters then.
        self._links: list[Any] = []
        self._stood: list[Any] = []
        self._noting = False
        self._batch = Batch()
        self._train_mode = True

    def note(self, on: bool) -> None:
        """Look at batches, or no more; those of an earlier trial are forgotten."""
        if on:
            self._batch = Batch()
            self._train_mode = bool(chainer.config.train)
        self._noting = on

    @property
    def input_nbytes(self) -> int:
        return self._batch.nbytes

    def settings(self, layers: Sequence[Layer]) -> Settings:
        """What a trial with these rows was; its phase is by them."""
        device, name = chainer.get_device("@numpy"), "a block"
        if self.roots:
            device, name = device_of(self.roots[0][1]), name_of(self.roots[0][1])
        phases = {layer.phase for layer in layers}
        phase = "forward-backward" if "backward" in phases else "forward"
        optimizers: list[str] = []
        if "update" in phases:
            phase = "train"
            updates = {layer.function for layer in layers if layer.phase == "update"}
            names = [type(actual_optimizer(optimizer)).__name__ for optimizer in self.optimizers]
            optimizers = [name for name in names if name in updates]
        inputs = [layer.input_shapes for layer in layers if layer.phase == "forward"]
        shape = inputs[0][0] if inputs and inputs[0] else ()
        return Settings(
            model=self._title or name,
            input="training batches" if phase == "train" else "the program's own",
            input_shape=shape,
            batchsize=self._batch.size or (shape[0] if shape else 1),
            device=device_name(device),
            phase=phase,
            optimizer=" and ".join(optimizers),
            train_mode=self._train_mode,
            command=self._command,
            **as_now(),
        )

    def timed(self, enter: Enter, leave: Leave) -> LoopTrial:
        """Within this, times the optimizers' updates, and what :meth:`around` is asked about."""
        self._windows = enter, leave
        return self

    def __enter__(self) -> None:
        self._stand()

    def __exit__(self, *_: object) -> None:
        self._windows = None
        if not self.stays:
            self.stand_down()

    def _enter(self, mark: Mark) -> None:
        if self._windows is not None:
            self._windows[0](mark)

    def _leave(self) -> None:
        if self._windows is not None:
            self._windows[1]()

    def _stand(self) -> None:
        """Stand around the optimizers' methods, anew where there are other parameters or rules."""
        if self._stood == self._rules() and self._stands:
            return
        self.stand_down()
        self._stands = True
        for prefix, optimizer in self._timed:
            time_optimizer(self._replacements, optimizer, self._enter, self._leave, prefix)
        self._stand_at_converter(self._replacements)
        self._links = [link for optimizer in self.optimizers for link in optimizer.target.links()]
        self._stood = self._rules()

    def _rules(self) -> list[Any]:
        # Walking over all parameters by their names would take longest of all in a short iteration.
        return [param.update_rule for link in self._links for param in _own_params(link)]

    def stand_down(self) -> None:
        """Bring back the optimizers' own methods."""
        self._replacements.undo()
        self._stands, self._links, self._stood = False, [], []

    def _stand_at_converter(self, replacements: Replacements) -> None:
        """Have a converter that is a function go through :meth:`around`, as Chainer's own do."""
        converter = getattr(self._updater, "converter", None)
        if converter is None or isinstance(converter, Converter):
            return

        def convert(*args: Any, **kwargs: Any) -> Any:
            return self.around(entries.CONVERT, converter, partial(converter, *args, **kwargs))

        replacements.put(self._updater, "converter", convert)

    def around(self, entry: str, owner: Any, call: Callable[[], Any]) -> Any:
        """Go through one of Chainer's entries, in a window of its own while trials are timed."""
        if self._windows is None and not self._noting:
            return call()
        mark = _mark(entry, owner)
        if self._windows is not None and mark is not None:
            call = timed(call, mark, *self._windows)
        given = call()
        if self._noting and entry in (entries.LOAD, entries.CONVERT):
            self._batch.note(entry == entries.CONVERT, given)
        return given


def _own_params(link: Any) -> Iterator[Any]:
    """A link's own parameters, without those of the links in it."""
    own = vars(link)
    return (own[name] for name in link._params)


def trial_of(updater: Any, title: str = "", command: str = "") -> LoopTrial:
    """One iteration of an updater, as what a trial is."""
    named = updater.get_all_optimizers()
    # One optimizer's network gives its own link paths; of several, each has its name in front.
    optimizers = [
        ("" if len(named) == 1 else f"/{name}", optimizer) for name, optimizer in named.items()
    ]
    roots = [(prefix, optimizer.target) for prefix, optimizer in optimizers]
    # A ParallelUpdater has a copy of the network for every other device.
    targets = [root for _, root in roots]
    roots += [
        (f"/{name}", model)
        for name, model in (getattr(updater, "_models", None) or {}).items()
        if not any(model is target for target in targets)
    ]
    return LoopTrial(roots, optimizers, title, command, updater)


def _mark(entry: str, owner: Any) -> Mark | None:
    if entry == entries.LOAD:
        return Mark("data", "data", type(owner).__name__)
    if entry == entries.CONVERT:
        return Mark("data", "data", converter_name(owner))
    return {entries.CALL: CALL, entries.BACKWARD: BACKWARD}.get(entry)


def converter_name(converter: Any) -> str:
    """Name of a converter: Chainer's concat_examples is an object around concat_examples_func."""
    inner = getattr(converter, "base_callable", converter)
    return str(getattr(inner, "__name__", type(inner).__name__)).removesuffix("_func")


def name_of(network: Any) -> str:
    """Name of a network's class; of one in a Classifier, of that."""
    return type(getattr(network, "predictor", network)).__name__


class Batch:
    """How large the inputs of a trial are: as they are loaded, and as they are converted."""

    def __init__(self) -> None:
        self.size = 0
        self._loaded = self._converted = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the converted arrays; of what was loaded where they are not converted."""
        return self._converted or self._loaded

    def note(self, converted: bool, batch: Any) -> None:
        """Add what an iterator loads, or a converter makes of it."""
        try:
            nbytes = _nbytes(batch)
        except Exception:  # of a batch of a kind of its own
            nbytes = 0
        if converted:
            self._converted += nbytes
        else:
            self._loaded += nbytes
            self.size += len(batch) if hasattr(batch, "__len__") else 0


def _nbytes(batch: Any) -> int:
    """Bytes of the arrays in a batch: in tuples, lists and dictionaries of them."""
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, tuple | list):
        return sum(map(_nbytes, batch))
    return int(getattr(batch, "nbytes", 0))


def prefix_of(optimizer: Any, roots: Sequence[tuple[str, Any]]) -> str:
    """What the paths of an optimizer's network begin with."""
    for prefix, root in roots:
        for path, link in root.namedlinks():
            if link is optimizer.target:
                return joined(prefix, str(path))
    return ""


def networks(namespace: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The networks among variables, each with ``/`` and its name; no links of other networks."""
    # Names that begin with _ are IPython's own.
    links: dict[int, tuple[str, Any]] = {}
    for name, value in namespace.items():
        if isinstance(value, chainer.Link) and not name.startswith("_"):
            links.setdefault(id(value), (f"/{name}", value))
    below = {id(link) for _, root in links.values() for link in root.links(skipself=True)}
    return [named for identity, named in links.items() if identity not in below]


def optimizers(namespace: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    """The optimizers among variables, one for a parameter: one that is named, or the last."""
    candidates = {
        id(value): (name, value)
        for name, value in reversed(list(namespace.items()))
        if isinstance(value, chainer.Optimizer)
        and value.target is not None
        and not name.startswith("_")
    }
    chosen, taken = [], set[int]()
    for _, optimizer in sorted(candidates.values(), key=lambda named: named[0] not in names):
        params = {id(param) for param in optimizer.target.params()}
        if not params & taken:
            chosen.append(optimizer)
            taken |= params
    return chosen
