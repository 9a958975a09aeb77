"""The collectives of ChainerMN's communicators: which parameter each of them moves, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from chainer_profile.basics.replacements import Replacements
from chainer_profile.costs.work import ArraySpec

#: Is told of a collective that begins: its name, the path of what it moves, and its buffer.
Begin = Callable[[str, str, ArraySpec | None], None]

# Collectives by the names of methods: MPI's name, and the place of the buffer among the arguments;
# of NCCL's the place of the number of elements, before that of their type.
_MPI = {
    "Allreduce": ("Allreduce", 1),
    "Allgather": ("Allgather", 1),
    "Alltoall": ("Alltoall", 1),
    "Bcast": ("Bcast", 0),
}
_NCCL = {"allReduce": ("Allreduce", 2), "reduce": ("Reduce", 2), "bcast": ("Bcast", 1)}
_NCCL_TYPES = {6: "float16", 7: "float32", 8: "float64"}
#: Attributes of communicators that run collectives.
_CHANNELS = {
    "mpi_comm": _MPI,
    "inter_mpi_comm": _MPI,
    "nccl_comm": _NCCL,
    "intra_nccl_comm": _NCCL,
}


@contextmanager
def collectives(
    communicator: Any, model: Any, attribute: str, begin: Begin, end: Callable[[], None]
) -> Iterator[None]:
    """Within this, something is told of every collective that a communicator runs.

    What MPI or NCCL themselves do is within a collective; packing, casting and dividing is not.

    Args:
        communicator: One of ChainerMN's.
        model: The link whose parameters it moves.
        attribute: What of them: ``grad``, or ``array``.
        begin: Is told of each that begins. Its path is that of the parameter; ``/`` where several
            are moved at once.
        end: Is told of its end.
    """
    # They come in this order, where each is moved by itself.
    there = (named for named in model.namedparams() if named[1].array is not None)
    left = sorted(there, reverse=True)

    def path_of(moved: ArraySpec | None) -> str:
        while left and getattr(left[-1][1], attribute) is None:
            left.pop()
        if moved is None or not left or moved.size != left[-1][1].size:
            return "/"
        return str(left.pop()[0])

    def run(name: str, moved: ArraySpec | None, call: Callable[[], Any]) -> Any:
        begin(name, path_of(moved), moved)
        try:
            return call()
        finally:
            end()

    if hasattr(communicator, "_init_comms"):
        # It would be made within the first call only.
        communicator._init_comms()
    with Replacements() as replacements:
        for name, methods in _CHANNELS.items():
            channel = vars(communicator).get(name)
            if channel is not None:
                replacements.put(communicator, name, _Watched(channel, methods, run))
        yield


class _Watched:
    """Stands for MPI's communicator, or NCCL's: they take no attributes."""

    def __init__(
        self, channel: Any, methods: dict[str, tuple[str, int]], run: Callable[..., Any]
    ) -> None:
        self._channel, self._methods, self._run = channel, methods, run

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._channel, name)
        if name not in self._methods:
            return found
        collective, place = self._methods[name]
        spec = _of_elements if self._methods is _NCCL else _of_buffer

        def call(*args: Any, **kwargs: Any) -> Any:
            moved = spec((*args, *kwargs.values()), place)
            return self._run(collective, moved, lambda: found(*args, **kwargs))

        return call


def _of_elements(args: tuple[Any, ...], place: int) -> ArraySpec | None:
    dtype = _NCCL_TYPES.get(args[place + 1])
    return None if dtype is None else ArraySpec((int(args[place]),), dtype)


def _of_buffer(args: tuple[Any, ...], place: int) -> ArraySpec | None:
    buffer = args[place] if place < len(args) else None
    if isinstance(buffer, list | tuple):  # with MPI's type, which is float in all of ChainerMN
        buffer = np.frombuffer(buffer[0], np.float32)
    return ArraySpec.of(buffer) if hasattr(buffer, "dtype") else None
