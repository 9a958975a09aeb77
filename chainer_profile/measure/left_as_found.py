"""A program is left as it was found: what a trial changes is put back."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from operator import setitem
from typing import Any

import chainer
import numpy as np


@contextmanager
def left_as_found(model: Any, optimizer: Any = None) -> Iterator[None]:
    """Within this a network may be run and trained; afterwards it is as it was.

    That are gradients, update rules, persistent values, variables and arrays that links keep (such
    as the state of an LSTM), and the state of ``numpy.random``; with an optimizer also parameters
    and its own state, of which copies are taken. Parameters that get their first array here keep
    it; CuPy's random numbers go on.
    """
    if optimizer is not None and getattr(optimizer, "target", None) is not model:
        optimizer = None  # which updates another network
    with ExitStack() as stack:
        stack.callback(np.random.set_state, np.random.get_state())  # noqa: NPY002  (Chainer's)
        for link in _once(model.links()):
            _keep_attributes(stack, link)
        for param in _once(model.params()):
            stack.callback(setattr, param, "update_rule", param.update_rule)
            if param.is_initialized:  # one without an array has no gradient to ask for
                _keep_array(stack, param, "grad")
            if optimizer is not None:
                _keep_array(stack, param, "array")
                _keep_rule(stack, param.update_rule)
        if optimizer is not None:
            for name in ("t", "epoch"):
                stack.callback(setattr, optimizer, name, getattr(optimizer, name))
            hyperparam = vars(optimizer.hyperparam) if hasattr(optimizer, "hyperparam") else {}
            stack.callback(_bring_back, hyperparam, dict(hyperparam))
        yield


def _once(things: Any) -> list[Any]:
    return list({id(thing): thing for thing in things}.values())


def _keep_array(stack: ExitStack, owner: Any, name: str) -> None:
    """Put an array back with what it holds now."""
    array = getattr(owner, name)
    if array is not None or name == "grad":
        stack.callback(setattr, owner, name, array)
    if array is not None:
        stack.callback(setitem, array, ..., array.copy())


def _keep_attributes(stack: ExitStack, link: Any) -> None:
    """Put back the persistent values of a link, and variables and arrays that it keeps."""
    kinds = (chainer.Variable, *chainer.get_array_types())
    own = {*link._params, *getattr(link, "_children", ())}
    names = [name for name in vars(link) if name not in own]
    before = {name: getattr(link, name) for name in names}
    for name in link._persistent:
        value = before.get(name)
        if isinstance(value, chainer.get_array_types()):
            _keep_array(stack, link, name)
        elif name in before:
            stack.callback(setattr, link, name, copy.copy(value))

    def put_back() -> None:
        for name, value in before.items():
            now = getattr(link, name, None)
            if now is not value and (isinstance(value, kinds) or isinstance(now, kinds)):
                setattr(link, name, value)

    stack.callback(put_back)


def _keep_rule(stack: ExitStack, rule: Any) -> None:
    """Put back the state of an update rule."""
    if rule is None:
        return
    stack.callback(setattr, rule, "t", rule.t)
    state = rule.state
    stack.callback(setattr, rule, "_state", state)
    if state is None:
        return
    stack.callback(_bring_back, state, dict(state))
    for value in state.values():
        if isinstance(value, chainer.get_array_types()):
            stack.callback(setitem, value, ..., value.copy())


def _bring_back(values: dict[str, Any], before: dict[str, Any]) -> None:
    values.clear()
    values.update(before)
