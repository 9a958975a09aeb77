from __future__ import annotations

import builtins
import io
import re
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.errors import ProfileError
from chainer_profile.record.recording import Recording
from chainer_profile.report.content.coursework import ReportTitle
from chainer_profile.report.writers import markdown, pdf
from chainer_profile.report.writers.pdf_text import Cells, Piece, cells, code_lines, passages, plain
from tests.conftest import make_recording, make_training
from tests.report.reading import read
from tests.report.working import working

pypdf = pytest.importorskip("pypdf")
pytest.importorskip("fpdf")
pytest.importorskip("uharfbuzz")

A4 = (595.28, 841.89)
TITLE = ReportTitle("A first look", "Ada Lovelace", "Systems laboratory", "21 November 2026")


def opened(content: bytes) -> Any:
    assert content.startswith(b"%PDF-")
    return pypdf.PdfReader(io.BytesIO(content))


def words(reader: Any) -> str:
    return " ".join(" ".join(page.extract_text() for page in reader.pages).split())


def fonts(reader: Any) -> list[Any]:
    found = {}
    for page in reader.pages:
        for font in page["/Resources"]["/Font"].values():
            font = font.get_object()
            found[font["/BaseFont"]] = font
    return list(found.values())


@pytest.fixture(scope="module")
def report() -> bytes:
    return pdf.render(working(), title=TITLE)


@pytest.fixture(scope="module")
def shown(report: bytes) -> str:
    return words(opened(report))


def test_it_has_the_parts_of_the_report(report: bytes, shown: str) -> None:
    reader = opened(report)
    at = [
        shown.index(part)
        for part in (
            "A first look",
            "Ada Lovelace",
            "1 Experiment description",
            "2 Environment",
            "3 Methodology",
            "4 Result",
            "5 Next step for improvement",
            "6 Appendix",
        )
    ]
    assert at == sorted(at)
    outline = [entry.title for entry in reader.outline if not isinstance(entry, list)]
    assert [name[0] for name in outline] == list("123456")


def test_it_says_what_the_markdown_says(shown: str) -> None:
    written = read(markdown.render(working(), title=TITLE))
    captions = [line for line in written.text if re.match(r"(Table|Figure) \d+\.", line)]
    assert len(captions) > 8
    squeezed = shown.replace(" ", "")
    for line in captions:
        if "columns of" in line:
            assert line.partition(". ")[2] not in shown
        else:
            assert line.partition(". ")[2].replace(" ", "") in squeezed
    for row in written.table("rank"):
        assert "".join(row).replace(" ", "") in squeezed


def test_metadata_and_pages(report: bytes) -> None:
    reader = opened(report)
    told = reader.metadata
    assert (told.title, told.author, told.keywords) == (
        "A first look",
        "Ada Lovelace",
        "Systems laboratory",
    )
    for number, page in enumerate(reader.pages, 1):
        size = sorted((float(page.mediabox.width), float(page.mediabox.height)))
        assert size == pytest.approx(A4, abs=0.1)
        assert str(number) in page.extract_text().split()


def test_all_fonts_are_embedded(report: bytes) -> None:
    found = fonts(opened(report))
    assert len(found) >= 3
    for font in found:
        descriptor = font["/DescendantFonts"][0].get_object()["/FontDescriptor"].get_object()
        assert "/FontFile2" in descriptor


def test_the_same_run_gives_the_same_file() -> None:
    summary = summarise(make_recording(2, n_trials=5))
    assert summary.recording.environment.started == "2026-01-02T03:04:05Z"
    content = pdf.render(summary)
    assert content == pdf.render(summary)
    date = opened(content).metadata.creation_date
    assert date == datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


def test_a_training_step_fills_pages_with_repeated_heads() -> None:
    reader = opened(pdf.render(summarise(make_training(n_trials=4))))
    shown = words(reader)
    assert "Time by phase" in shown
    assert shown.count("Layer-wise profile of net") == len(reader.pages) + 1


def renamed(name: str) -> Recording:
    recording = make_recording(3, n_trials=4)
    layers = tuple(replace(row, function=name, path=f"/{name}") for row in recording.layers)
    settings = replace(recording.settings, model=name, input=name, weights=name, command=name)
    started = replace(recording.environment, processor=name, started=name)
    return replace(recording, layers=layers, settings=settings, environment=started)


@pytest.mark.parametrize(
    "name",
    [
        "\u00e9\u00df \u03b1 \u0416 \u2192 \u00d7 \u00b5 **b** <i>x</i> {nb} \\ `c` |d|",
        "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u202e\x1b[31m\x00\ud800",
        "\u5c42\u5377\u79ef \U0001f600 " + "a" * 500,
    ],
)
def test_any_name_is_shown(name: str) -> None:
    summary = summarise(renamed(name))
    reader = opened(pdf.render(summary, title=ReportTitle(*[name] * 4)))
    shown = words(reader)
    if name.isprintable() and name.isascii() is False and "**b**" in name:
        assert name in shown
        assert reader.metadata.title == name
    if "\u5c42" in name:
        assert "\\u5c42\\u5377\\u79ef" in shown


@pytest.mark.parametrize("missing", ["fpdf", "uharfbuzz"])
def test_without_the_library_it_is_said_what_to_install(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = builtins.__import__

    def fails(name: str, *args: Any, **more: Any) -> Any:
        if name == missing:
            raise ImportError(name)
        return usual(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", fails)
    with pytest.raises(ProfileError, match=r"python -m pip install fpdf2 uharfbuzz$") as error:
        pdf.render(summarise(make_recording(1)))
    assert "\n" not in str(error.value)


# --- the words of Markdown


def test_passages_of_markdown() -> None:
    found = list(passages("a **b** `c` *d* [e](f) &lt;g&gt;\nh"))
    assert [passage.kind for passage in found] == ["paragraph"]
    assert [piece for piece in found[0].pieces if piece.bold] == [Piece("b", bold=True)]
    assert [piece for piece in found[0].pieces if piece.code] == [Piece("c", code=True)]
    assert [piece for piece in found[0].pieces if piece.italic] == [Piece("d", italic=True)]
    assert plain("a **b** `c` *d* [e](f) &lt;g&gt;\nh") == "a b c d e <g> h"
    assert [p.kind for p in passages("- x\n- y")] == ["point", "point"]
    assert [p.kind for p in passages("> x")] == ["note"]
    assert code_lines("```\na\n\nb\n```") == "a\n\nb"


def test_cells_of_a_table() -> None:
    found = cells("| a | b |\n| --- | ---: |\n| **x\\|y** | 1 |\n|  | `2` |")
    assert found == Cells(
        (Piece("a"), Piece("b")),
        ((Piece("x|y", bold=True), Piece("1")), (Piece(""), Piece("2", code=True))),
        (False, True),
    )
    assert cells("|  |  |\n| --- | --- |\n| a | b |").head == ()


# --- tables on pages


def test_a_long_table_repeats_its_head_and_a_wide_one_lies() -> None:
    from chainer_profile.report.writers.pdf_page import Pages

    rows = [f"| layer{n} | {n}.5 |" for n in range(150)]
    long = cells("\n".join(["| name | time |", "| --- | ---: |", *rows]))
    names = [f"column{n}" for n in range(16)]
    wide = cells(
        "\n".join(
            "| " + " | ".join(row) + " |" for row in (names, ["---:"] * 16, ["12,345.6789"] * 16)
        )
    )
    pages = Pages("x")
    assert not pages.lies(long)
    assert pages.lies(wide)
    pages.put_table(long)
    pages.turn(pages.lies(wide))
    pages.put_table(wide)
    reader = opened(bytes(pages.output()))
    *standing, lying = reader.pages
    assert len(standing) >= 3
    for page in standing:
        assert "name time" in " ".join(page.extract_text().split())
    assert float(lying.mediabox.width) > float(lying.mediabox.height)
    found = " ".join(" ".join(page.extract_text().split()) for page in standing)
    assert all(f"layer{n} {n}.5" in found for n in range(150))
    assert lying.extract_text().count("12,345.6789") == 16


def test_columns_are_never_wider_than_the_page() -> None:
    from chainer_profile.report.writers.pdf_page import Pages

    many = cells("\n".join(["| a " * 40 + "|", "| ---: " * 40 + "|", "| 123.456 " * 40 + "|"]))
    pages = Pages("x")
    pages.turn(pages.lies(many))
    pages.put_table(many)
    assert len(opened(bytes(pages.output())).pages) >= 1
