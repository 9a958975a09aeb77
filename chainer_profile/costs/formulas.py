"""Operations and bytes of each function of Chainer, by the name of its class."""

from __future__ import annotations

from chainer_profile.costs import arrays, elementwise, losses, products, recurrent, reductions
from chainer_profile.costs.table import Formula, FunctionCost

TABLE: tuple[FunctionCost, ...] = (
    *arrays.TABLE,
    *elementwise.TABLE,
    *products.TABLE,
    *reductions.TABLE,
    *losses.TABLE,
    *recurrent.TABLE,
)

FORWARD: dict[str, Formula] = {
    name: cost.forward for cost in TABLE if cost.forward for name in cost.names.split()
}
BACKWARD: dict[str, Formula] = {
    name: cost.backward for cost in TABLE if cost.backward for name in cost.names.split()
}
