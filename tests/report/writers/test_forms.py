"""What Markdown, HTML and the terminal each do alone; :mod:`.test_contract` holds what all do."""

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
from chainer_profile.report.text import printable
from chainer_profile.report.writers import markdown
from chainer_profile.report.writers.terminal import show, written
from tests.report.documents import profiles
from tests.report.reading import column, on_terminal
from tests.report.seen import seen
from tests.report.working import training

CHANGES = (SLOWER, FASTER, WRONG)

# -- Markdown


def test_a_link_shows_the_name_and_leads_to_it() -> None:
    for path in ("links.csv", "a b/(1).csv", "[x].csv", "a*b.csv", "\ud800", "c:d"):
        blocks = [text("See ", file(path), ".")]
        assert seen("markdown", blocks) == [("text", f"See {printable(path)}.")]
        address = markdown.address(path)
        assert f"]({address})" in markdown.write(blocks)
        assert not set(" ():") & set(address)


# -- a terminal


@given(st.integers(18, 60), st.text("abc-/", min_size=1, max_size=60))
def test_all_of_a_folded_text_is_there(width: int, name: str) -> None:
    columns = [
        column("x", str, of=unit.TEXT, fold=8),
        column("y", lambda row: row[::-1], of=unit.TEXT, fold=8),
    ]
    shown = written([Table(columns, [name])], width).split("\n")
    assert max(map(len, shown)) <= width
    second = shown[1].rindex(" ") + 1
    assert "".join(line[:second].strip() for line in shown[2:]) == name
    assert "".join(line[second:].strip() for line in shown[2:]) == name[::-1]


def test_what_a_width_has_no_room_for_is_named() -> None:
    columns = [column(name, str, of=unit.TEXT, fold=8) for name in ("first", "second")]
    columns += [column(name, lambda row: "1234567890", drop=at) for at, name in enumerate("abcd")]
    rows = ["a name of some length"]
    for width, names in ((66, ""), (65, "b"), (53, "b, c"), (30, "b, c, d"), (18, "a, b, c, d")):
        shown = written([Table(columns, rows)], width)
        assert max(map(len, shown.split("\n"))) <= width
        if not names:
            assert "Not shown" not in shown
        else:
            said = f"Not shown at this width: {names} (a wider terminal shows them)."
            assert said in " ".join(shown.split())
    assert "second, a, b, c, d" in " ".join(written([Table(columns, rows)], 17).split())


def test_nobody_who_reads_a_pipe_sees_colour() -> None:
    columns = [column("name", str, of=unit.TEXT, fold=4), column("last", str, of=unit.TEXT, fold=4)]
    stream = io.StringIO()
    show([Table(columns, ["a", "bcd"], marks=[HOT])], Console(file=stream, width=30, _environ={}))
    assert stream.getvalue() == "name  last\n----- ----\na     a\nbcd   bcd\n"


def test_marks_and_notes_have_styles() -> None:
    stream = io.StringIO()
    style = {"force_terminal": True, "color_system": "standard", "_environ": {}}
    table = Table([column("name", str, of=unit.TEXT)], "abcdef", marks=[HOT, TOTAL, *CHANGES])
    show([table, text("a note", note=True)], Console(file=stream, width=30, **style))
    styles = re.findall(r"^(?:\x1b\[([\d;]+)m)?(\w)", stream.getvalue(), re.MULTILINE)[1:]
    signs = ["1;31", "1", "1;31", "1;32", "1;31", "", "33"]
    assert styles == list(zip(signs, "abcdefa", strict=True))


def head_of(shown: str, start: str = "median ms") -> list[str]:
    return next(line for line in shown.splitlines() if start in line).split()


def test_no_time_is_left_out_at_any_width() -> None:
    for width, name, tree in product((60, 80, 130), ("forward", "train", "gpu"), (False, True)):
        if name == "gpu" and width < 80:
            continue
        shown = on_terminal(profiles()[name](), width, tree=tree, depth=99)
        assert "\u2026" not in shown
        assert max(len(line) for line in shown.splitlines()) <= width
        wanted = {"incl."} if tree else {"path", "median", "%"}
        wanted |= {"host", "busy"} if name == "gpu" and not tree else set()
        assert wanted <= {*head_of(shown, "incl." if tree else "median ms")}


KEYS = [key for key in LAYER_COLUMNS if key not in ("index", "hot")]


@given(st.lists(st.sampled_from(KEYS), unique=True), st.sampled_from([40, 80, 600]))
def test_chosen_columns_are_there_in_their_order_or_named(keys: list[str], width: int) -> None:
    keys = ["index", *keys]
    shown = on_terminal(training(), width, columns=keys, sort="index", limit=3)
    names = [LAYER_COLUMNS[key].heading for key in keys]
    shown = shown[shown.index("The layers\n") :].partition("\n\n")[0]
    left_out = re.search(
        r"Not shown at this width: (.*?) \(a wider terminal shows", " ".join(shown.split())
    )
    lacking = left_out[1].split(", ") if left_out else []
    assert not (lacking and width == 600)
    assert names[len(names) - len(lacking) :] == lacking
    head = shown.splitlines()[1]
    for name in names[: len(names) - len(lacking)]:
        assert name.split()[0][:8] in head
    assert "\u2026" not in shown
