"""The example notebook runs and shows its saved outputs.

``python -m tests.docs.test_example_notebook`` runs it again and saves its new outputs.
"""

import re

import pytest

from tests import HANGS_S, ROOT, needs

pytestmark = pytest.mark.process

NOTEBOOK = ROOT / "examples/notebook.ipynb"


def executed(trials=None):
    """Run the example notebook in its own folder, with this number of trials."""
    nbformat, nbclient = needs.module("nbformat"), needs.module("nbclient")
    needs.module("ipykernel")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    metadata = notebook.metadata.copy()
    for cell in notebook.cells if trials else ():
        cell.source = re.sub(r"(\btrials=| -n )\d+", rf"\g<1>{trials}", cell.source)
    options = {"timeout": HANGS_S, "kernel_name": "python3", "record_timing": False}
    where = {"metadata": {"path": str(NOTEBOOK.parent)}}
    nbclient.NotebookClient(notebook, resources=where, **options).execute()
    notebook.metadata = metadata
    return notebook


def kinds(notebook):
    """Return the types of every cell's outputs."""
    return [
        [
            (output.output_type, *sorted(output.get("data", {})))
            for output in cell.get("outputs", ())
        ]
        for cell in notebook.cells
    ]


def test_example_runs_and_shows_its_saved_outputs():
    kept = needs.module("nbformat").read(NOTEBOOK, as_version=4)
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert len(text) < 300_000
    assert str(ROOT) not in text
    assert kinds(executed(trials=3)) == kinds(kept)
    assert not any(kind[0] == "error" for cell in kinds(kept) for kind in cell)


if __name__ == "__main__":
    import nbformat

    NOTEBOOK.write_text(nbformat.writes(executed()) + "\n", encoding="utf-8")
