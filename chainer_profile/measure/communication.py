"""Observes the collectives of ChainerMN's communicators, and finds the parameter of each one.

A communicator runs its collectives through channels: communicators of MPI and NCCL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any

import numpy as np

from chainer_profile.costs.call import ArraySpec, Shape, dtype_name

#: Called when a collective begins, with its name, the path of its parameter, and its buffer's spec.
Begin = Callable[[str, str, ArraySpec | None], None]


def _mpi_spec(args: tuple[Any, ...], position: int) -> ArraySpec | None:
    """Shape and data type of a collective's buffer, which is an argument of MPI's method."""
    buffer: Any = args[position] if position < len(args) else None
    if isinstance(buffer, list | tuple):  # memory and MPI's type, which ChainerMN sets to float
        buffer = np.frombuffer(buffer[0], np.float32)
    return _spec(buffer.shape, buffer.dtype) if hasattr(buffer, "dtype") else None


def _nccl_spec(args: tuple[Any, ...], position: int) -> ArraySpec | None:
    """Size and data type of a collective's buffer, which are arguments of NCCL's method."""
    return _spec((int(args[position]),), np.dtype(_NCCL_TYPES[args[position + 1]]))


@cache
def _spec(shape: Shape, dtype: Any) -> ArraySpec:
    return ArraySpec(shape, dtype_name(dtype))


_NCCL_TYPES = {6: "float16", 7: "float32", 8: "float64"}
# For each method: the collective's name in MPI, and the position of an argument. This is the buffer
# for MPI; for NCCL it is the number of elements, and the data type follows.
_MPI = {name: (name, 1) for name in ("Allreduce", "Allgather", "Alltoall")}
_MPI["Bcast"] = ("Bcast", 0)
_NCCL = {"allReduce": ("Allreduce", 2), "reduce": ("Reduce", 2), "bcast": ("Bcast", 1)}
#: Attributes of a communicator with its channels: how to read a buffer's spec, and the methods.
_CHANNELS = {
    "mpi_comm": (_mpi_spec, _MPI),
    "inter_mpi_comm": (_mpi_spec, _MPI),
    "nccl_comm": (_nccl_spec, _NCCL),
    "intra_nccl_comm": (_nccl_spec, _NCCL),
}


@contextmanager
def collectives(
    communicator: Any, model: Any, attribute: str, begin: Begin, end: Callable[[], None]
) -> Iterator[None]:
    """Call ``begin`` and ``end`` around a communicator's collectives within the context.

    The collectives move the ``attribute`` of each parameter: ``"array"`` or ``"grad"``.
    """
    path_of = _buffer_paths(model, attribute)

    def observed(
        call: Callable[..., Any], name: str, spec: Callable[..., Any], position: int
    ) -> Any:
        def observed_call(*args: Any, **kwargs: Any) -> Any:
            moved = spec((*args, *kwargs.values()), position)
            begin(name, path_of(moved), moved)
            try:
                return call(*args, **kwargs)
            finally:
                end()

        return observed_call

    def proxy(channel: Any, name: str) -> Any:
        spec, methods = _CHANNELS[name]
        observing = _ChannelProxy(channel)
        for method, (collective, position) in methods.items():
            call = getattr(channel, method, None)
            if call is not None:
                vars(observing)[method] = observed(call, collective, spec, position)
        return observing

    if hasattr(communicator, "_init_comms"):
        # Otherwise the communicator makes its channels during the first collective.
        communicator._init_comms()
    with ExitStack() as stack:
        for name in _CHANNELS:
            channel = vars(communicator).get(name)
            if channel is not None:
                stack.enter_context(
                    _replaced_channel(communicator, name, partial(proxy, name=name))
                )
        yield


def _buffer_paths(model: Any, attribute: str) -> Callable[[ArraySpec | None], str]:
    """Make a function that returns the path of the parameter that the next collective moves.

    It takes the spec of the collective's buffer. The path is ``/`` if the buffer is not a single
    parameter.
    """
    # ChainerMN moves single parameters in the order of their paths. pop() takes the last one.
    params = (named for named in model.namedparams() if named[1].array is not None)
    remaining = sorted(params, key=lambda named: str(named[0]), reverse=True)

    def path_of(moved: ArraySpec | None) -> str:
        while remaining and getattr(remaining[-1][1], attribute) is None:
            remaining.pop()
        if moved is None or not remaining or moved.size != remaining[-1][1].size:
            return "/"
        return str(remaining.pop()[0])

    return path_of


class _ChannelAttribute:
    """A class attribute that gives one communicator a proxy, and others their own channel.

    Channels are extension types, so their methods cannot be patched. ChainerMN's communicator is an
    object of the program, so its attributes are not replaced.
    """

    def __init__(self, communicator: Any, name: str, proxy: Any, original: Any) -> None:
        self._communicator, self._name, self._proxy = communicator, name, proxy
        self._original = original  # the class attribute that this one replaces, or None

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is self._communicator:
            return self._proxy
        if hasattr(self._original, "__get__"):
            return self._original.__get__(instance, owner)
        try:
            return vars(instance)[self._name]
        except KeyError:
            raise AttributeError(self._name) from None

    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)[self._name] = value


@contextmanager
def _replaced_channel(communicator: Any, name: str, proxy: Callable[[Any], Any]) -> Iterator[None]:
    """Let one communicator use ``proxy(channel)`` as the channel ``name`` within the context."""
    cls: Any = type(communicator)
    original = vars(cls).get(name)
    channel = _ChannelAttribute(communicator, name, proxy(getattr(communicator, name)), original)
    setattr(cls, name, channel)
    try:
        yield
    finally:
        if vars(cls).get(name) is channel:
            if original is None:
                delattr(cls, name)
            else:
                setattr(cls, name, original)


class _ChannelProxy:
    """Replaces a channel, which accepts no attributes; its other attributes are the channel's."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)
