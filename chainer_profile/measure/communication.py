"""The collectives of ChainerMN's communicators: which parameter each of them moves, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any

import numpy as np

from chainer_profile.costs.call import ArraySpec, Shape, dtype_name

#: Called when a collective begins, with its name, the path of what it moves, and its buffer.
Begin = Callable[[str, str, ArraySpec | None], None]


def _of_buffer(args: tuple[Any, ...], place: int) -> ArraySpec | None:
    buffer: Any = args[place] if place < len(args) else None
    if isinstance(buffer, list | tuple):  # with MPI's type, which is float in all of ChainerMN
        buffer = np.frombuffer(buffer[0], np.float32)
    return _spec(buffer.shape, buffer.dtype) if hasattr(buffer, "dtype") else None


def _of_elements(args: tuple[Any, ...], place: int) -> ArraySpec | None:
    return _spec((int(args[place]),), np.dtype(_NCCL_TYPES[args[place + 1]]))


@cache
def _spec(shape: Shape, dtype: Any) -> ArraySpec:
    return ArraySpec(shape, dtype_name(dtype))


_NCCL_TYPES = {6: "float16", 7: "float32", 8: "float64"}
# Collectives by the names of methods: MPI's name, and the place of the buffer among the arguments;
# of NCCL's the place of the number of elements, before that of their type.
_MPI = {name: (name, 1) for name in ("Allreduce", "Allgather", "Alltoall")}
_MPI["Bcast"] = ("Bcast", 0)
_NCCL = {"allReduce": ("Allreduce", 2), "reduce": ("Reduce", 2), "bcast": ("Bcast", 1)}
#: Attributes of communicators that run collectives.
_CHANNELS = {
    "mpi_comm": (_of_buffer, _MPI),
    "inter_mpi_comm": (_of_buffer, _MPI),
    "nccl_comm": (_of_elements, _NCCL),
    "intra_nccl_comm": (_of_elements, _NCCL),
}


@contextmanager
def collectives(
    communicator: Any, model: Any, attribute: str, begin: Begin, end: Callable[[], None]
) -> Iterator[None]:
    """Within this, call ``begin`` and ``end`` around all of a communicator's collectives."""
    path_of = _paths_of_buffers(model, attribute)

    def watched(call: Callable[..., Any], name: str, spec: Callable[..., Any], place: int) -> Any:
        def watched_call(*args: Any, **kwargs: Any) -> Any:
            moved = spec((*args, *kwargs.values()), place)
            begin(name, path_of(moved), moved)
            try:
                return call(*args, **kwargs)
            finally:
                end()

        return watched_call

    def stand_in(channel: Any, name: str) -> Any:
        spec, methods = _CHANNELS[name]
        watching = _StandIn(channel)
        for method, (collective, place) in methods.items():
            call = getattr(channel, method, None)
            if call is not None:
                vars(watching)[method] = watched(call, collective, spec, place)
        return watching

    if hasattr(communicator, "_init_comms"):
        # It would be made within the first call only.
        communicator._init_comms()
    with ExitStack() as stack:
        for name in _CHANNELS:
            channel = vars(communicator).get(name)
            if channel is not None:
                stack.enter_context(
                    _replaced_channel(communicator, name, partial(stand_in, name=name))
                )
        yield


def _paths_of_buffers(model: Any, attribute: str) -> Callable[[ArraySpec | None], str]:
    """Gives the path of the parameter that each collective moves, in the order of these."""
    # Where each parameter is moved by itself, they come in this order.
    params = (named for named in model.namedparams() if named[1].array is not None)
    left = sorted(params, key=lambda named: str(named[0]), reverse=True)

    def path_of(moved: ArraySpec | None) -> str:
        while left and getattr(left[-1][1], attribute) is None:
            left.pop()
        if moved is None or not left or moved.size != left[-1][1].size:
            return "/"
        return str(left.pop()[0])

    return path_of


class _Channel:
    """A descriptor of a communicator's class: one communicator shows a stand-in for a channel.

    Communicators of MPI and NCCL are extension types, so their methods cannot be patched; and the
    attributes of ChainerMN's communicator are the program's.
    """

    def __init__(self, communicator: Any, name: str, stand_in: Any, below: Any) -> None:
        self._communicator, self._name, self._stand_in = communicator, name, stand_in
        self._below = below

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is self._communicator:
            return self._stand_in
        if hasattr(self._below, "__get__"):
            return self._below.__get__(instance, owner)
        try:
            return vars(instance)[self._name]
        except KeyError:
            raise AttributeError(self._name) from None

    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)[self._name] = value


@contextmanager
def _replaced_channel(
    communicator: Any, name: str, stand_in: Callable[[Any], Any]
) -> Iterator[None]:
    """Within this a communicator's attribute gives a stand-in."""
    cls: Any = type(communicator)
    below = vars(cls).get(name)
    channel = _Channel(communicator, name, stand_in(getattr(communicator, name)), below)
    setattr(cls, name, channel)
    try:
        yield
    finally:
        if vars(cls).get(name) is channel:
            if below is None:
                delattr(cls, name)
            else:
                setattr(cls, name, below)


class _StandIn:
    """Stands for MPI's communicator, or NCCL's, which take no attributes."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)
