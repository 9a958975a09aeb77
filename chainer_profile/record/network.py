"""A network's summary: layers, sizes and operations, without times."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import pandas as pd

from chainer_profile.basics.paths import depth_first, truncate
from chainer_profile.basics.views import Displayable
from chainer_profile.record.recording import Shape

#: Columns of the table: texts, counts of the link, and counts of the call. The operations and bytes
#: in ``WORK`` may be unknown.
TEXTS = ("path", "function", "input_shapes", "output_shapes", "dtype")
LINK_COUNTS = ("parameters", "trainable", "persistent")
WORK = ("macs", "flops", "nbytes_read", "nbytes_written")
COUNTS = (*LINK_COUNTS, *WORK, "nbytes_output", "approximate")


def _total(name: str, meaning: str) -> property:
    """Make a property that sums a column."""
    return property(lambda summary: int(summary.table[name].sum()), doc=meaning)


@dataclass(frozen=True, eq=False, repr=False)
class ModelSummary(Displayable):
    """A network's layers and totals. ``str()`` formats them as a table.

    Sizes are bytes, other numbers are elements or operations of one forward pass in test mode.

    Attributes:
        name: The network's name.
        input_shapes: Shapes of its inputs, batch included.
        input_dtypes: Their data types.
        table: One row per layer (function call), in call order, which is the index. The columns
            are explained in docs/columns.md. The first call of a link that uses a parameter counts
            all parameters of the link. A link with parameters but without such a call has a row at
            the end, without a function. Operations and bytes are <NA> for a function without a
            formula (see :mod:`chainer_profile.costs.work`).
        kinds: Class of every link, by path.
        input_nbytes: Bytes of the inputs.
        parameter_nbytes: Bytes of the parameters.
        persistent_nbytes: Bytes of the persistent arrays.
    """

    name: str
    input_shapes: tuple[Shape, ...]
    input_dtypes: tuple[str, ...]
    table: pd.DataFrame
    kinds: dict[str, str]
    input_nbytes: int
    parameter_nbytes: int
    persistent_nbytes: int

    def by_link(self, depth: int) -> pd.DataFrame:
        """Sum the layers by link, down to ``depth`` levels below the network.

        Every layer counts once: for its link, or for the link above it at this depth. So a link
        at this depth includes all links below it, and a link further up only its own calls. Links
        without layers are omitted. Each column has the same total as in :attr:`table`.

        Args:
            depth: Levels below the network; 0 is the network as a whole.

        Returns:
            One row per link, indexed by path, parents before children; the columns are explained
            in docs/columns.md.
        """
        paths = self.table["path"].map(lambda path: truncate(path, depth))
        groups = self.table.groupby(paths, sort=False)
        links = pd.DataFrame(index=pd.Index(depth_first(paths), dtype=object, name="path"))
        links["kind"] = [self.kinds.get(path, "") for path in links.index]
        called = self.table["function"] != ""
        links["layers"] = called.groupby(paths, sort=False).sum().astype("int64")
        last = self.table["output_shapes"][called].groupby(paths[called], sort=False).last()
        links["output_shapes"] = [last.get(path, ()) for path in links.index]
        for name in COUNTS:
            links[name] = groups[name].sum(min_count=1)
        unknown = self.table["flops"].isna()
        links["without_formula"] = unknown.groupby(paths, sort=False).sum().astype("int64")
        return links

    # -- totals

    parameters: ClassVar = _total(
        "parameters", "Elements of all parameters. A shared parameter counts once."
    )
    trainable: ClassVar = _total(
        "trainable", "Elements of the parameters that an optimizer may update."
    )
    persistent: ClassVar = _total(
        "persistent", "Elements of the persistent arrays, such as batch normalisation's averages."
    )
    macs: ClassVar = _total(
        "macs", "Multiply-accumulates of convolutions and matrix products with a formula."
    )
    flops: ClassVar = _total(
        "flops", "Floating-point operations of the functions with a formula; a multiply-add is two."
    )
    nbytes_read: ClassVar = _total(
        "nbytes_read", "Fewest bytes that the functions with a formula read."
    )
    nbytes_written: ClassVar = _total(
        "nbytes_written", "Fewest bytes that the functions with a formula write."
    )
    forward_nbytes: ClassVar = _total(
        "nbytes_output", "Bytes of all activations: the outputs of all layers, without views."
    )

    @cached_property
    def without_formula(self) -> dict[str, int]:
        """Functions without a formula, which the totals exclude, and the number of their calls."""
        unknown = self.table[self.table["flops"].isna()]
        return {str(name): int(n) for name, n in unknown["function"].value_counts().items()}
