"""A step on the tape: its trials, what they call, and where one failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.basics.units import format_shape
from chainer_profile.measure.clock import NowNs
from chainer_profile.measure.entries import Entries
from chainer_profile.measure.events import EventPool
from chainer_profile.measure.order import Order
from chainer_profile.measure.repeats import Repeats
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
        self._step, self._now_ns = step, now_ns
        # While its calls are known to repeat.
        self._repeats: Repeats | None = None
        self._unlike = 0

    @contextmanager
    def recording(self) -> Iterator[Tape | Repeats]:
        """Within this, trials are on the tape, or note less while they repeat known calls."""
        repeats = self._repeats
        if repeats is not None and not repeats.holds:
            if repeats.unlike:
                self._unlike, self.tape.rows.order = repeats.unlike, None
            repeats = self._repeats = None
        self.tape.all_functions = self.order is not None
        if repeats is None:
            with self._on_tape():
                yield self.tape
        else:
            with repeats.recording():
                yield repeats

    @contextmanager
    def _on_tape(self) -> Iterator[None]:
        with self.entries, self.tape.recording():
            yield

    def learn(self, look: Callable[[Any], object] | None = None) -> None:
        """Make a trial that is not kept; look at what it gives.

        From the second one on trials may be known to repeat their calls.

        Raises:
            StepError: The network fails.
        """
        tape, order = self.tape, self.order
        tape.forget()
        with self._on_tape():
            self.tape.start()
            try:
                given = self._step()
            except Exception as error:
                raise StepError(self.place(error), error) from error
            self.tape.stop()
        if look:
            look(given)
        tape.fold()
        # Of a function that raises only the tape notes the end. Where processes wait for one
        # another none of them may make a trial more.
        if order is None or order is not self.order:
            return
        if not (order.first.raised or order.moves):
            tape.paths.know_parameters()
            self._repeats = Repeats(tape, order, self._now_ns, self._step)

    @property
    def order(self) -> Order | None:
        """The calls of each trial; None where they differ."""
        return self.tape.rows.order

    @property
    def unlike(self) -> int:
        """Trials that made other calls than those before, of which nothing is kept."""
        return self._unlike if self._repeats is None else self._repeats.unlike

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
        layer, left = (self._repeats or self.tape).failed(error)
        if layer is not None and left:
            of = "" if layer.phase == "forward" else f"the {layer.phase} of "
            return f"in {of}layer {layer.label} at {layer.path}"
        link = self._link_left(error)
        if link is not None:
            return f"in {type(link).__name__} at {self.tape.paths.by_link[id(link)]}"
        if layer is None:
            return "before its first layer"
        return f"after layer {layer.label} at {layer.path}"

    def _link_left(self, error: BaseException) -> Any:
        """The innermost link whose call an exception left."""
        link, trace = None, error.__traceback__
        while trace is not None:
            frame, trace = trace.tb_frame, trace.tb_next
            owner = frame.f_locals.get("self")
            if frame.f_code.co_name == "__call__" and id(owner) in self.tape.paths.by_link:
                link = owner
        return link


def learned(step: Step) -> TapedStep:
    """A step whose calls are known by one trial of it, within its configuration."""
    taped = TapedStep(step)
    taped.learn()
    return taped


def as_it_is(entry: str, owner: Any, call: Callable[[], Any]) -> Any:
    return call()
