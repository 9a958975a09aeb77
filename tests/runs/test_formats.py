"""The files that --format asks for: which, when, and what is said where one cannot be made."""

import json
from pathlib import Path

import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.errors import UsageError
from chainer_profile.report.pictures import stacks, trace
from chainer_profile.report.writers import json_report
from chainer_profile.runs.folder import load_run
from chainer_profile.runs.formats import FILES, parse_formats, trace_trial
from chainer_profile.runs.write import in_folder, write_reports
from tests import names_in
from tests.command import folder, main  # noqa: F401
from tests.conftest import make_recording

SUMMARY = summarise(make_recording(3, 5))


def test_names():
    for text, expected in {
        "trace, json,trace": ("trace", "json"),
        "json,all": tuple(FILES),
        "trace:17,json": ("trace:17", "json"),
        "all,trace:0": (*FILES, "trace:0"),
        "none": ("none",),
    }.items():
        assert parse_formats(text) == expected
    assert trace_trial(("json", "trace:4"), 5) == 4
    assert trace_trial(("json", "trace"), 0) is None
    with pytest.raises(UsageError, match="--format trace:0: there are no trials"):
        trace_trial(("trace:0",), 0)


def test_each_is_made_by_its_renderer_when_it_is_asked_for():
    contents = {
        "report.json": json_report.render(in_folder(SUMMARY, Path("run"))),
        "trace.json": trace.render(SUMMARY, 2),
        "stacks.folded": stacks.render_folded(SUMMARY),
    }
    assert list(contents) == list(FILES.values())
    written = write_reports(Path("run"), SUMMARY, ("trace:2", "json", "folded"))
    assert written[-3:] == [Path("run", name) for name in contents]
    assert {name: Path("run", name).read_text() for name in contents} == contents
    # Only what is named is made.
    only = ("links.csv", "stacks.folded", "recording.npz")
    files = write_reports(Path("few"), SUMMARY, ("json", "folded"), only=only)
    assert files == [Path("few/links.csv"), Path("few/stacks.folded")]
    assert names_in("few") == ["links.csv", "stacks.folded"]


def test_files_of_a_run_and_of_its_report(capsys):
    words = ("--format", "trace:1,folded", "--author", "Ada", "--course", "Systems")
    assert main("-o", "run", *words, "--title", "Mine") == 0
    written = "Written to run: report.md, report.html, trace.json, stacks.folded and "
    assert written in capsys.readouterr().out  # what was asked for in its order
    assert {"trace.json", "stacks.folded"} <= set(names_in("run"))
    assert not Path("run/report.json").exists()
    report = Path("run/report.md").read_text()
    assert report.startswith("# Mine\n\n**Author**: Ada")
    summary = summarise(load_run(Path("run")))
    assert Path("run/trace.json").read_text() == trace.render(summary, 1)
    # A report again has the files that are asked for now, and who wrote it where nothing else is.
    assert main("report", "run", "--format", "trace", "-q", "--course", "Networks") == 0
    assert Path("run/trace.json").read_text() == trace.render(summary)
    again = Path("run/report.md").read_text()
    assert again == report.replace("**Course**: Systems", "**Course**: Networks")
    # A run without reports has its recording.
    capsys.readouterr()
    assert main("-o", "alone", "--format", "none") == 0
    assert names_in("alone") == ["recording.npz"]
    out = capsys.readouterr().out
    assert out.endswith("Written to alone: recording.npz\n")
    assert "median ms" in out
    assert main("report", "alone", "--format", "none") == 0
    assert "Written" not in capsys.readouterr().out


def test_json_is_printed_in_place_of_the_tables(capsys):
    assert main("-o", "run", "--format", "json,folded", "--json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == json.loads(Path("run/report.json").read_text())
    assert err == ""
    assert main("report", "run", "--format", "json", "--json", "-q") == 0
    assert capsys.readouterr() == (out, "")
