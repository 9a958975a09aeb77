"""Cells of recurrent networks. An element is one of the cell's state."""

from __future__ import annotations

from chainer_profile.costs.counting import Array, Call
from chainer_profile.costs.registry import backward, forward

Gradients = tuple[Array | None, ...]

_LSTM = "rnn.lstm.LSTM"
_SLSTM = "rnn.slstm.SLSTM"
_TREE = "rnn.tree_lstm.TreeLSTM"
_GRU = ("rnn.n_step_gru.NStepGRU", "rnn.n_step_gru.NStepBiGRU")
_NSTEP_LSTM = ("rnn.n_step_lstm.NStepLSTM", "rnn.n_step_lstm.NStepBiLSTM")
_TANH = ("rnn.n_step_rnn.NStepRNNTanh", "rnn.n_step_rnn.NStepBiRNNTanh")
_RELU = ("rnn.n_step_rnn.NStepRNNReLU", "rnn.n_step_rnn.NStepBiRNNReLU")
_CONCAT = "rnn.n_step_rnn.CudnnRNNWeightConcat"


def _gates(x: Array, n: int) -> tuple[Array, ...]:
    """The n gates in an array, interleaved along its second axis: views."""
    shape = (x.shape[0], x.shape[1] // n, *x.shape[2:])
    return tuple(x.view(shape) for _ in range(n))


def _running(c: Call, state: Array, n: int) -> Array:
    """States of the examples that go on: the first n; the others are copied."""
    c.take(state)
    return c.new((n, *state.shape[1:]))


@forward(_LSTM)
def lstm(c: Call) -> Gradients:
    """Computes tanh(a) s(i) + s(f) c' = c, s(o) tanh(c): 18 operations an element; s takes 4."""
    c_prev, x = c.x
    a, i, f, o = _gates(x, 4)
    c_next = c.tanh(a) * c.sigmoid(i) + c.sigmoid(f) * _running(c, c_prev, len(x))
    h = c.sigmoid(o) * c.tanh(c_next)
    return c.copy(c_next, shape=c_prev.shape), h


@backward(_LSTM)
def lstm_backward(c: Call) -> Gradients:
    """The gates and tanh(c) again (14), the cell's gradient t (5), the gates' (16), c' (1).

    t = gh s(o) (1 - co^2) + gc; a: t i (1 - a^2); i: t a i (1 - i); f: t c' f (1 - f);
    o: gh co o (1 - o); c': t f.
    """
    c_prev, x = c.x
    n = len(x)
    gc, gh = c.gy
    ta, (si, sf, so) = c.tanh(_gates(x, 4)[0]), (c.sigmoid(g) for g in _gates(x, 4)[1:])
    co = c.tanh(_running(c, c.y[0], n))
    t = gh * so * (1 - co * co) + _running(c, gc, n)
    _cell_gates(ta, si, t)
    _forget_gate(sf, t, _running(c, c_prev, n))
    _output_gate(gh, co, so)
    return c.copy(t * sf, shape=c_prev.shape), c.new(x.shape)


def _cell_gates(ta: Array, si: Array, t: Array) -> None:
    _ = t * si * (1 - ta * ta)
    _ = t * ta * (si * (1 - si))


def _forget_gate(sf: Array, t: Array, c_prev: Array) -> None:
    _ = t * c_prev * (sf * (1 - sf))


def _output_gate(gh: Array, co: Array, so: Array) -> None:
    _ = gh * co * (so * (1 - so))


@forward(_SLSTM)
def slstm(c: Call) -> Gradients:
    """Two cells' gates with one output gate: 32 operations an element."""
    c_prev1, c_prev2, x1, x2 = c.x
    (a1, i1, f1, o1), (a2, i2, f2, o2) = _gates(x1, 4), _gates(x2, 4)
    ta1, si1, sf1 = c.tanh(a1), c.sigmoid(i1), c.sigmoid(f1)
    ta2, si2, sf2 = c.tanh(a2), c.sigmoid(i2), c.sigmoid(f2)
    so = c.sigmoid(o1 + o2)
    c_next = ta1 * si1 + ta2 * si2 + sf1 * c_prev1 + sf2 * c_prev2
    return c_next, so * c.tanh(c_next)


@backward(_SLSTM)
def slstm_backward(c: Call) -> Gradients:
    """The gates and tanh(c) again (24), t (5), the gates' gradients (28), the states' (2).

    As of an LSTM for each of the two; the output gate's gradient is the same for both.
    """
    c_prev1, c_prev2, x1, x2 = c.x
    gc, gh = c.gy
    (a1, i1, f1, o1), (a2, i2, f2, o2) = _gates(x1, 4), _gates(x2, 4)
    ta1, si1, sf1 = c.tanh(a1), c.sigmoid(i1), c.sigmoid(f1)
    ta2, si2, sf2 = c.tanh(a2), c.sigmoid(i2), c.sigmoid(f2)
    so, co = c.sigmoid(o1 + o2), c.tanh(c.y[0])
    t = gh * so * (1 - co * co) + gc
    for ta, si, sf, c_prev in ((ta1, si1, sf1, c_prev1), (ta2, si2, sf2, c_prev2)):
        _cell_gates(ta, si, t)
        _forget_gate(sf, t, c_prev)
    _output_gate(gh, co, so)
    return t * sf1, t * sf2, c.new(x1.shape), c.new(x2.shape)


@forward(_TREE)
def tree_lstm(c: Call) -> Gradients:
    """Computes tanh(a) s(i) + sum of s(f) c' = c, s(o) tanh(c): 12 an element, 6 a child's."""
    *children, x = c.x
    a, i, o, *forgets = _gates(x, 3 + len(children))
    total = c.tanh(a) * c.sigmoid(i)
    for f, child in zip(forgets, children, strict=True):
        total = total + c.sigmoid(f) * child
    return total, c.sigmoid(o) * c.tanh(total)


@backward(_TREE)
def tree_lstm_backward(c: Call) -> Gradients:
    """tanh(c) (1), t (5), gradients of a, i, o (12), a child's gate and state (5 an element).

    The gates after their functions and c are kept from forward, and read.
    """
    *children, x = c.x
    gc, gh = c.gy
    cell = c.outputs[0]
    a, i, o = (c.kept(name, cell.shape, cell.dtype) for name in "aio")
    co = c.tanh(c.y[0])
    t = gh * o * (1 - co * co) + gc
    _cell_gates(a, i, t)
    _output_gate(gh, co, o)
    gradients: list[Array | None] = []
    for k, child in enumerate(children):
        # A list of arrays in the function: it has no shape of its own.
        forget = c.kept(f"fs[{k}]", cell.shape, cell.dtype)
        _forget_gate(forget, t, child)
        gradients.append(t * forget)
    return *gradients, c.new(x.shape)


# cuDNN's recurrent networks over sequences. On the CPU Chainer makes them of other functions,
# which are rows of their own.


def _cells(c: Call, gates: int, operations: int) -> tuple[int, int]:
    """Multiply-adds and element-wise operations of all layers, directions and steps.

    A step takes a product with the input and one with the state for each gate. Each gate adds two
    biases and the two products.
    """
    hx, xs = c.inputs[0], c.inputs[-1]
    layers = int(c.f.n_layers)
    directions = hx.shape[0] // max(1, layers)
    hidden = hx.shape[2]
    n_inputs = xs.shape[1] + (layers - 1) * directions * hidden
    steps = xs.shape[0] * directions
    macs = steps * gates * hidden * (n_inputs + layers * hidden)
    return macs, steps * layers * hidden * (3 * gates + operations)


def _n_step(c: Call, gates: int, operations: int) -> Gradients:
    macs, flops = _cells(c, gates, operations)
    c.products(macs, *c.x)
    c.count(flops)
    return tuple(c.new(spec.shape) for spec in c.outputs)


def _n_step_backward(c: Call, gates: int, operations: int) -> Gradients:
    """Products for the gradients of inputs and states, and again for those of the weights."""
    macs, flops = _cells(c, gates, operations)
    c.products(2 * macs, *c.x, *c.gy, c.y[-1])
    c.count(flops)
    return tuple(c.new(spec.shape) for spec in c.inputs)


@forward(*_TANH, *_RELU)
def n_step_rnn(c: Call) -> Gradients:
    """Per step and layer: products with input and state, two biases, their sum, the activation."""
    return _n_step(c, 1, 1)


@backward(*_TANH, *_RELU)
def n_step_rnn_backward(c: Call) -> Gradients:
    """Twice forward's products; a gate's biases and sum, and its derivative, 3 an element."""
    return _n_step_backward(c, 1, 3)


@forward(*_NSTEP_LSTM)
def n_step_lstm(c: Call) -> Gradients:
    """Per step and layer: 4 gates' products, biases and sums; 18 operations an element (LSTM)."""
    return _n_step(c, 4, 18)


@backward(*_NSTEP_LSTM)
def n_step_lstm_backward(c: Call) -> Gradients:
    """Twice forward's products; 4 gates' biases and sums; 36 operations an element (LSTM)."""
    return _n_step_backward(c, 4, 36)


@forward(*_GRU)
def n_step_gru(c: Call) -> Gradients:
    """Per step and layer: 3 gates' products, biases and sums; 14 operations an element.

    r and z 4 each, h = tanh(.. + r ..) 2, and (1 - z) h + z h' 4. The sums of r and z count there.
    """
    return _n_step(c, 3, 14)


@backward(*_GRU)
def n_step_gru_backward(c: Call) -> Gradients:
    """Twice forward's products; 3 gates' biases and sums; 27 operations an element.

    The gates again (10), and their gradients: z: g (h' - h) z (1 - z); h: g (1 - z) (1 - h^2);
    r: that times its product with the state and r (1 - r); the product: h's times r; h': g z.
    """
    return _n_step_backward(c, 3, 27)


@forward(_CONCAT)
def weight_concat(c: Call) -> Array:
    """No operation: copies all weights into one array."""
    return c.copy(*c.x, shape=c.outputs[0].shape)


@backward(_CONCAT)
def weight_concat_backward(c: Call) -> Gradients:
    """No operation and no bytes: views of the gradient."""
    return tuple(c.gy[0].view(x.shape) for x in c.x)
