"""Sessions that record the trials of a step, and locate the failure of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.basics.units import format_shape
from chainer_profile.measure.clock import HOST_CLOCK, Clock
from chainer_profile.measure.session import Session, Warn
from chainer_profile.measure.step import Step
from chainer_profile.record.recording import Layer, LinkCalls, Shape


class StepError(Exception):
    """The network raised an exception.

    Attributes:
        where: The layer or link, in words.
        cause: The exception.
    """

    def __init__(self, where: str, cause: Exception) -> None:
        super().__init__(f"{where}: {cause}")
        self.where = where
        self.cause = cause

    def with_input(self, shape: Shape) -> ProfileError:
        """Make the error for the user, with the shape of the input."""
        return ProfileError(
            f"the network fails with an input of {format_shape(shape)}, {self.where}: "
            f"{one_line(self.cause)}"
        )


class StepSession(Session):
    """Records trials of a step. The caller enters ``step.configured()``."""

    def __init__(
        self,
        step: Step,
        clock: Clock = HOST_CLOCK,
        *,
        single_calls: bool = True,
        warn: Warn = lambda problem: None,
    ) -> None:
        super().__init__(
            step.roots,
            clock,
            single_calls=single_calls,
            network_is_phase=step.network_is_phase,
            warn=warn,
        )
        self._step = step

    def learn(self, look: Callable[[Any], object] | None = None) -> None:
        """Make a trial that does not count, and pass its result to ``look``.

        Raises:
            StepError: The network fails.
            ProfileError: The recorder fails.
        """
        with self.recording():
            self.begin_trial()
            try:
                result = self._step()
            except Exception as error:
                where = self.describe_location(error)
                self.discard_trial()
                raise StepError(where, error) from error
            self.end_trial()
        if self.recorder.failure:
            raise ProfileError(f"measuring failed: {self.recorder.failure}")
        if look is not None:
            look(result)
        self.read()

    def forget(self) -> None:
        """Forget the trials so far; their rows stay."""
        self.target.forget()

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The rows: calls in their order, or functions of links."""
        return self.target.aggregator.layers()

    @property
    def phases(self) -> tuple[str, ...]:
        return tuple(self.target.aggregator.phases)

    @property
    def has_single_calls(self) -> bool:
        """Whether rows are single calls."""
        return self.target.aggregator.call_layout is not None

    @property
    def new_nbytes(self) -> tuple[int, ...]:
        """Bytes of outputs that are no views of inputs, by row; empty unless rows are calls."""
        layout = self.target.aggregator.call_layout
        return () if layout is None else layout.new_nbytes()

    @property
    def links(self) -> tuple[LinkCalls, ...]:
        return self.target.link_table()

    def describe_location(self, error: BaseException) -> str:
        """Describe where the running trial raised an exception: ``in layer 3 (ReLU) at /a``."""
        layer, was_left = self.failed_layer(error)
        if layer is not None and was_left:
            phase = "" if layer.phase == "forward" else f"the {layer.phase} of "
            return f"in {phase}layer {layer.label} at {layer.path}"
        callers = self.target.links.callers
        link = _innermost_link(error, callers)
        if link is not None:
            return f"in {type(link).__name__} at {callers[id(link)].path}"
        if layer is None:
            return "before its first layer"
        return f"after layer {layer.label} at {layer.path}"


def _innermost_link(error: BaseException, known: Any) -> Any:
    """Find the innermost known link in an exception's traceback; None without one.

    ``known`` contains the identities of links.
    """
    link, trace = None, error.__traceback__
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
        owner = frame.f_locals.get("self")
        if frame.f_code.co_name == "__call__" and id(owner) in known:
            link = owner
    return link


def learned(step: Step) -> StepSession:
    """Return a session that has learned the calls of a step in one trial."""
    session = StepSession(step)
    session.learn()
    return session
