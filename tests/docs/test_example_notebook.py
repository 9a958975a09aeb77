"""The example notebook runs, and shows its saved outputs.

``python -m tests.docs.test_example_notebook`` runs it again and keeps what it shows then.
"""

import re

import pytest

from tests import HANGS_S, ROOT, needs

pytestmark = pytest.mark.process

NOTEBOOK = ROOT / "examples/notebook.ipynb"


def executed(trials=None):
    """The example notebook, run from top to bottom in its own folder, with so many trials."""
    nbformat, nbclient = needs.module("nbformat"), needs.module("nbclient")
    needs.module("ipykernel")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells if trials else ():
        cell.source = re.sub(r"(\btrials=| -n )\d+", rf"\g<1>{trials}", cell.source)
    metadata = notebook.metadata.copy()
    where = {"metadata": {"path": str(NOTEBOOK.parent)}}
    client = nbclient.NotebookClient(
        notebook, timeout=HANGS_S, kernel_name="python3", resources=where, record_timing=False
    )
    client.execute()
    notebook.metadata = metadata
    return notebook


def kinds(notebook):
    """The types of every cell's outputs."""
    outputs = (cell.get("outputs", ()) for cell in notebook.cells)
    return [
        [(output.output_type, *sorted(output.get("data", {}))) for output in some]
        for some in outputs
    ]


def test_the_example_runs_and_shows_its_saved_outputs():
    nbformat = needs.module("nbformat")
    kept = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(kept)
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert len(text) < 300_000
    assert str(ROOT) not in text
    cells = [cell for cell in kept.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not any(o.output_type == "error" for cell in cells for o in cell.outputs)
    assert kinds(executed(trials=3)) == kinds(kept)


if __name__ == "__main__":
    import nbformat

    NOTEBOOK.write_text(nbformat.writes(executed()) + "\n", encoding="utf-8")
