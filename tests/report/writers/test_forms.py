"""Features of Markdown and the terminal alone; :mod:`.test_contract` covers the common ones."""

import io
import re
from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from chainer_profile.report import unit
from chainer_profile.report.columns import LAYER_COLUMNS
from chainer_profile.report.document import FASTER, HOT, SLOWER, TOTAL, WRONG, file, text
from chainer_profile.report.tables import Table
from chainer_profile.report.writers import markdown
from chainer_profile.report.writers.terminal import show, written
from tests.report.documents import profiles
from tests.report.reading import column, terminal_text
from tests.report.seen import check
from tests.report.working import training


def test_link_shows_the_name_and_its_target() -> None:
    for path in ("links.csv", "a b/(1).csv", "[x].csv", "a*b.csv", "\ud800", "c:d"):
        blocks = [text("See ", file(path), ".")]
        check("markdown", blocks)
        address = markdown.address(path)
        assert f"]({address})" in markdown.write(blocks)
        assert not set(" ():") & set(address)


# -- a terminal


@given(st.integers(18, 60), st.text("abc-/", min_size=1, max_size=60))
def test_folded_text_is_complete(width: int, name: str) -> None:
    columns = [
        column("x", str, of=unit.TEXT, fold=8),
        column("y", lambda row: row[::-1], of=unit.TEXT, fold=8),
    ]
    shown = written([Table(columns, [name])], width).split("\n")
    assert max(map(len, shown)) <= width
    second = shown[1].rindex(" ") + 1
    assert "".join(line[:second].strip() for line in shown[2:]) == name
    assert "".join(line[second:].strip() for line in shown[2:]) == name[::-1]


def test_columns_that_do_not_fit_are_named() -> None:
    columns = [column(name, str, of=unit.TEXT, fold=8) for name in ("first", "second")]
    columns += [column(name, lambda row: "1234567890", drop=i) for i, name in enumerate("abcd")]
    for width, numbers, names in (
        (66, 4, ""),
        (65, 3, "b"),
        (30, 1, "b, c, d"),
        (17, 0, "second, a, b, c, d"),
    ):
        shown = written([Table(columns, ["a name of some length"])], width)
        assert max(map(len, shown.split("\n"))) <= width
        note = f"Not shown at this width: {names} (a wider terminal shows them)."
        assert shown.count("1234567890") == numbers
        assert (note in " ".join(shown.split())) == bool(names)


def test_only_terminals_get_colour() -> None:
    marks = [HOT, TOTAL, SLOWER, FASTER, WRONG]
    table = Table([column("name", str, of=unit.TEXT)], "abcdef", marks=marks)
    blocks = [table, text("a note", note=True)]
    piped, coloured = io.StringIO(), io.StringIO()
    show(blocks, Console(file=piped, width=30, _environ={}))
    assert piped.getvalue() == "name\n----\na\nb\nc\nd\ne\nf\n\na note\n"
    style = {"force_terminal": True, "color_system": "standard", "_environ": {}}
    show(blocks, Console(file=coloured, width=30, **style))
    styles = re.findall(r"^(?:\x1b\[([\d;]+)m)?(\w)", coloured.getvalue(), re.MULTILINE)[1:]
    signs = ["1;31", "1", "1;31", "1;32", "1;31", "", "33"]
    assert styles == list(zip(signs, "abcdefa", strict=True))


def test_times_are_shown_at_any_width() -> None:
    for width, name, tree in product((80, 130), ("forward", "train", "gpu"), (False, True)):
        shown = terminal_text(profiles()[name](), width, tree=tree, depth=99)
        assert "\u2026" not in shown
        assert max(len(line) for line in shown.splitlines()) <= width
        start = "incl." if tree else "path"
        head = next(line for line in shown.splitlines() if start in line.split()).split()
        wanted = {"incl."} if tree else {"path", "ms", "%"}
        wanted |= {"host", "busy"} if name == "gpu" and not tree else set()
        assert wanted <= {*head}


KEYS = [key for key in LAYER_COLUMNS if key not in ("index", "hot")]


@given(st.lists(st.sampled_from(KEYS), unique=True), st.sampled_from([40, 80, 600]))
def test_chosen_columns_are_shown_in_order_or_named(keys: list[str], width: int) -> None:
    keys = ["index", *keys]
    shown = terminal_text(training(), width, columns=keys, sort="index", limit=3)
    table = shown[shown.index("The layers\n") :].partition("\n\n")[0]
    left_out = re.search(r"Not shown at this width: (.*?) \(a wider", " ".join(table.split()))
    lacking = left_out[1].split(", ") if left_out else []
    names = [LAYER_COLUMNS[key].heading for key in keys]
    there = names[: len(names) - len(lacking)]
    assert [*there, *lacking] == names
    assert there == names or width < 600
    assert all(name.split()[0][:8] in table.splitlines()[1] for name in there)
