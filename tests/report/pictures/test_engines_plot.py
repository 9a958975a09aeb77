"""engines.png: a bar an engine, and its parts."""

from __future__ import annotations

from html import escape

import pytest

from chainer_profile.report.content.engines import BETWEEN, words_of
from chainer_profile.report.page import render_engines
from chainer_profile.report.pictures import engines as engines_plot
from chainer_profile.report.pictures.engines import shares
from tests.engines.fake_engines import WRONG, make_run, recordings


def test_small_functions_are_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines_plot, "_LEAST", 0.3)
    found = shares(make_run(), recordings())
    assert list(found) == ["Convolution2DFunction", engines_plot.REST, BETWEEN]
    assert list(found.sum(axis=1)) == pytest.approx([1, 1])


def test_bars_lead_to_rows_of_the_page_and_say_what_they_are() -> None:
    run = make_run(WRONG)
    html, said = render_engines(run, recordings()), words_of(run, recordings())
    assert list(said.values()) == [
        "chainer: 1.000 ms, 62.5 % Convolution2DFunction, 16.7 % between the functions or nodes, "
        "15.0 % FixedBatchNormalization, 5.8 % ReLU",
        "fast: 100.0 us, 10.00x, 90.0 % Convolution2DFunction, 5.0 % between the functions or "
        "nodes, 5.0 % the engine's own steps",
        "hasty: 50.00 us, wrong outputs",
    ]
    for anchor, words in said.items():
        for part in (f'id="{anchor}"', f'href="#{anchor}"', escape(words, quote=False)):
            assert part in html, part
