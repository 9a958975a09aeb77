"""A step on the tape: its trials, what they call, and where one failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.basics.units import format_shape
from chainer_profile.measure.clock import NowNs
from chainer_profile.measure.entries import Entries, came_through
from chainer_profile.measure.events import EventPool
from chainer_profile.measure.order import Order
from chainer_profile.measure.tape import Tape
from chainer_profile.measure.windows import Step
from chainer_profile.record.recording import Layer, LinkCalls, Shape


class StepError(Exception):
    """The network raised an exception: where, in words, and which one."""

    def __init__(self, where: str, cause: Exception) -> None:
        super().__init__(f"{where}: {cause}")
        self.where = where
        self.cause = cause

    def with_input(self, shape: Shape) -> ProfileError:
        """The error that tells the user which input the network failed with."""
        return ProfileError(
            f"the network fails with an input of {format_shape(shape)}, {self.where}: "
            f"{one_line(self.cause)}"
        )


class TapedStep:
    """Trials of a step on a tape."""

    def __init__(
        self,
        step: Step,
        now_ns: NowNs = lambda: 0,
        events: EventPool | None = None,
        single_calls: bool = True,
    ) -> None:
        self.entries = Entries(getattr(step, "around", as_it_is))
        self.tape = Tape(now_ns, step, self.entries, events, single_calls)
        self._step = step

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Within this, trials are on the tape."""
        with self.entries, self.tape.recording():
            yield

    def learn(self, look: Callable[[Any], object] | None = None) -> None:
        """Make a trial that is not kept; look at what it gives.

        Raises:
            StepError: The network fails.
        """
        with self.recording():
            self.tape.start()
            try:
                given = self._step()
            except Exception as error:
                raise StepError(self.place(error), error) from error
            self.tape.stop()
        if look:
            look(given)
        self.tape.fold()

    @property
    def order(self) -> Order | None:
        """The calls of each trial; None where they differ."""
        return self.tape.rows.order

    @property
    def layers(self) -> tuple[Layer, ...]:
        return self.tape.rows.layers() if self.order is None else self.order.layers

    @property
    def phases(self) -> tuple[str, ...]:
        return tuple(self.tape.rows.phases)

    @property
    def made_nbytes(self) -> tuple[int, ...]:
        """Of every row bytes of new outputs; see :class:`Order`."""
        return () if self.order is None else self.order.made_nbytes

    @property
    def links(self) -> tuple[LinkCalls, ...]:
        return self.tape.links()

    def place(self, error: BaseException) -> str:
        """Where an exception of the trial that runs came from, in words."""
        failed = self.tape.failed(error)
        if failed is not None:
            of = "" if failed.phase == "forward" else f"the {failed.phase} of "
            return f"in {of}layer {failed.label} at {failed.path}"
        kind, path = self.entries.running.failed
        if kind and came_through(error, "through_link"):
            return f"in {kind} at {path}"
        last = self.tape.last_row()
        return (
            "before its first layer" if last is None else f"after layer {last.label} at {last.path}"
        )


def learned(step: Step) -> TapedStep:
    """A step whose calls are known by one trial of it, within its configuration."""
    taped = TapedStep(step)
    taped.learn()
    return taped


def as_it_is(entry: str, owner: Any, call: Callable[[], Any]) -> Any:
    return call()
