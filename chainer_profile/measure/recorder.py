"""The recorder: a function hook that logs when each span of a trial begins and ends.

The log is a flat list of pairs: an event id and a clock value when a span begins, the complement of
the event id and a clock value when it ends. ``sites`` has the call site of each event id. While a
trial runs, nothing is computed except for call sites that are new.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from itertools import count
from threading import get_ident
from types import FrameType
from typing import Any, NamedTuple

import chainer
from chainer import FunctionHook
from chainer.function import FunctionAdapter

from chainer_profile.basics.errors import one_line
from chainer_profile.basics.paths import joined
from chainer_profile.costs.call import ArraySpec
from chainer_profile.measure import observers, patches, wrappers
from chainer_profile.measure.call_sites import CallSite, Kind
from chainer_profile.measure.communication import collectives
from chainer_profile.measure.links import Caller, Links, LinkTracker
from chainer_profile.measure.operations import OperationSites, communicator_of
from chainer_profile.measure.spans import PAUSE, TRIAL

#: A function node stores ``position of its begin event * MAX_SITES + its event id``. Positions
#: count from the first event ever logged, also after :meth:`Recorder.clear`.
MAX_SITES = 1 << 24
#: The value for a call that was not recorded: its position is before the log.
_UNKNOWN_CALL = -2 * MAX_SITES + TRIAL
#: At most this many call sites of one function of one link differ in shape; others share a site.
MAX_SHAPES = 64
#: A log with more numbers than this, two for each event, is long.
MAX_EVENTS = 400_000
#: Signatures that a link remembers.
_MAX_SIGNATURES = 10_000
_numbers = count()


class Reader(NamedTuple):
    """Functions that read a clock, or other counters, when a span begins and when it ends."""

    begin: Callable[[], int]
    end: Callable[[], int]


class Recorder(FunctionHook):
    """Logs the spans of one thread between :meth:`start` and :meth:`stop`."""

    def __init__(self, links: Links, reader: Reader, warn: Callable[[str], None]) -> None:
        number = next(_numbers)
        self.name = f"chainer_profile.Recorder-{number}"
        self.thread = 0
        #: The call sites, by event id.
        self.sites = [CallSite(Kind.TRIAL), CallSite(Kind.PAUSE)]
        self.events: list[int] = []
        #: For every backward that was logged, the index of its call's begin event.
        self.forward_events: list[int] = []
        #: Tracks calls of links.
        self.tracker = LinkTracker(links, self.pause)
        #: The number of events that :meth:`clear` has removed from the log.
        self.n_cleared = 0
        #: The number that a function node stores for the log's first event, without an event id.
        self._first_call = 0
        #: Why recording has failed; empty if it has not.
        self.failure = ""
        #: Pauses, and their time, since the session set these to 0.
        self.n_pauses = self.paused_ns = 0
        self._is_paused = False
        #: Called when the log has become long.
        self.on_long_log: Callable[[], None] = lambda: None
        #: The number of events logged so far, when an exception left its innermost span.
        self.n_before_raised = 0
        self._attribute = f"_chainer_profile_call_{number}"
        self._warn = warn
        self._backward_ids: dict[int, int] = {}
        self._unknown_backward_ids: dict[str, int] = {}
        self.operations = OperationSites(self.add_site, self.pause, warn)
        #: Sites whose first call has not ended yet.
        self._unfinished: dict[int, CallSite] = {}
        self.use(links)
        self.read_by(reader)

    # -- what the session does

    def use(self, links: Links) -> None:
        """Attribute calls to these links from now on. The code is outside of all links at first."""
        self.links = links
        self.tracker.use(links)

    def read_by(self, reader: Reader) -> None:
        """Log the values of this reader from now on."""
        self._read_begin, self._read_end = reader

    def start(self, registered: bool = False) -> None:
        """Record what the calling thread runs, unless recording has failed.

        Args:
            registered: Chainer already calls this hook.
        """
        if self.failure:
            return
        self.thread = self.tracker.thread = get_ident()
        self.use(self.links)
        self.links.update_parameters()
        patches.add_observer(self, calls=True)
        if not registered:
            chainer.get_function_hooks()[self.name] = self

    def stop(self) -> None:
        """Record nothing more."""
        patches.remove_observer(self)
        chainer.get_function_hooks().pop(self.name, None)

    def begin(self, event_id: int) -> None:
        """Log that a span begins."""
        self.events.extend((event_id, self._read_begin()))

    def end(self, event_id: int) -> None:
        """Log that a span ends."""
        self.events.extend((~event_id, self._read_end()))

    def clear(self) -> None:
        """Remove all events from the log, after the session has read it."""
        self.n_cleared += len(self.events) // 2
        self._first_call = 2 * self.n_cleared * MAX_SITES
        self.events.clear()
        self.forward_events.clear()
        self.tracker.log.clear()

    def _shorten_log(self) -> None:
        """Call :attr:`on_long_log` in a pause."""
        with self.pause():
            self.on_long_log()

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Log a pause: the time within the context belongs to no row or phase."""
        if self._is_paused:
            yield
            return
        self._is_paused = True
        self.begin(PAUSE)
        began = self.events[-1]
        try:
            yield
        finally:
            self.end(PAUSE)
            self._is_paused = False
            self.n_pauses += 1
            self.paused_ns += self.events[-1] - began

    def add_site(self, site: CallSite) -> int:
        """Add a call site, and return its event id."""
        self.sites.append(site)
        return len(self.sites) - 1

    # -- functions: the interface of FunctionHook

    def forward_preprocess(self, function: Any, in_data: Any) -> None:
        caller, events = self.tracker.current, self.events
        if caller.has_children:
            parameters = self.links.parameters
            for x in in_data:
                if id(x) in parameters:  # its link may be below the caller
                    caller = self.links.owner(caller, in_data)
                    break
        try:
            event_id = caller.get((function.__class__, *[x.shape for x in in_data]))
        except AttributeError:  # an input may be None
            event_id = None
        if event_id is None:
            event_id = self._guarded(self._event_id, function, in_data, sys._getframe(1))
        position = len(events)
        if position > MAX_EVENTS:
            self._guarded(self._shorten_log)
            position = len(events)
        setattr(function, self._attribute, self._first_call + position * MAX_SITES + event_id)
        events.extend((event_id, self._read_begin()))

    def forward_postprocess(self, function: Any, in_data: Any) -> None:
        now = self._read_end()
        call = getattr(function, self._attribute, None)
        if call is None:  # it began before the recorder started
            return
        event_id = call % MAX_SITES
        self.events.extend((~event_id, now))
        if self._unfinished and event_id in self._unfinished:
            outputs = sys._getframe(1).f_locals.get("outputs", ())
            with self.pause():
                site = self._unfinished.pop(event_id)
                self._guarded(site.add_outputs, function, in_data, outputs, self._warn)

    def backward_preprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        if len(self.events) > MAX_EVENTS:
            self._guarded(self._shorten_log)
        position, event_id = divmod(getattr(function, self._attribute, _UNKNOWN_CALL), MAX_SITES)
        backward_id = self._backward_ids.get(event_id)
        if backward_id is None:
            backward_id = self._guarded(self._backward_id, function, event_id, out_grad)
        self.forward_events.append(position // 2)
        self.events.extend((backward_id, self._read_begin()))

    def backward_postprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        now = self._read_end()
        event_id = getattr(function, self._attribute, _UNKNOWN_CALL) % MAX_SITES
        backward_id = self._backward_ids.get(event_id)
        if backward_id is None:
            backward_id = self._unknown_backward_ids.get(function._impl_name, TRIAL)
        if backward_id != TRIAL:
            self.events.extend((~backward_id, now))

    def _guarded(self, work: Callable[..., int | None], *args: Any) -> int:
        """Return ``work(*args)``, or :data:`TRIAL` for None. An exception ends the recording.

        Once recording has failed, the work is not done.
        """
        if not self.failure:
            try:
                return work(*args) or TRIAL
            except Exception as error:
                self.fail(error)
        return TRIAL

    def _event_id(self, function: Any, in_data: Sequence[Any], apply: FrameType) -> int:
        """Return the event id of a function's call; add a call site if it is new.

        :meth:`forward_preprocess` looks up the usual calls itself. It calls this if it finds none.

        ``apply`` is the frame of Chainer's method that makes the call.
        """
        caller, links = self.tracker.current, self.links
        # All functions in the style of Chainer 1 have this class: look up their own class.
        is_adapter = function.__class__ is FunctionAdapter
        cls = function.function.__class__ if is_adapter else function.__class__
        signature: tuple[Any, ...] = (cls, *[getattr(x, "shape", None) for x in in_data])
        owner = links.owner(caller, in_data)
        event_id = owner.get(signature)
        if event_id is None:  # a parameter may have a new array
            with self.pause():
                links.note_parameters(caller, apply.f_locals.get("input_vars", ()))
            owner = links.owner(caller, in_data)
            event_id = owner.get(signature)
        if event_id is not None:
            return event_id
        with self.pause():
            n_shapes = owner.n_shapes[signature[0]]
            # All further shapes share a site.
            key = signature if n_shapes < MAX_SHAPES else (signature[0], None)
            event_id = owner.get(key)
            if event_id is None:
                kind = Kind.SUM if owner.is_sum else Kind.FUNCTION
                site = CallSite(kind, owner.path, str(function._impl_name))
                site.add_inputs(in_data, links.parameters)
                owner[key] = event_id = self.add_site(site)
                owner.n_shapes[signature[0]] += 1
                self._unfinished[event_id] = site
            if len(owner) < _MAX_SIGNATURES:
                owner[signature] = event_id
        return event_id

    def _backward_id(self, function: Any, event_id: int, out_grad: Any) -> int:
        """Return the event id of a call's backward, and add its call site.

        If the call was not recorded, the id is the same for all functions of this name.
        """
        name = str(function._impl_name)
        if event_id == TRIAL and name in self._unknown_backward_ids:
            return self._unknown_backward_ids[name]
        with self.pause():
            forward = self.sites[event_id]
            path, function_name = (forward.path, forward.function) if event_id else ("/", name)
            site = CallSite(Kind.BACKWARD, path, function_name, "backward")
            site.add_gradients(function, out_grad, forward, self._warn)
            backward_id = self.add_site(site)
        if event_id == TRIAL:
            self._unknown_backward_ids[name] = backward_id
        else:
            self._backward_ids[event_id] = backward_id
        return backward_id

    # -- links and operations: the interface of observers.CallObserver

    def function_raised(self, function: Any) -> None:
        self._note_exception()
        call = getattr(function, self._attribute, None)
        if call is not None:  # else it raised before it began, such as in its type check
            self.end(call % MAX_SITES)

    def begin_elsewhere(self, operation: str) -> None:
        """Do nothing: other threads are not recorded."""

    def fail(self, error: Exception) -> None:
        """Mark the recording as failed, and warn once."""
        # Chainer may be iterating over its hooks, so only stop() removes this one.
        patches.remove_observer(self)
        if not self.failure:
            self.failure = one_line(error)
            self._warn(f"measuring stopped: {self.failure}")

    def begin_operation(
        self, operation: str, owner: Any, args: tuple[Any, ...]
    ) -> observers.End | None:
        event_id = self.operations.event_id(operation, owner, args, self.links)
        if event_id is None:
            return None
        caller = self.tracker.current
        if operation == observers.LOSS and caller.is_outside:
            self.tracker.current = self.links.loss
        elif operation == observers.UPDATE and communicator_of(owner) is not None:
            patches.observe_communicator(communicator_of(owner))
        end = partial(self._end_operation, event_id, caller)
        if operation == observers.COMMUNICATION:
            watching = ExitStack()
            watching.enter_context(self._collectives(owner, *args))
            end = partial(self._end_communication, watching, end)
        self.begin(event_id)
        return end

    def _collectives(
        self, communicator: Any, method: str, model: Any
    ) -> AbstractContextManager[None]:
        """Record the collectives of a communicator as spans within this block."""
        prefix = self.links.prefix_of(model)
        open_ids: list[int] = []

        def begin(function: str, path: str, moved: ArraySpec | None) -> None:
            event_id = self.operations.collective_id(joined(prefix, path), function, moved)
            open_ids.append(event_id)
            self.begin(event_id)

        def end() -> None:
            self.end(open_ids.pop())

        attribute = "array" if method == "bcast_data" else "grad"
        return collectives(communicator, model, attribute, begin, end)

    def _end_operation(
        self, event_id: int, caller: Caller, error: BaseException | None, result: Any
    ) -> None:
        if error is not None:
            self._note_exception()
        self.end(event_id)
        self.tracker.current = caller

    def _end_communication(
        self, watching: ExitStack, end: observers.End, error: BaseException | None, result: Any
    ) -> None:
        end(error, result)
        watching.close()

    def _note_exception(self) -> None:
        """Note the position in the log if the current exception leaves its innermost span."""
        error = sys.exc_info()[1]
        if error is not None and wrappers.left_spans(error) == 1:
            self.n_before_raised = self.n_cleared + len(self.events) // 2
