"""Markdown: what its signs are for, and the structure of report.md."""

from __future__ import annotations

import pytest

from chainer_profile.report.document import Code, Heading, file, points, text
from chainer_profile.report.text import printable
from chainer_profile.report.writers import markdown
from tests.report.reading import read

# --- title, captions, and the hot layers


# --- signs


def test_usual_names_are_not_escaped() -> None:
    text = markdown.write(
        [Heading(1, "conv_1/res2 (a)"), points(["time [ms] a trial", "a -> b, 50 %"])]
    )
    assert text == "# conv_1/res2 (a)\n\n- time [ms] a trial\n- a -> b, 50 %\n"


@pytest.mark.parametrize(
    "path", ["links.csv", "a b/(1).csv", "[x].csv", "a*b.csv", "\ud800", "c:d"]
)
def test_a_link_shows_the_name_and_leads_to_it(path: str) -> None:
    report = read(markdown.write([text("See ", file(path), ".")]))
    assert report.text == [f"See {printable(path)}."]
    assert report.links == [markdown.address(path)]
    assert not set(" ():") & set(markdown.address(path))


@pytest.mark.parametrize("line", ["a", "```", "x ```` y", ""])
def test_code_is_shown_as_it_is(line: str) -> None:
    assert read(markdown.write([Code(line)])).code == [f"{line}\n"]
