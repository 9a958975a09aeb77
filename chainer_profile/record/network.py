"""What a network consists of, without timing: the type, and what its columns mean."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from chainer_profile.basics.paths import cut, depth_first
from chainer_profile.basics.views import Shown
from chainer_profile.record.recording import Shape

_COUNTS = (
    *("parameters", "trainable", "persistent"),
    *("macs", "flops", "nbytes_read", "nbytes_written", "nbytes_output", "approximate"),
)

_COUNTED = {
    "parameters": "Elements of the parameters; each counts once, at the first call of its link; of "
    "links that share one, the first",
    "trainable": "Those of them that an optimizer may update (disable_update forbids it)",
    "persistent": "Elements of persistent arrays, such as batch normalisation's averages",
    "macs": "Multiply-accumulates of convolutions and matrix products; - without a formula",
    "flops": "Floating-point operations, a multiply-add being two; likewise",
    "nbytes_read": "Bytes that must be read at least; likewise",
    "nbytes_written": "Bytes that must be written at least; likewise",
    "nbytes_output": "Bytes of the outputs; a view of an input has none",
    "approximate": "Calls whose operations and bytes are approximate, and are shown with ~",
}
#: The columns and what they mean, of the table by layer.
LAYER_COLUMNS = {
    "index": "Place of the layer in a forward pass, from 0",
    "path": "Path of the link that makes the call; / is the network itself",
    "function": "Chainer's name of the function; empty for parameters that no call belongs to",
    "input_shapes": "Shapes of the input arrays, parameters included",
    "output_shapes": "Shapes of the output arrays",
    "dtype": "Data type of the first output",
    **_COUNTED,
}
#: Of the table by link.
LINK_COLUMNS = {
    "path": "Path of the link; at the depth asked for with all below it, else its own calls alone",
    "kind": "Name of its class",
    "layers": "Number of its function calls",
    "output_shapes": "Shapes of the outputs of the last of them",
    **_COUNTED,
    "without_formula": "Calls whose operations and bytes are not known, and are missing",
}
#: Columns of text; all others hold whole numbers.
TEXTS = frozenset({"path", "function", "input_shapes", "output_shapes", "dtype", "kind"})


@dataclass(frozen=True, eq=False, repr=False)
class ModelSummary(Shown):
    """A network's layers, and their totals. ``str()`` gives all of it as a table.

    Sizes are bytes, other numbers are elements or operations of one forward pass in test mode.

    Attributes:
        name: The network's name.
        input_shapes: Shapes of its inputs, batch included.
        input_dtypes: Their data types.
        table: One row a layer (function call), in order, indexed by it. The columns are
            explained in :data:`~chainer_profile.record.network.LAYER_COLUMNS`. The
            parameters of a link are in the row of its first call; a link with parameters of which
            no call is known has a row of its own at the end, without a function. Operations and
            bytes are <NA> where a function has no formula (see :mod:`chainer_profile.costs.work`).
        kinds: Class of every link, by its path.
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
        """The layers added up by link, to so many levels below the network.

        Every layer counts once, for its link or for the one above that at this depth. So a link
        at this depth holds all below it, and one further up the calls of its own alone. Links
        without either are left out. The columns add up to those of :attr:`table`.

        Args:
            depth: Levels below the network; 0 is the network as a whole.

        Returns:
            One row a link, indexed by its path, every link before those below it; the columns are
            explained in :data:`~chainer_profile.record.network.LINK_COLUMNS`.
        """
        paths = self.table["path"].map(lambda path: cut(path, depth))
        groups = self.table.groupby(paths, sort=False)
        links = pd.DataFrame(index=pd.Index(depth_first(paths), dtype=object, name="path"))
        links["kind"] = [self.kinds.get(path, "") for path in links.index]
        called = self.table["function"] != ""
        links["layers"] = called.groupby(paths, sort=False).sum().astype("int64")
        last = self.table["output_shapes"][called].groupby(paths[called], sort=False).last()
        links["output_shapes"] = [last.get(path, ()) for path in links.index]
        for name in _COUNTS:
            links[name] = groups[name].sum(min_count=1)
        lacking = self.table["flops"].isna()
        links["without_formula"] = lacking.groupby(paths, sort=False).sum().astype("int64")
        return links

    # -- totals

    @property
    def parameters(self) -> int:
        """Elements of all parameters. One that several links share counts once."""
        return int(self.table["parameters"].sum())

    @property
    def trainable(self) -> int:
        """Elements of the parameters that an optimizer may update."""
        return int(self.table["trainable"].sum())

    @property
    def persistent(self) -> int:
        """Elements of the persistent arrays, such as the averages of batch normalisation."""
        return int(self.table["persistent"].sum())

    @property
    def macs(self) -> int:
        """Multiply-accumulates of convolutions and matrix products with a formula."""
        return int(self.table["macs"].sum())

    @property
    def flops(self) -> int:
        """Floating-point operations of the functions with a formula; a multiply-add is two."""
        return int(self.table["flops"].sum())

    @property
    def nbytes_read(self) -> int:
        """Bytes that the functions with a formula must read at least."""
        return int(self.table["nbytes_read"].sum())

    @property
    def nbytes_written(self) -> int:
        """Bytes that they must write at least."""
        return int(self.table["nbytes_written"].sum())

    @cached_property
    def without_formula(self) -> dict[str, int]:
        """Functions whose operations and bytes the totals lack, and their calls."""
        lacking = self.table[self.table["flops"].isna()]
        return {str(name): int(n) for name, n in lacking["function"].value_counts().items()}

    @property
    def forward_nbytes(self) -> int:
        """Bytes of all activations: the outputs of all layers that are no views."""
        return int(self.table["nbytes_output"].sum())
