"""Event ids of operations: the phases of a training, and its steps that are not functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any
from weakref import ref

from chainer_profile.costs.call import ArraySpec, Work
from chainer_profile.costs.update import hook_work, update_work
from chainer_profile.measure import observers
from chainer_profile.measure.call_sites import CallSite, Kind, Warn, dtype_of, shapes_of, work_by
from chainer_profile.measure.links import Links

_PHASES = {
    observers.LOSS: "forward",
    observers.BACKWARD: "backward",
    observers.UPDATE: "update",
    observers.COMMUNICATION: "communication",
}
_OTHER_SITES = {
    observers.NETWORK: CallSite(Kind.NETWORK, phase="forward"),
    observers.BACKPROP: CallSite(Kind.BACKPROP),
}


class OperationSites:
    """Gives each operation an event id, with a call site that describes it."""

    def __init__(
        self,
        add_site: Callable[[CallSite], int],
        pause: Callable[[], AbstractContextManager[None]],
        warn: Warn,
    ) -> None:
        self._add_site, self._pause, self._warn = add_site, pause, warn
        self._ids: dict[tuple[str, ...], int] = {}
        # Event ids of parameters' updates by identity of the parameter.
        self._rule_ids: dict[int, tuple[ref[Any], str, int]] = {}
        self._optimizer = ""

    def event_id(
        self, operation: str, owner: Any, args: tuple[Any, ...], links: Links
    ) -> int | None:
        """Return the event id of an operation, with a new call site if necessary.

        None if the operation is not logged.
        """
        if operation == observers.RULE:
            return self._rule_id(owner, args[0], links) if args else None
        if operation == observers.UPDATE:
            self._optimizer = type(actual_optimizer(owner)).__name__
        phase = _PHASES.get(operation)
        if phase is not None:
            return self._id((operation,), lambda: CallSite(Kind.PHASE, phase=phase))
        if operation in _OTHER_SITES:
            return self._id((operation,), lambda: _OTHER_SITES[operation])
        if operation == observers.CLEARGRADS:
            return self._id((operation,), _cleargrads_site)
        if operation in (observers.LOAD, observers.CONVERT):
            name = type(owner).__name__ if operation == observers.LOAD else converter_name(owner)
            return self._id((operation, name), lambda: CallSite(Kind.STEP, "data", name, "data"))
        if operation == observers.HOOK and args:
            name = _hook_name(owner, args[0])
            return self._id((operation, name), lambda: self._hook_site(owner, args[0], name))
        return None

    def collective_id(self, path: str, function: str, buffer: ArraySpec | None) -> int:
        """Event id of a collective that moves the buffer of a parameter."""
        key = (observers.COMMUNICATION, path, function, str(buffer))
        return self._id(key, lambda: _collective_site(path, function, buffer))

    def _id(self, key: tuple[str, ...], make_site: Callable[[], CallSite]) -> int:
        """Return the event id of a key. If the key is new, make and add its call site."""
        event_id = self._ids.get(key)
        if event_id is None:
            with self._pause():
                event_id = self._ids[key] = self._add_site(make_site())
        return event_id

    def _rule_id(self, rule: Any, param: Any, links: Links) -> int:
        """Return the event id of a parameter's update by its rule."""
        known = self._rule_ids.get(id(param))
        if known is not None and known[0]() is param and known[1] == self._optimizer:
            return known[2]
        with self._pause():
            is_update = observers.UPDATE in observers.open_operations()
            optimizer = self._optimizer if is_update else type(rule).__name__.removesuffix("Rule")
            path = links.path_of_parameter(param)
            key = (observers.RULE, path, optimizer, str(param.name))
            if key not in self._ids:
                site = self._rule_site(rule, param, path, optimizer, links)
                self._ids[key] = self._add_site(site)
            if is_update:
                self._rule_ids[id(param)] = ref(param), optimizer, self._ids[key]
        return self._ids[key]

    def _rule_site(
        self, rule: Any, param: Any, path: str, optimizer: str, links: Links
    ) -> CallSite:
        site = CallSite(Kind.STEP, path, optimizer, "update")
        arrays = links.arrays_of_link(path)
        shapes = shapes_of(arrays)
        site.fields |= {
            "input_shapes": shapes,
            "output_shapes": shapes,
            "dtype": dtype_of(arrays),
        }
        site.work = work_by(optimizer, lambda: _work_of_update(rule, param), self._warn)
        return site

    def _hook_site(self, optimizer: Any, hook: Any, name: str) -> CallSite:
        site = CallSite(Kind.STEP, "optimizer", name, "update")
        params = optimizer.target.params()
        site.work = work_by(name, lambda: hook_work(hook, _with_gradients(params)), self._warn)
        return site


def _cleargrads_site() -> CallSite:
    site = CallSite(Kind.STEP, "cleargrads", "cleargrads", "backward")
    site.work = Work(0, 0, 0)
    return site


def _collective_site(path: str, function: str, buffer: ArraySpec | None) -> CallSite:
    site = CallSite(Kind.STEP, path, function, "communication")
    if buffer is not None:
        site.fields |= {
            "input_shapes": (buffer.shape,),
            "output_shapes": (buffer.shape,),
            "dtype": buffer.dtype,
            "input_nbytes": buffer.nbytes,
        }
    return site


def actual_optimizer(optimizer: Any) -> Any:
    """Return the optimizer that ChainerMN's optimizer wraps, or the optimizer itself."""
    return vars(optimizer).get("actual_optimizer", optimizer)


def communicator_of(optimizer: Any) -> Any:
    """Return the communicator of ChainerMN's optimizer; None for other optimizers."""
    return vars(optimizer).get("communicator")


def converter_name(converter: Any) -> str:
    """Name of a converter: Chainer's concat_examples is an object around concat_examples_func."""
    function = getattr(converter, "base_callable", converter)
    return str(getattr(function, "__name__", type(function).__name__)).removesuffix("_func")


def _hook_name(optimizer: Any, hook: Any) -> str:
    """Return the name under which a hook was added, or else its own."""
    hookable = optimizer._hookable
    for hooks in (hookable._pre_update_hooks, hookable._post_update_hooks):
        for name, other in hooks.items():
            if other is hook and str(name):
                return str(name)
    name = getattr(hook, "name", None) or getattr(hook, "__name__", None)
    return str(name or type(hook).__name__)


def _work_of_update(rule: Any, param: Any) -> Work | None:
    """Work of a parameter's next update."""
    if not rule.enabled:
        return Work(0, 0, 0)
    is_scaled = param._loss_scale is not None
    return update_work(rule, _with_gradients([param]), scaled=is_scaled)


def _with_gradients(params: Iterable[Any]) -> tuple[ArraySpec, ...]:
    """Shapes and types of the parameters that have a gradient."""
    return tuple(
        ArraySpec.of(param.array)
        for param in params
        if param.array is not None and param.grad is not None
    )
