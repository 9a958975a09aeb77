"""Nodes -> a plan: array operations on memory that is taken once and used again in every pass.

Images lie with their channels last, which makes the patches of a convolution (im2col) long copies
and its result one matrix product. An array that a convolution pads lies within its padding from the
start. Arrays that are not needed any more give their memory to later ones.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from chainer_profile.engines.folded import kernels
from chainer_profile.engines.folded.fold import Node
from chainer_profile.engines.folded.kernels import Pad
from chainer_profile.engines.trace import Value

#: Patches of a convolution that are made at a time take at most so many bytes: they stay in the
#: cache until the matrix product reads them.
PATCHES_NBYTES = 1 << 20

#: An operation of a plan: a function and its arguments, the array that it writes among them.
Operation = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class Step:
    """The operations of one node: those from ``begin`` up to ``end``."""

    node: Node
    begin: int
    end: int


@dataclass(eq=False)
class _Memory:
    """An array, what it is good for, and the last node that needs what is in it."""

    whole: Any
    key: Any
    last: int


@dataclass(eq=False)
class _Place:
    """Where a value lies.

    Attributes:
        array: The value as it lies: images with channels last, all else as Chainer has it.
        whole: The same with its padding.
        pad: That padding at either end of height and width.
        memory: The memory that it lies in, which views of it share.
    """

    array: Any
    whole: Any
    pad: Pad
    memory: _Memory

    @property
    def chainers(self) -> Any:
        """The value with its axes as Chainer has them."""
        return self.array.transpose(0, 3, 1, 2) if self.array.ndim == 4 else self.array


class Plan:
    """A network's forward pass for inputs of one shape.

    Args:
        nodes: What to do, in order.
        inputs: The network's inputs.
        outputs: What it gives.
        xp: NumPy or CuPy.

    Attributes:
        operations: Everything that a pass does, after its inputs were copied.
        steps: Which operations are whose.
        nbytes: Memory that the plan holds beside the parameters.
    """

    def __init__(
        self, nodes: Sequence[Node], inputs: Sequence[Value], outputs: Sequence[Value], xp: Any
    ) -> None:
        self.operations: list[Operation] = []
        self.steps: list[Step] = []
        self.nbytes = 0
        self._xp = xp
        self._nodes = nodes
        self._places: dict[int, _Place] = {}
        self._free: dict[Any, list[Any]] = defaultdict(list)
        self._used: list[_Memory] = []
        self._patches: dict[Any, Any] = {}
        self._scratch: dict[Any, Any] = {}
        self._last = self._last_uses(outputs)
        for value in inputs:
            self._take(value)
        for at, node in enumerate(nodes):
            begin = len(self.operations)
            _EMITTERS[node.kind](self, node)
            self.steps.append(Step(node, begin, len(self.operations)))
            self._release(at)
        self._inputs = [self._places[value.number].chainers for value in inputs]
        self._outputs = [self._places[value.number].chainers for value in outputs]
        # What was only needed to make the plan; operations have the weights in their own layout.
        del self._free, self._used, self._patches, self._scratch, self._places
        for node in nodes:
            node.weight = node.bias = None

    def __call__(self, inputs: Sequence[Any], read: Callable[[], None] | None = None) -> Any:
        """One pass.

        Args:
            inputs: Arrays of the shapes that the plan is for.
            read: Called at the begin, when the inputs are in their place, after every step, and
                when the outputs are out: a clock to read.

        Returns:
            The outputs, a tuple of new arrays.
        """
        if read is not None:
            return self._timed(inputs, read)
        self.feed(inputs)
        for function, arguments in self.operations:
            function(*arguments)
        return self.results()

    def _timed(self, inputs: Sequence[Any], read: Callable[[], None]) -> tuple[Any, ...]:
        read()
        self.feed(inputs)
        read()
        for step in self.steps:
            for function, arguments in self.operations[step.begin : step.end]:
                function(*arguments)
            read()
        results = self.results()
        read()
        return results

    def feed(self, inputs: Sequence[Any]) -> None:
        """Copy the inputs to where the plan has them."""
        for place, array in zip(self._inputs, inputs, strict=True):
            self._xp.copyto(place, array)

    def results(self) -> tuple[Any, ...]:
        """The outputs of the last pass, in new arrays."""
        return tuple(array.copy(order="C") for array in self._outputs)

    def intermediates(self, inputs: Sequence[Any]) -> Iterator[tuple[Node, Any]]:
        """One pass, with what every node gave first, in Chainer's axes."""
        self.feed(inputs)
        for step, array in zip(self.steps, self._given, strict=True):
            for function, arguments in self.operations[step.begin : step.end]:
                function(*arguments)
            if array is not None and not step.node.passes_on:
                yield step.node, array.copy(order="C")

    # -- memory

    def _last_uses(self, outputs: Sequence[Value]) -> dict[int, int]:
        """The last node that takes each value; outputs are needed behind all nodes."""
        last = {value.number: at for at, node in enumerate(self._nodes) for value in node.takes}
        for at, node in enumerate(self._nodes):
            for value in node.outputs:
                if value is not None:
                    last.setdefault(value.number, at)
        last.update((value.number, len(self._nodes)) for value in outputs)
        self._given: list[Any] = []
        return last

    def _release(self, at: int) -> None:
        """Give back the memory of values that no node behind this one takes."""
        first = self._nodes[at].outputs[0]
        self._given.append(None if first is None else self._places[first.number].chainers)
        for memory in [memory for memory in self._used if memory.last <= at]:
            self._used.remove(memory)
            self._free[memory.key].append(memory.whole)

    def _take(self, value: Value) -> _Place:
        """Memory for a value, within the padding that most of its takers want."""
        pad, border = self._padding(value)
        shape = value.shape
        if len(shape) == 4:
            n, c, h, w = shape
            shape = (n, h + 2 * pad[0], w + 2 * pad[1], c)
        edge = 0.0 if border is None else border
        key = (shape, pad, value.dtype, np.asarray(edge).tobytes())
        if self._free[key]:
            whole = self._free[key].pop()
        else:
            whole = self._xp.empty(shape, value.dtype)
            self.nbytes += whole.nbytes
            if pad != (0, 0):
                whole[...] = self._xp.asarray(edge, value.dtype)
        memory = _Memory(whole, key, self._last.get(value.number, -1))
        self._used.append(memory)
        place = _Place(kernels.within(whole, pad), whole, pad, memory)
        self._places[value.number] = place
        return place

    def _padding(self, value: Value) -> tuple[Pad, Any]:
        """The widest padding of the nodes that take it, and what is in it."""
        padded = [
            node
            for node in self._nodes
            if value in node.inputs
            and node.pad != (0, 0)
            and node.kind in ("convolution", "average_pooling")
        ]
        if not padded:
            return (0, 0), None
        border = padded[0].border
        alike = [node for node in padded if kernels.same(node.border, border)]
        return (max(n.pad[0] for n in alike), max(n.pad[1] for n in alike)), border

    def _padded(self, node: Node) -> tuple[Any, Pad]:
        """A node's input within at least the padding that it wants, and how much that is."""
        value = node.inputs[0]
        place = self._places[value.number]
        kept, border = self._padding(value)
        if node.pad == (0, 0) or (
            place.pad == kept
            and kernels.same(node.border, border)
            and kept[0] >= node.pad[0]
            and kept[1] >= node.pad[1]
        ):
            return place.whole, place.pad
        n, h, w, c = place.array.shape
        whole = self._xp.empty((n, h + 2 * node.pad[0], w + 2 * node.pad[1], c), value.dtype)
        edge = 0.0 if node.border is None else node.border
        whole[...] = self._xp.asarray(edge, value.dtype)
        self.nbytes += whole.nbytes
        self._do(self._xp.copyto, kernels.within(whole, node.pad), place.array)
        return whole, node.pad

    def _work(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Memory that is needed within a node only."""
        size = math.prod(shape)
        known = self._scratch.get(dtype)
        if known is None or known.size < size:
            known = self._scratch[dtype] = self._xp.empty(size, dtype)
            self.nbytes += known.nbytes
        return known[:size].reshape(shape)

    # -- operations

    def _do(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.operations.append((function, arguments))

    def _into(self, target: Any, function: Callable[..., Any], *arguments: Any) -> None:
        """An operation of NumPy or CuPy that writes into an array."""
        self._do(partial(function, out=target), *arguments)

    def _array(self, node: Node, number: int = 0) -> Any:
        return self._places[node.inputs[number].number].array

    def _result(self, node: Node) -> Any:
        """Where a node's result goes: never where one of its inputs is."""
        return self._take(node.output).array

    def _constant(self, numbers: Any, dtype: Any) -> Any:
        return self._xp.asarray(numbers, dtype)

    def _finish(self, node: Node, source: Any, target: Any, part: Any = ...) -> None:
        """Do what follows within a node to a part of its result, and bring it to its place.

        Args:
            node: The node.
            source: What was computed; is overwritten.
            target: Where it goes, which may be the same array.
            part: Which part of the node's result this is.
        """
        writes = [write for after in node.after for write in self._writes(after, part)]
        for number, (function, *others) in enumerate(writes):
            to = target if number == len(writes) - 1 else source
            self._into(to, function, source, *others)
        if not writes and source is not target:
            self._do(self._xp.copyto, target, source)

    def _writes(self, after: Node, part: Any) -> Iterator[tuple[Any, ...]]:
        """A node that is done element by element: functions with their second arguments."""
        xp, dtype = self._xp, after.output.dtype
        if after.kind == "relu":
            yield xp.maximum, self._constant(0, dtype)
        elif after.kind == "sum":
            yield xp.add, self._array(after, 1)[part]
        elif after.kind == "product":
            yield xp.multiply, self._array(after, 1)[part]
        else:
            if after.scale is not None:
                yield xp.multiply, self._constant(after.scale, dtype)
            if after.shift is not None or after.scale is None:
                shift = 0.0 if after.shift is None else after.shift
                yield xp.add, self._constant(shift, dtype)

    # -- nodes

    def _elementwise(self, node: Node) -> None:
        """An affine node, relu, sum or product of its own."""
        source = self._array(node)
        result = self._result(node)
        writes = list(self._writes(node, ...))
        for function, *others in writes:
            self._into(result, function, source, *others)
            source = result
        self._finish(node, result, result)

    def _sigmoid(self, node: Node) -> None:
        xp = self._xp
        result = self._result(node)
        half = self._constant(0.5, node.output.dtype)
        self._into(result, xp.multiply, self._array(node), half)
        self._into(result, xp.tanh, result)
        self._into(result, xp.multiply, result, half)
        self._into(result, xp.add, result, half)

    def _linear(self, node: Node) -> None:
        dtype = node.output.dtype
        x = self._array(node)
        result = self._result(node)
        weight = self._constant(np.ascontiguousarray(node.weight.T), dtype)
        self._into(result, self._xp.matmul, x, weight)
        if node.bias is not None:
            self._into(result, self._xp.add, result, self._constant(node.bias, dtype))
        self._finish(node, result, result)

    def _convolution(self, node: Node) -> None:
        xp, dtype = self._xp, node.output.dtype
        whole, pad = self._padded(node)
        result = self._result(node)
        n, oh, ow, channels = result.shape
        out, taken, kh, kw = node.weight.shape
        bias = None if node.bias is None else self._constant(node.bias, dtype)
        weight = node.weight.transpose(2, 3, 1, 0).reshape(-1, out)
        flat = result.flags.c_contiguous
        if (kh, kw, *node.stride) == (1, 1, 1, 1) and node.pad == (0, 0) and pad == (0, 0):
            # A matrix product as it is.
            matrix = self._constant(np.ascontiguousarray(weight), dtype)
            made = result if flat else self._work(result.shape, dtype)
            self._into(made.reshape(-1, out), xp.matmul, whole.reshape(-1, taken), matrix)
            if bias is not None:
                self._into(made, xp.add, made, bias)
            self._finish(node, made, result)
            return
        row_nbytes = ow * (len(weight) + 1) * dtype.itemsize
        rows = max(1, min(n * oh, PATCHES_NBYTES // row_nbytes))
        windows = self._windows(node, whole, pad, (oh, ow))
        if bias is not None:
            # A last column of ones in the patches adds the bias within the product.
            weight = np.concatenate([weight, node.bias[None]])
        matrix = self._constant(np.ascontiguousarray(weight), dtype)
        for images, lines in kernels.parts(n, oh, rows):
            part = slice(*images), slice(*lines)
            shape = (images[1] - images[0], lines[1] - lines[0], ow)
            patches = self._columns((*shape, len(weight)), bias is not None, dtype)
            window = windows[part]
            self._do(xp.copyto, self._split(patches, window.shape), window)
            target = result[part]
            whole_rows = flat and target.flags.c_contiguous
            made = target if whole_rows else self._work((*shape, channels), dtype)
            patches = patches.reshape(-1, len(weight))
            self._into(made.reshape(-1, out), xp.matmul, patches, matrix)
            self._finish(node, made, target, part)

    def _windows(self, node: Node, whole: Any, pad: Pad, size: tuple[int, int]) -> Any:
        """The patches of a convolution as a view, (images, height, width, ...)."""
        whole = whole[:, pad[0] - node.pad[0] :, pad[1] - node.pad[1] :]
        sn, sh, sw, sc = whole.strides
        kh, kw = node.ksize
        (sy, sx), (dy, dx) = node.stride, node.dilate
        channels = whole.shape[3]
        if dx == 1:  # pixels side by side are one run of memory
            inner, steps = (kh, kw * channels), (dy * sh, sc)
        else:
            inner, steps = (kh, kw, channels), (dy * sh, dx * sw, sc)  # type: ignore[assignment]
        as_strided = self._xp.lib.stride_tricks.as_strided
        shape = (whole.shape[0], *size, *inner)
        return as_strided(whole, shape, (sn, sy * sh, sx * sw, *steps))

    def _split(self, patches: Any, shape: tuple[int, ...]) -> Any:
        """The patches without the column of ones, with the axes of the windows: a view."""
        inner = shape[3:]
        steps = [patches.itemsize * math.prod(inner[at + 1 :]) for at in range(len(inner))]
        as_strided = self._xp.lib.stride_tricks.as_strided
        return as_strided(patches, shape, (*patches.strides[:3], *steps))

    def _columns(self, shape: tuple[int, ...], ones: bool, dtype: Any) -> Any:
        """Memory for patches; its last column holds ones where there is a bias."""
        key = (shape, ones, dtype)
        if key not in self._patches:
            self._patches[key] = self._xp.empty(shape, dtype)
            self.nbytes += self._patches[key].nbytes
            if ones:
                self._patches[key][..., -1] = 1
        return self._patches[key]

    def _max_pooling(self, node: Node) -> None:
        x, result = self._array(node), self._result(node)
        made = result if not node.after else self._work(result.shape, node.output.dtype)
        self._do(kernels.fill, made, -math.inf)
        for to, of in kernels.shifts(node, x.shape[1:3], result.shape[1:3]):
            self._into(made[to], self._xp.maximum, made[to], x[of])
        self._finish(node, made, result)

    def _average_pooling(self, node: Node) -> None:
        xp, dtype = self._xp, node.output.dtype
        x, result = self._array(node), self._result(node)
        made = result if not node.after else self._work(result.shape, dtype)
        size = node.ksize[0] * node.ksize[1]
        if node.ksize == x.shape[1:3] and node.pad == (0, 0) and made.shape[1:3] == (1, 1):
            self._do(kernels.mean, x, made)
        else:
            whole, pad = self._padded(node)
            whole = whole[:, pad[0] - node.pad[0] :, pad[1] - node.pad[1] :]
            (sy, sx), (oh, ow) = node.stride, result.shape[1:3]
            self._do(kernels.fill, made, 0.0)
            for dy in range(node.ksize[0]):
                for dx in range(node.ksize[1]):
                    of = slice(None), slice(dy, dy + sy * oh, sy), slice(dx, dx + sx * ow, sx)
                    self._into(made, xp.add, made, whole[of][:, :oh, :ow])
            self._into(made, xp.multiply, made, self._constant(1 / size, dtype))
        self._finish(node, made, result)

    def _space_to_depth(self, node: Node) -> None:
        x, result = self._array(node), self._result(node)
        n, h, w, c = x.shape
        r = node.block
        pixels = x.reshape(n, h // r, r, w // r, r, c) if x.flags.c_contiguous else None
        if pixels is None:
            sn, sh, sw, sc = x.strides
            as_strided = self._xp.lib.stride_tricks.as_strided
            shape, steps = (n, h // r, r, w // r, r, c), (sn, r * sh, sh, r * sw, sw, sc)
            pixels = as_strided(x, shape, steps)
        blocks = pixels.transpose(0, 1, 3, 2, 4, 5)
        self._do(kernels.copy_split, result, blocks)

    def _reshape(self, node: Node) -> None:
        place = self._places[node.inputs[0].number]
        source = place.chainers
        value = node.output
        view = source.reshape(value.shape)
        array = view.transpose(0, 2, 3, 1) if view.ndim == 4 else view
        # Everything else counts on images that lie with their channels last.
        lies_well = array.flags.c_contiguous and self._padding(value)[0] == (0, 0)
        if self._xp.shares_memory(view, source) and lies_well:
            # By way of one axis: the stride of an axis of length 1 may be anything otherwise.
            array = view.reshape(-1).reshape(array.shape)
            self._places[value.number] = _Place(array, array, (0, 0), place.memory)
            place.memory.last = max(place.memory.last, self._last[value.number])
            return
        self._do(kernels.reshape_into, source, self._take(value).chainers)

    def _call(self, node: Node) -> None:
        """Any other function: Chainer's own forward, on its own axes."""
        call = node.call
        assert call is not None
        arrays = [
            self._places[source.number].chainers if isinstance(source, Value) else source
            for source in call.inputs
        ]
        held = {name: self._places[value.number].chainers for name, value in call.held.items()}
        targets = [None if value is None else self._take(value).chainers for value in call.outputs]
        self._do(kernels.call_function, call.function, tuple(arrays), held, targets)


_EMITTERS: dict[str, Callable[[Plan, Node], None]] = {
    "convolution": Plan._convolution,
    "linear": Plan._linear,
    "affine": Plan._elementwise,
    "relu": Plan._elementwise,
    "sum": Plan._elementwise,
    "product": Plan._elementwise,
    "sigmoid": Plan._sigmoid,
    "max_pooling": Plan._max_pooling,
    "average_pooling": Plan._average_pooling,
    "space_to_depth": Plan._space_to_depth,
    "reshape": Plan._reshape,
    "call": Plan._call,
}
