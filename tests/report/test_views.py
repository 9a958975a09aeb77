"""Views in a prompt and in a notebook: one line, a text, a fragment of HTML."""

import re
from dataclasses import replace
from typing import Any

import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.comparison.compare import compare
from chainer_profile.comparison.sides import Side
from chainer_profile.record.recording import Recording
from chainer_profile.report import views
from tests.conftest import make_recording, make_training
from tests.report.documents import NAMES, a_network, compared, named
from tests.report.seen import Page
from tests.report.tracing import SAMPLES


def checked(html: str) -> Page:
    """Parse a fragment; check that it has no script, loads nothing, and styles only itself."""
    fragment = re.fullmatch(
        r'<div class="(.*?)">\n<style>(.*?)</style>\n(.*)\n</div>', html, re.DOTALL
    )
    assert fragment is not None
    classes, style, body = fragment.groups()
    # MathJax would format a name between dollar signs as a formula.
    assert {"tex2jax_ignore", "mathjax_ignore"} <= set(classes.split())
    assert "url(" not in style
    assert "@import" not in style
    assert all(line.startswith(".chainer-profile") for line in style.split("\n") if line)
    assert all(line.isprintable() for line in body.split("\n"))
    html.encode()
    page = Page(body)
    assert page.scripts == []
    return page


def indices(page: Page) -> list[str]:
    """Return the first cells of the table that has ``#`` as its first heading."""
    firsts = [row[0] for row in page.rows]
    return firsts[firsts.index("#") + 1 :]


def test_hostile_names_in_a_fragment_are_text() -> None:
    recording = named(make_recording(len(NAMES)), NAMES)
    side = Side("".join(NAMES), (recording,))
    assert views.comparison_line(compare(side, recording)).isprintable()
    assert views.recording_line(recording).isprintable()
    assert views.summary_line(summarise(recording)).isprintable()
    # The content of a fragment is tested in tests/report/writers.
    checked(views.recording_html(recording))


def test_str_is_the_text_on_the_terminal() -> None:
    summary = summarise(make_training())
    assert str(summary) == views.summary_text(summary)
    assert "\x1b" not in str(summary)
    narrow = views.summary_text(summary, width=70, group_by="block", tree=True, depth=1)
    for text, width in ((str(summary), views.WIDTH), (narrow, 70)):
        assert max(map(len, text.split("\n"))) <= width
    comparison = compare(summary.recording, summary.recording)
    assert str(comparison) == views.comparison_text(comparison)
    assert str(a_network()) == views.model_text(a_network())


@pytest.mark.parametrize("path", SAMPLES, ids=str)
def test_summary_shows_the_slowest_layers_and_its_findings(path: Any) -> None:
    summary = summarise(Recording.load(path))
    html = summary._repr_html_()
    page = checked(html)
    layers = summary.layers.sort_values("mean_s", ascending=False, kind="stable")
    paths = [row[0] for row in page.rows]
    head = paths.index(f"slowest of {len(layers)} layers")
    assert paths[head + 1 : head + 6] == layers["path"].tolist()[:5]
    message = " ".join(page.texts)
    for finding in summary.findings:
        assert " ".join(finding.text.split()) in message
    assert len(html) < 30_000


def test_notebook_shows_python_calls_instead_of_options() -> None:
    message = " ".join(
        checked(summarise(make_training(5, settings={"command": ""}))._repr_html_()).texts
    )
    assert "chainer_profile.accelerate()" in message
    assert "(trials=1000)" in message
    assert "--" not in message


def test_recording_is_shown_as_its_summary_or_says_that_it_has_no_trials() -> None:
    recording = make_recording()
    assert views.recording_html(recording) == views.summary_html(summarise(recording))
    nothing = {name: getattr(recording, name)[:0] for name in ("self_ns", "trial_ns", "start_ns")}
    empty = replace(recording, **nothing, ended="interrupted by SIGINT")
    message = " ".join(checked(views.recording_html(empty)).texts)
    for part in ("contains no complete profiled trial, so there is no result.", "SIGINT", "chain"):
        assert part in message


def test_comparison_shows_changes_and_network_shows_its_rows() -> None:
    page = checked(views.comparison_html(compared()))
    assert indices(page) == ["3", "7"]
    marks = [attributes.get("class") for tag, attributes in page.tags if tag == "tr"]
    assert marks[-2:] == ["slower", "faster"]
    assert len(indices(checked(views.comparison_html(compared(), limit=1)))) == 1
    page = checked(views.model_html(a_network(views.MODEL_LIMIT - 1)))
    assert len(page.rows) == views.MODEL_LIMIT + 1
    assert any(text.startswith("1 row not shown") for text in page.texts)


def test_views_name_no_command_line_options() -> None:
    recording = make_recording(66)
    other = compare(recording, make_recording(66, seed=1))
    texts = [str(other), views.comparison_html(other)]
    for summary in map(summarise, (recording, make_training())):
        narrow = views.summary_text(summary, width=60, limit=2)
        assert "a wider terminal shows them" in " ".join(narrow.split())
        texts += [str(summary), views.summary_html(summary), narrow]
    whole_command = re.compile(r"python\s+profile\.py\s+engines\s+--model\s+\S+\s+--input-shape")
    for text in texts:
        assert not re.search(r"(?<![\w-])--[a-z]", whole_command.sub("", text))
