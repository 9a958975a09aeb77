"""profile.py summary."""

import csv
import io
from pathlib import Path

import chainer.links as L

from tests.command import OWN


def test_the_table(done):
    out = done("summary", "-b", "4")
    about = "input 4x3 float32; one forward pass in test mode"
    assert out.splitlines()[:2] == ["tiny", about]
    assert "1 row not shown (--limit 0 shows all)." in done("summary", "--limit", "1")
    assert "ReLU" in done("summary", "--limit", "0")
    markdown = done("summary", "--format", "markdown", "--limit", "1")  # a file has all rows
    assert markdown.startswith("# tiny\n\n")
    assert "not shown" not in markdown
    assert "ReLU" in markdown


def test_rows_and_columns(done, fails):
    Path("own.py").write_text(OWN)
    own = ("--model", "own.py:Net", "--input-shape", "3")
    for words, more, head, expected in (
        (["--tree", "1"], {}, "path", ["/", "/fc"]),
        (["--columns", "macs, path"], {}, "macs,path", [["6", "/fc"], ["0", "/"]]),
        ([*own, "--columns", "function"], {}, "function", ["LinearFunction", "ReLU"]),
        (
            ["--input-shape", "3:int32", "--columns", "parameters,macs"],
            {"build": lambda: L.EmbedID(9, 4)},
            *("parameters,macs", [["36", "0"]]),
        ),
    ):
        out = done("summary", "--format", "csv", *words, **more)
        rows = list(csv.DictReader(io.StringIO(out)))
        keys = head.split(",")
        found = [[row[key] for key in keys] for row in rows]
        assert found == [one if isinstance(one, list) else [one] for one in expected], words
        if "--columns" in words:
            assert list(rows[0]) == keys
    said = fails("summary", build=lambda: L.EmbedID(9, 4))
    assert said.endswith("give --input-shape SHAPE:int32")
