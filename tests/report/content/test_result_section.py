from __future__ import annotations

from dataclasses import replace

import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.units import format_ms
from chainer_profile.record.recording import Layer
from chainer_profile.report.content.layer_section import MAX_ROWS
from chainer_profile.report.content.result_section import MAX_GROUPS
from tests.conftest import make_recording, make_training
from tests.report.reading import Report, read, report_md


def report(rule: str = "pareto:50%", **changes: object) -> Report:
    return read(report_md(summarise(make_training(**changes), rule)))  # type: ignore[arg-type]


def near_sum(cells: list[str], total: float) -> bool:
    """Whether rounded cells add up; empty ones are nothing."""
    found = sum(float(cell) for cell in cells if cell)
    return found == pytest.approx(total, abs=len(cells) * 5.1e-5)


def test_phases_add_up_to_the_trial() -> None:
    shown = report(data=True)
    head, *rows = shown.after("By phase")
    assert head[1:5] == ["layers", "layers [ms]", "framework [ms]", "total [ms]"]
    assert rows == [
        ["data", "2", "0.4000", "0.0000", "0.4000", "9.8"],
        ["forward", "9", "1.0000", "0.3000", "1.3000", "31.7"],
        ["backward", "11", "1.8000", "0.2500", "2.0500", "50.0"],
        ["update", "5", "0.2000", "0.1000", "0.3000", "7.3"],
        ["outside of the phases", "", "0.0000", "0.0500", "0.0500", "1.2"],
        ["profiled trial", "27", "3.4000", "0.7000", "4.1000", "100.0"],
    ]
    assert shown.bold("phase") == ["profiled trial"]
    for column in (2, 3, 4):
        assert near_sum([row[column] for row in rows[:-1]], float(rows[-1][column]))
    assert (
        "It adds up: data 0.4000 ms + forward 1.3000 ms + backward 2.0500 ms + update 0.3000 ms + "
        "outside of the phases 0.0500 ms = profiled trial 4.1000 ms." in shown.text
    )
    assert "It adds up: layers 3.4000 ms + framework 0.7000 ms = profiled trial 4.1000 ms." in (
        shown.text
    )


def test_one_phase_needs_no_table_of_phases() -> None:
    shown = read(report_md(summarise(make_recording())))
    assert "By phase" not in shown.headings
    assert all("phase" not in table[0] for table in shown.tables)


def test_functions_by_phase() -> None:
    head, *rows = report("top:1").after("By function")
    assert head == [
        "function", "calls", "forward [ms]", "backward [ms]", "update [ms]", "total [ms]",
        "backward / forward", "share [%]", "hot layers",
    ]  # fmt: skip
    assert rows[0] == [
        "Convolution2DFunction", "3", "0.8000", "1.4800", "", "2.2800", "1.85", "76.0", "1",
    ]  # fmt: skip
    for column, total in ((2, 1.0), (3, 1.8), (4, 0.2), (5, 3.0)):
        assert near_sum([row[column] for row in rows], total)


def test_blocks_by_phase() -> None:
    head, *rows = report().after("By block")
    assert head[0] == "block"
    assert [row[0] for row in rows] == [
        "/res/0", "/res/1", "/conv", "/fc", "optimizer", "/", "cleargrads", "loss"
    ]  # fmt: skip
    assert near_sum([row[5] for row in rows], 3.0)


def test_many_blocks_are_summed_up() -> None:
    summary = summarise(make_recording(2000, n_trials=2))
    rows = read(report_md(summary)).after("By block")[1:]
    assert len(rows) == MAX_GROUPS + 1
    assert rows[-1][0].endswith(" others")
    assert sum(int(row[1].replace(",", "")) for row in rows) == 2000
    assert near_sum([row[2] for row in rows], summary.totals.layers_s * 1e3)


def test_networks_without_blocks_or_links() -> None:
    flat = tuple(Layer(at, f"/conv{at}", "ReLU") for at in range(3))
    shown = read(report_md(summarise(make_recording(3, layers=flat))))
    assert "By block" not in shown.headings
    assert "By link" in shown.headings
    bare = tuple(Layer(at, "/", "ReLU") for at in range(3))
    shown = read(report_md(summarise(make_recording(3, layers=bare))))
    assert "By link" not in shown.headings


def test_links_and_what_is_beside_them_add_up() -> None:
    shown = report("0.3ms")
    head, *rows = shown.after("By link")
    assert head == [
        "link", "kind", "calls", "parameters", "forward [ms]", "backward [ms]", "update [ms]",
        "inclusive [ms]", "exclusive [ms]", "share [%]", "hot layers",
    ]  # fmt: skip
    by_path = {row[0]: row for row in rows}
    assert list(by_path) == [
        "/", "/conv", "/res", "/res/0", "/res/1", "/fc", "/unused", "loss", "cleargrads",
        "optimizer", "framework", "profiled trial",
    ]  # fmt: skip
    assert by_path["/res/0"][1:] == [
        "Block", "1", "592", "0.3700", "0.6900", "0.0600", "1.1200", "0.0200", "37.3", "2",
    ]  # fmt: skip
    top = ["/", "loss", "cleargrads", "optimizer", "framework"]
    for column in (4, 5, 6, 7):
        cells = [by_path[path][column] for path in top]
        whole = float(by_path["profiled trial"][column])
        assert near_sum(cells, whole)
    assert by_path["profiled trial"][7] == "3.7000"
    assert shown.bold("link") == ["/conv", "/res/0", "/res/1"]
    assert "7 of 11 links are shown, down to 2 levels below the network" in shown.words
    assert "(/) and of loss + cleargrads + optimizer + framework add up" in shown.words


def test_a_small_tree_is_shown_whole() -> None:
    layers = (Layer(0, "/a", "ReLU"), Layer(1, "/b", "Add"))
    shown = read(report_md(summarise(make_recording(2, layers=layers))))
    assert "All links are shown; links.csv has all of them" in shown.words
    assert "(/) and of framework add up to the profiled trial" in shown.words


def test_a_large_tree_is_cut() -> None:
    layers = tuple(Layer(at, f"/l{at}", "ReLU") for at in range(MAX_ROWS + 50))
    recording = make_recording(len(layers), n_trials=3, layers=layers)
    summary = summarise(recording)
    shown = read(report_md(summary))
    rows = shown.after("By link")[1:]
    links = [row for row in rows if row[0].startswith("/")]
    assert len(links) == MAX_ROWS
    slowest = summary.links["inclusive_s"].nlargest(MAX_ROWS).min()
    assert min(float(row[1]) for row in links) >= slowest * 1e3 - 1e-4
    assert "200 of 251 links are shown" in shown.words
    assert "and those of the longest times" in shown.words


def test_layers_with_their_phases() -> None:
    summary = summarise(make_training())
    shown = read(report_md(summary))
    rows = shown.table("#")
    assert [row[3] for row in rows] == summary.layers["phase"].tolist()
    assert [row[5] for row in rows] == [format_ms(mean) for mean in summary.layers["mean_s"]]
    assert shown.bold("#") == [str(i) for i in summary.hotspots.indices]
    assert "phase after phase" in shown.words
    (picture,) = shown.images
    assert picture[1] == "layers.png"


def test_many_layers_of_several_phases() -> None:
    recording = make_recording(MAX_ROWS + 10, n_trials=3)
    layers = tuple(
        replace(layer, phase="backward" if layer.index > 100 else "forward")
        for layer in recording.layers
    )
    shown = read(report_md(summarise(replace(recording, layers=layers), "top:60")))
    assert len(shown.table("#")) == 60
    assert {row[3] for row in shown.table("#")} == {"forward", "backward"}
    assert "60 of 210 layers are shown" in shown.words


def test_hotspots_by_phase() -> None:
    # 600, 580 and 300 us of backward, two of 300 us of forward.
    shown = report("0.3ms")
    tables = {tuple(table[0][:2]): table[1:] for table in shown.tables}
    assert tables["phase", "hot layers"] == [["backward", "3", "49.3"], ["forward", "2", "20.0"]]
    assert tables["function", "hot layers"] == [["Convolution2DFunction", "5", "69.3"]]
    assert tables["part of the network", "hot layers"] == [["/res", "4", "59.3"],
                                                           ["/conv", "1", "10.0"]]  # fmt: skip
    assert "5 of 25 layers are hot and hold 69.3 % of the layers' time, 56.2 % of" in shown.words
    assert "None of the other 20 layers holds more than 6.7 %." in shown.words


def test_hotspots_outside_of_the_network() -> None:
    shown = report("pareto:100%")
    parts = [row[0] for row in shown.table("part of the network")]
    assert parts == ["/res", "/conv", "/fc", "optimizer", "/", "cleargrads", "loss"]


def test_parts_of_a_wrapped_network() -> None:
    recording = make_recording(18)
    layers = tuple(replace(l, path=f"/predictor{l.path}") for l in recording.layers)  # noqa: E741
    shown = read(report_md(summarise(replace(recording, layers=layers), "pareto:100%")))
    parts = [row[0] for row in shown.table("part of the network")]
    assert sorted(parts) == ["/predictor/res2", "/predictor/res3"]
