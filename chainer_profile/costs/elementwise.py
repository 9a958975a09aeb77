"""Formulas of arithmetic, activations and noise, which work on each element."""

from __future__ import annotations

from chainer_profile.costs.call import Call, Work
from chainer_profile.costs.table import Formula, FunctionCost, about, exact, view


def _broadcast_backward(*each: int, reads: bool = False) -> Formula:
    """Make a backward formula for a function of broadcast arrays.

    A gradient without operations and without a sum is the incoming array itself.

    Args:
        each: For each input, operations per element of its gradient, in addition to its sum.
        reads: Whether the gradients need the other inputs. They are then computed before the sum.
    """

    def formula(c: Call) -> Work:
        flops, written, read = 0, 0, set()
        for i, (x, need) in enumerate(zip(c.inputs, c.needed, strict=True)):
            n = each[i] if i < len(each) else 0
            if need and (n or x.size < c.y.size):
                flops += n * (c.y if reads else x).size + c.y.size - x.size
                written += x.nbytes
                read |= set(range(len(c.inputs))) - {i} if reads else set()
        return c.work(flops, read=c.read(*read) if written else 0, written=written)

    return formula


TABLE = (
    # Arithmetic of broadcast arrays.
    FunctionCost("BroadcastTo", forward=view, backward=_broadcast_backward()),
    FunctionCost("Add", forward=exact(1), backward=_broadcast_backward()),
    FunctionCost(
        "MultiAdd",
        forward=lambda c: c.y.size * (len(c.inputs) - 1),
        backward=_broadcast_backward(),
    ),
    FunctionCost("Sub", forward=exact(1), backward=_broadcast_backward(0, 1)),
    FunctionCost("Mul", forward=exact(1), backward=_broadcast_backward(1, 1, reads=True)),
    FunctionCost("Div Fmod", forward=exact(1), backward=about(4)),
    FunctionCost("PowVarVar Arctan2", forward=exact(1), backward=about(8)),
    FunctionCost("Maximum Minimum", forward=exact(1), backward=about(1)),
    # Arithmetic with constants.
    FunctionCost("AddConstant", forward=exact(1), backward=view),
    FunctionCost(
        "SubFromConstant MulConstant Neg",
        forward=exact(1),
        backward=exact(1, only_gradients=True),
    ),
    FunctionCost("PowConstVar", forward=exact(1), backward=exact(2)),
    FunctionCost("DivFromConstant PowVarConst", forward=exact(1), backward=exact(3)),
    FunctionCost("Clip", forward=about(2), backward=about(2)),
    # Mathematical functions.
    FunctionCost("Exp Log", forward=exact(1), backward=exact(1)),
    FunctionCost(
        "Absolute Sin DiGamma LGamma Expm1 Square Cosh Sinh Log2 Log10 Log1p Sqrt",
        forward=exact(1),
        backward=exact(2),
    ),
    FunctionCost("Cos Tan Arctan", forward=exact(1), backward=exact(3)),
    FunctionCost("RsqrtGPU Zeta PolyGamma", forward=exact(1), backward=about(3)),
    FunctionCost("Arcsin Arctanh ErfInv ErfcInv Erfcx", forward=exact(1), backward=exact(4)),
    FunctionCost("Arccos Erf Erfc Ndtr Ndtri LogNdtr", forward=exact(1), backward=exact(5)),
    FunctionCost("LinearInterpolate", forward=exact(4), backward=about(4)),
    # Activations.
    FunctionCost("ReLU", forward=exact(1), backward=exact(1)),
    FunctionCost("Tanh", forward=exact(1), backward=exact(3)),
    FunctionCost("ClippedReLU LeakyReLU", forward=exact(2), backward=exact(2)),
    FunctionCost("CReLU", forward=about(2), backward=about(2)),
    FunctionCost("PReLUFunction", forward=exact(2), backward=about(4)),
    FunctionCost("ELU", forward=exact(3), backward=exact(3)),
    FunctionCost("RReLU", forward=about(3), backward=about(2)),
    FunctionCost("Sigmoid HardSigmoid", forward=exact(4), backward=exact(3)),
    FunctionCost("Swish", forward=about(6), backward=about(15)),
    FunctionCost("Softplus", forward=exact(8), backward=exact(6)),
    # Noise.
    FunctionCost("Zoneout", forward=exact(2), backward=about(0)),
    FunctionCost("Dropout", forward=exact(3), backward=exact(1)),
    FunctionCost("Gaussian", forward=exact(5), backward=about(5)),
)
