"""Has a network changed since it was folded? Asked in every call: answered in microseconds."""

from __future__ import annotations

from collections import deque
from operator import is_
from typing import Any

import chainer
import numpy as np

from chainer_profile.engines.protocol import EngineError

#: Arrays of up to so many bytes are compared as a whole in every call.
_WHOLE_NBYTES = 2048
#: Of larger ones so many places of so many bytes; and of all of them together one block in turn.
_PLACES, _PLACE_NBYTES = 8, 32
_BLOCK_NBYTES = 1 << 14

#: Attributes of links, by link.
State = list[tuple[Any, dict[str, Any]]]


def state_of(model: Any) -> State:
    """What the links of a network hold: by identity, but for lists, dicts and sets."""
    return [(link, _frozen(vars(link))) for link in model.links()]


def _frozen(value: Any) -> Any:
    """A copy of plain containers, the same objects in them."""
    kind = type(value)
    if kind is dict:
        return {key: _frozen(part) for key, part in value.items()}
    if kind in (list, tuple):
        return kind(map(_frozen, value))
    return set(value) if kind is set else value


def require_kept(model: Any, before: State) -> None:
    """Refuse a network that keeps something of a call.

    Raises:
        EngineError: A link holds something else than before the call.
    """
    for (link, held), (_, now) in zip(before, state_of(model), strict=False):
        for name in held.keys() | now.keys():
            if not _same(held.get(name), now.get(name)):
                kind = getattr(link, "_folded_plain", type(link)).__name__
                where = f"{kind} {link.name}" if link.name else kind
                raise EngineError(
                    f"the network keeps something from call to call: {name} of its {where}"
                )


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one is other or one == other)
    except Exception:  # arrays, variables, objects of the user's own
        return False


class Watch:
    """What a network held when it was folded.

    Its links' attributes and the identity of its parameters are compared whole. Numbers are
    compared in small arrays, at some places of larger ones, and in one block of all in turn: what
    an optimizer, a serializer or ``copyparams`` writes is seen at once, a single number that is
    written into a large array after some calls.

    Args:
        model: The network.
        constants: Arrays that the plan took beside those of the links.
    """

    def __init__(self, model: Any, constants: list[Any]) -> None:
        state = state_of(model)
        self._links = [link for link, _ in state]
        self._held = [held for _, held in state]
        self._config = _config()
        self._parameters = list(model.params())
        self._arrays = [parameter.array for parameter in self._parameters]
        known = [*self._arrays, *constants]
        known += [held for link in self._links for held in vars(link).values()]
        arrays = {id(a): a for a in known if isinstance(a, np.ndarray) and a.size}
        pieces: list[Any] = []
        blocks: list[Any] = []
        self._odd: list[tuple[Any, Any]] = []
        for array in arrays.values():
            flat = _bytes_of(array)
            if flat is None:
                self._odd.append((array, array.copy()))
            elif flat.nbytes <= _WHOLE_NBYTES:
                pieces.append(flat)
            else:
                last = flat.nbytes - _PLACE_NBYTES
                begins = [last * place // (_PLACES - 1) for place in range(_PLACES)]
                pieces += [flat[begin : begin + _PLACE_NBYTES] for begin in begins]
                words = flat[: len(flat) // 8 * 8].view(np.uint64)
                pieces.append(flat[words.nbytes :])
                step = _BLOCK_NBYTES // 8
                blocks += [words[begin : begin + step] for begin in range(0, len(words), step)]
        self._pieces = [memoryview(piece) for piece in pieces]
        self._bytes = b"".join(self._pieces)
        # A sum tells any single change.
        self._blocks = deque((block, np.add.reduce(block)) for block in blocks)

    def changed(self) -> bool:
        """Whether anything is seen to be another than it was."""
        try:
            if list(map(vars, self._links)) != self._held or _config() != self._config:
                return True
        except Exception:  # arrays and variables cannot be compared: another one is there
            return True
        # What parameter.array gives, in a tenth of its time.
        now = [parameter._data[0] for parameter in self._parameters]
        if not all(map(is_, now, self._arrays)) or b"".join(self._pieces) != self._bytes:
            return True
        if self._blocks:
            block, total = self._blocks[0]
            if np.add.reduce(block) != total:
                return True
            self._blocks.rotate(-1)
        return any(not np.array_equal(array, copy) for array, copy in self._odd)


def _config() -> dict[str, Any]:
    """Chainer's configuration of this thread, but for what a folded call decides itself."""
    held = {**vars(chainer.global_config), **vars(chainer.config._local)}
    del held["train"], held["enable_backprop"]
    return held


def _bytes_of(array: Any) -> Any:
    """An array's memory as bytes, (bytes,): a view; None if it is not in one piece."""
    if array.flags.f_contiguous:
        array = array.T
    if not array.flags.c_contiguous or array.dtype.hasobject:
        return None
    return array.reshape(-1).view(np.uint8)
