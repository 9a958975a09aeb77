"""What a trial of a notebook's cell is: its code, in the user's own names."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from types import CodeType
from typing import Any

import chainer

from chainer_profile.measure.arguments import Arguments
from chainer_profile.measure.entries import CALL, Entries
from chainer_profile.measure.hooks import WalkHook
from chainer_profile.measure.loop import LoopTrial, networks, optimizers, prefix_of


class Cell(LoopTrial):
    """Runs a cell's code: the networks and optimizers are those that the user's variables hold.

    Attributes:
        error: What the cell raised, if it did.
    """

    def __init__(
        self, code: CodeType, namespace: dict[str, Any], inputs: tuple[Any, ...] = ()
    ) -> None:
        roots = networks(namespace)
        found = optimizers(namespace, code.co_names)
        super().__init__(roots, [(prefix_of(one, roots), one) for one in found])
        self.inputs = inputs
        self.error: BaseException | None = None
        self._code, self._namespace = code, namespace

    def __call__(self) -> None:
        """Run the cell once."""
        try:
            exec(self._code, self._namespace)
        except BaseException as error:
            self.error = error
            raise

    @contextmanager
    def configured(self) -> Iterator[None]:
        """The configuration is the user's; what the cell prints is thrown away."""
        with redirect_stdout(_Nowhere()):
            yield


class _Nowhere(io.TextIOBase):
    def write(self, text: str) -> int:
        """Throw it away."""
        return len(text)


class FirstRun:
    """Runs a cell as if it stood alone, its output shown, and looks at what it does.

    Attributes:
        calls: Number of functions called.
        train_mode: Whether ``chainer.config.train`` was on at the first function.
        device: What the first function worked on.
        called: Classes of the links called from outside of all others, in order.
        given: What these were called with.
    """

    def __init__(self, code: CodeType, namespace: dict[str, Any]) -> None:
        self.calls, self.train_mode = 0, False
        self.device: Any = chainer.get_device("@numpy")
        self.called: list[str] = []
        self.given: list[Arguments] = []
        hook = WalkHook(lambda function, arrays, *_: self._note(arrays))
        with hook, Entries(self._around):
            exec(code, namespace)

    def _note(self, arrays: tuple[Any, ...]) -> None:
        if not self.calls:
            self.train_mode = bool(chainer.config.train)
            first = next((array for array in arrays if array is not None), None)
            if first is not None:
                self.device = chainer.backend.get_device_from_array(first)
        self.calls += 1

    def _around(self, entry: str, owner: Any, call: Callable[[], Any]) -> Any:
        if entry == CALL:
            assert isinstance(call, partial)
            self.called.append(type(owner).__name__)
            self.given.append(Arguments(call.args[1:], dict(call.keywords)))
        return call()
