"""profile.py summary."""

import csv
from pathlib import Path

import chainer.links as L

from tests.command import OWN


def test_summary_prints_its_table(done):
    out = done("summary", "-b", "4")
    about = "input 4x3 float32; one forward pass in test mode"
    assert out.splitlines()[:2] == ["tiny", about]
    assert "1 row not shown (--limit 0 shows all)." in done("summary", "--limit", "1")
    markdown = done("summary", "--format", "markdown", "--limit", "1")  # a file has all rows
    assert markdown.startswith("# tiny\n\n")
    assert "ReLU" in markdown


def test_rows_and_columns_can_be_chosen(done, fails):
    def rows(*words, **more):
        return list(csv.DictReader(done("summary", "--format", "csv", *words, **more).splitlines()))

    Path("own.py").write_text(OWN)
    assert [row["path"] for row in rows("--tree", "1")] == ["/", "/fc"]
    assert rows("--model", "own.py:Net", "--input-shape", "3", "--columns", "macs, function") == [
        {"macs": "6", "function": "LinearFunction"},
        {"macs": "0", "function": "ReLU"},
    ]
    words = ("--input-shape", "3:int32", "--columns", "parameters")
    assert rows(*words, build=lambda: L.EmbedID(9, 4)) == [{"parameters": "36"}]
    message = fails("summary", build=lambda: L.EmbedID(9, 4))
    assert message.endswith("give --input-shape SHAPE:int32")
