"""Files that --format requests: names, contents, and messages about files that cannot be made."""

import json
from pathlib import Path

from chainer_profile.analyse.summaries import summarise
from chainer_profile.report.pictures import stacks, trace
from chainer_profile.runs.formats import FILES, parse_formats
from chainer_profile.runs.write import write_reports
from tests import names_in
from tests.command import folder, main  # noqa: F401
from tests.conftest import make_recording

SUMMARY = summarise(make_recording(3, 5))


def test_format_names_are_parsed():
    for text, expected in {
        "trace, json,trace": ("trace", "json"),
        "json,all": tuple(FILES),
        "trace:17,json": ("trace:17", "json"),
        "all,trace:0": (*FILES, "trace:0"),
        "none": ("none",),
    }.items():
        assert parse_formats(text) == expected


def test_requested_files_are_written_by_their_renderers():
    written = write_reports(Path("run"), SUMMARY, ("trace:2", "folded"))
    assert [path.name for path in written[-2:]] == ["trace.json", "stacks.folded"]
    assert Path("run/trace.json").read_text() == trace.render(SUMMARY, 2)
    assert Path("run/stacks.folded").read_text() == stacks.render_folded(SUMMARY)
    # Only the files in ``only`` are written.
    only = ("links.csv", "stacks.folded", "recording.npz")
    write_reports(Path("few"), SUMMARY, ("json", "folded"), only=only)
    assert names_in("few") == ["links.csv", "stacks.folded"]


def test_run_and_report_write_the_requested_files(capsys):
    words = ("--format", "trace:1,folded", "--author", "Ada", "--course", "Systems")
    assert main("-o", "run", *words, "--title", "Mine") == 0
    written = "Written to run: report.md, report.html, trace.json, stacks.folded and "
    assert written in capsys.readouterr().out  # requested files are listed in order
    assert not Path("run/report.json").exists()
    report = Path("run/report.md").read_text()
    assert report.startswith("# Mine\n\n**Author**: Ada")
    # Another report writes the files requested now, and keeps the author if no new one is given.
    assert main("report", "run", "--format", "json", "--json", "--course", "Networks") == 0
    again = Path("run/report.md").read_text()
    assert again == report.replace("**Course**: Systems", "**Course**: Networks")
    # JSON is printed instead of the tables.
    out, err = capsys.readouterr()
    assert (out, err) == (Path("run/report.json").read_text(), "")
    assert json.loads(out)["settings"]["model"] == "tiny"
    # A run without reports has only its recording.
    assert main("-o", "alone", "--format", "none") == 0
    assert names_in("alone") == ["recording.npz"]
    out = capsys.readouterr().out
    assert out.endswith("Written to alone: recording.npz\n")
    assert "slowest of " in out
