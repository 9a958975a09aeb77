"""Formulas of recurrent steps.

A logistic function has 4 operations, because Chainer computes it by tanh.
"""

from __future__ import annotations

from chainer_profile.costs.call import Call, Work
from chainer_profile.costs.table import FunctionCost


def _reading_output(flops: int, c: Call) -> Work:
    """Count a backward that reads all inputs and the first output."""
    return c.work(flops, read=c.read(*range(len(c.inputs))) + c.y.nbytes)


def _lstm_backward(c: Call) -> Work:
    """Count gates and tanh(c) again 14; gradients of the cell 5, the gates 16, the state 1."""
    return _reading_output(36 * c.inputs[1].size // 4, c)


def _slstm_backward(c: Call) -> Work:
    """Count the same terms as for LSTM: 24, 5, 28 and 2."""
    return _reading_output(59 * c.x.size, c)


def _tree_lstm_backward(c: Call) -> Work:
    """Count 18 per cell and 5 per child; forward stores the gates and c."""
    children = len(c.inputs) - 1
    stored = c.y.nbytes * (4 + children)
    return c.work(c.y.size * (18 + 5 * children), read=c.read(*range(children)) + stored)


def _n_step(names: str, *, gates: int, operations: int, backward: int) -> FunctionCost:
    """Make a row for recurrent functions of cuDNN. On the CPU Chainer uses other functions.

    Args:
        names: Names of their classes.
        gates: Gates per cell.
        operations: Operations per element of the hidden state in forward, without products.
        backward: The same in backward.
    """

    def formula(c: Call) -> Work:
        hx, xs, layers = c.x.shape, c.inputs[-1].shape, int(c.function.n_layers)
        directions, hidden = hx[0] // max(1, layers), hx[2]
        n_inputs = xs[1] + (layers - 1) * directions * hidden
        steps = xs[0] * directions
        # Each gate needs a product with the input, a product with the state, and three additions of
        # these and two biases. Backward needs each product twice, and also reads the output.
        macs = steps * gates * hidden * (n_inputs + layers * hidden)
        macs, each = (2 * macs, backward) if c.needed else (macs, operations)
        flops = 2 * macs + steps * layers * hidden * (3 * gates + each)
        output = c.outputs[-1].nbytes if c.needed else 0
        return c.work(flops, macs=macs, read=c.read(*range(len(c.inputs))) + output)

    return FunctionCost(names, forward=formula, backward=formula)


TABLE = (
    FunctionCost("LSTM", forward=lambda c: 18 * c.inputs[1].size // 4, backward=_lstm_backward),
    FunctionCost("SLSTM", forward=lambda c: 32 * c.x.size, backward=_slstm_backward),
    FunctionCost(
        "TreeLSTM",
        forward=lambda c: c.y.size * (12 + 6 * (len(c.inputs) - 1)),
        backward=_tree_lstm_backward,
    ),
    _n_step("NStepLSTM NStepBiLSTM", gates=4, operations=18, backward=36),
    _n_step("NStepGRU NStepBiGRU", gates=3, operations=14, backward=27),
    _n_step(
        "NStepRNNTanh NStepBiRNNTanh NStepRNNReLU NStepBiRNNReLU",
        gates=1,
        operations=1,
        backward=3,
    ),
)
