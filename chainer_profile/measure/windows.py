"""What is timed beside functions: the parts of a training step, by methods put in others' place.

A window is the time between :data:`Enter` and :data:`Leave`. Its mark says what it is.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Protocol

import chainer

from chainer_profile.basics.paths import joined, link_of
from chainer_profile.basics.replacements import Replacements
from chainer_profile.basics.words import COMMUNICATION
from chainer_profile.costs.call import ArraySpec, Work
from chainer_profile.costs.update import hook_work, update_work
from chainer_profile.measure.communication import collectives


@dataclass(frozen=True)
class Mark:
    """What a window is: a row of the profile, or a phase around rows."""

    phase: str
    #: Of a link, or ``loss``, ``cleargrads``, ``optimizer``, ``data``; in communication of a
    #: parameter.
    path: str = ""
    #: Name of the row; empty for a phase, whose own time is framework time.
    function: str = ""
    #: The buffer that a collective moves.
    moved: ArraySpec | None = None
    #: Tells marks apart that are one row, such as of the parameters of a link.
    of: str = field(default="", compare=False)
    #: The work of the window when it is entered, where formulas may know it.
    work: Callable[[], Work | None] | None = field(default=None, compare=False, repr=False)


Enter = Callable[[Mark], None]
Leave = Callable[[], None]


class Trial(Protocol):
    """What one trial is, whoever runs it."""

    @property
    def roots(self) -> Sequence[tuple[str, Any]]:
        """The networks whose links give the paths, each with what is put before its paths."""

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The arguments of the network."""

    def timed(self, enter: Enter, leave: Leave) -> AbstractContextManager[None]:
        """Within this, windows are entered and left for all that is timed beside functions."""


class Step(Trial, Protocol):
    """What one trial runs; see :mod:`chainer_profile.measure.steps`."""

    def __call__(self) -> Any:
        """Run it once; gives the network's output, or None."""


FORWARD = Mark("forward")
BACKWARD = Mark("backward")
UPDATE = Mark("update")
_COMMUNICATION = Mark(COMMUNICATION)
CLEARGRADS = Mark("backward", "cleargrads", "cleargrads", work=partial(Work, 0, 0, 0))


def timed(call: Callable[..., Any], mark: Mark, enter: Enter, leave: Leave) -> Callable[..., Any]:
    """The same callable with a window around every call."""

    def timed_call(*args: Any, **kwargs: Any) -> Any:
        enter(mark)
        try:
            return call(*args, **kwargs)
        finally:
            leave()

    return timed_call


def timed_loss(lossfun: Callable[..., Any], enter: Enter, leave: Leave) -> Callable[..., Any]:
    """A loss function as the forward phase, whose loss has its ``backward`` as the next phase."""
    timed_forward = timed(lossfun, FORWARD, enter, leave)

    def timed_lossfun(*args: Any, **kwargs: Any) -> Any:
        loss = timed_forward(*args, **kwargs)
        if isinstance(loss, chainer.Variable):
            # A strong reference would be a cycle, and keep the graph until garbage is collected.
            this = weakref.ref(loss)

            def backward(*args: Any, **kwargs: Any) -> None:
                variable: Any = this()
                type(variable).backward(variable, *args, **kwargs)

            loss.backward = timed(backward, BACKWARD, enter, leave)
        return loss

    return timed_lossfun


def time_optimizer(
    replacements: Replacements, optimizer: Any, enter: Enter, leave: Leave, prefix: str = ""
) -> None:
    """Time the parts of an optimizer's ``update``: all that Chainer's update of a step does.

    These are the loss function and its backward, ``cleargrads`` of the target, every hook, and the
    update of every parameter, by the path of its link. One of ChainerMN's has communication as a
    phase, and every collective in it goes by the parameter that it moves.
    """
    actual = actual_optimizer(optimizer)
    target, name = optimizer.target, type(actual).__name__
    hooks = _hook_marks(actual)

    def with_update(update: Callable[..., Any]) -> Callable[..., Any]:
        def with_loss(lossfun: Any = None, *args: Any, **kwargs: Any) -> Any:
            if lossfun is not None:
                lossfun = timed_loss(lossfun, enter, leave)
            return update(lossfun, *args, **kwargs)

        return timed(with_loss, UPDATE, enter, leave)

    def with_hook(call_hook: Callable[[Any], None]) -> Callable[[Any], None]:
        def timed_hook(hook: Any) -> None:
            enter(hooks.get(id(hook)) or _hook_mark(hook, hook_name(hook), target))
            try:
                call_hook(hook)
            finally:
                leave()

        return timed_hook

    def around(mark: Mark) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        return lambda call: timed(call, mark, enter, leave)

    replacements.wrap(optimizer, "update", with_update)
    replacements.wrap(actual, "call_hook", with_hook)
    replacements.wrap(target, "cleargrads", around(CLEARGRADS))
    updated: dict[int, list[tuple[str, Any]]] = {}
    for path, param in target.namedparams():
        if param.update_rule is not None:
            updated.setdefault(id(param.update_rule), []).append((path, param))
    for (path, param), *more in updated.values():
        rule = param.update_rule
        # A mark has the work of one parameter; that of a rule of several is not known by it.
        several = any(other is not param for _, other in more)
        work = partial(_work_of_update, param, several)
        mark = Mark("update", joined(prefix, link_of(path)), name, of=path, work=work)
        replacements.wrap(rule, "update", around(mark))
    if (communicator := communicator_of(optimizer)) is not None:
        _time_communication(replacements, optimizer, communicator, enter, leave, prefix)


def _time_communication(
    replacements: Replacements,
    optimizer: Any,
    communicator: Any,
    enter: Enter,
    leave: Leave,
    prefix: str,
) -> None:
    def begin(function: str, path: str, moved: ArraySpec | None) -> None:
        enter(_collective(prefix, path, function, moved))

    def around(attribute: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def wrap(call: Callable[..., Any]) -> Callable[..., Any]:
            def within(model: Any, *args: Any, **kwargs: Any) -> Any:
                with collectives(communicator, model, attribute, begin, leave):
                    return call(model, *args, **kwargs)

            communicate = timed(within, _COMMUNICATION, enter, leave)

            def of_this_optimizer(model: Any, *args: Any, **kwargs: Any) -> Any:
                # Several optimizers may share a communicator; one that buffers twice moves a copy.
                copied = vars(optimizer).get("communicated_target")
                is_own = model is optimizer.target or model is copied
                return (communicate if is_own else call)(model, *args, **kwargs)

            return of_this_optimizer

        return wrap

    buffers_twice = "communicated_target" in vars(optimizer)
    mean = "_multi_node_mean_grad_async" if buffers_twice else "multi_node_mean_grad"
    replacements.wrap(communicator, mean, around("grad"))
    replacements.wrap(communicator, "bcast_data", around("array"))


@cache
def _collective(prefix: str, path: str, function: str, moved: ArraySpec | None) -> Mark:
    # Making one takes longer than all else around a collective.
    return Mark(COMMUNICATION, joined(prefix, path), function, moved)


def communicator_of(optimizer: Any) -> Any:
    """The communicator of one of ChainerMN's optimizers; None of others."""
    return vars(optimizer).get("communicator")


def actual_optimizer(optimizer: Any) -> Any:
    """The optimizer that updates: of ChainerMN's, which stand for another one, that one."""
    return vars(optimizer).get("actual_optimizer", optimizer)


def _work_of_update(param: Any, several: bool) -> Work | None:
    """Work of the next update of a parameter by its rule."""
    rule = param.update_rule
    if several:
        return None
    if not rule.enabled:
        return Work(0, 0, 0)
    return update_work(rule, _with_gradients([param]), scaled=param._loss_scale is not None)


def _with_gradients(params: Iterable[Any]) -> tuple[ArraySpec, ...]:
    """Shapes and types of those of the parameters that have a gradient."""
    return tuple(
        ArraySpec.of(param.array)
        for param in params
        if param.array is not None and param.grad is not None
    )


def _hook_marks(optimizer: Any) -> dict[int, Mark]:
    """Marks of an optimizer's hooks, by the names they were added by."""
    # Several may be of one class. A mark holds its hook, so that no other one gets its identity.
    hooks = optimizer._hookable
    return {
        id(hook): _hook_mark(hook, str(name) or hook_name(hook), optimizer.target)
        for timing in (hooks._pre_update_hooks, hooks._post_update_hooks)
        for name, hook in timing.items()
    }


def _hook_mark(hook: Any, name: str, target: Any) -> Mark:
    def work() -> Work | None:
        return hook_work(hook, _with_gradients(target.params()))

    return Mark("update", "optimizer", name, work=work)


def hook_name(hook: Any) -> str:
    """What a hook calls itself."""
    name = getattr(hook, "name", None) or getattr(hook, "__name__", None)
    return str(name or type(hook).__name__)
