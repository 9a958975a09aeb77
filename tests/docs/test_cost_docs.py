"""docs/functions.md lists just the functions with a formula."""

from __future__ import annotations

from chainer_profile.costs.work import known_functions
from tests import ROOT

DOCS = ROOT / "docs" / "functions.md"

HEAD = """# Functions with a formula

The operations and bytes of a layer follow from its shapes, by a formula for its function. What
counts as an operation and as a byte is said at the top of `chainer_profile/costs/work.py`; in
short, every element-wise step is one operation, a multiply-add is two, and each array is read or
written once.
`backward` is what follows a semicolon; where nothing does, it is made of the functions that it
calls, and has their work. So has the backward of a function of your own that is made of Chainer's
functions. A function that is not here is listed in reports with its share of the time;
`chainer_profile.register_cost` adds a formula. The family `update` has the update rules of
optimizers (`AdamRule` is that of `Adam` and its variants), their hooks, and `cleargrads`; `v` and
so on are arrays of a rule's state.

This file is made from the code (`python -m tests.docs.test_cost_docs`), and a test holds it.
"""


def functions_table() -> str:
    rows = ["| family | function | what is counted |", "| --- | --- | --- |"]
    for name, (family, meaning) in known_functions().items():
        rows.append(f"| {family} | `{name}` | {meaning.replace('|', chr(92) + '|')} |")
    return HEAD + "\n" + "\n".join(rows) + "\n"


def test_the_documentation_is_that_of_the_code() -> None:
    assert DOCS.read_text() == functions_table()


if __name__ == "__main__":
    DOCS.write_text(functions_table())
