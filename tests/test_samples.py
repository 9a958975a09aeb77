"""The samples are what the code makes of their recordings: ``benchmarks.samples``."""

import io
import math
import re

import numpy as np
import pytest
from PIL import Image

from benchmarks import samples
from benchmarks.samples import KEPT, SAMPLES
from chainer_profile.runs.formats import FILES

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?")


def assert_same_text(old, new, where):
    """Words are equal, and numbers but for what NumPy's versions make of their last digit."""
    assert _NUMBER.split(old) == _NUMBER.split(new), where
    for one, other in zip(_NUMBER.findall(old), _NUMBER.findall(new), strict=True):
        assert one == other or math.isclose(float(one), float(other), rel_tol=1e-9), where


def page_words(content):
    """What a page says; its pictures, style and script are looked at by other tests."""
    return re.sub(rb"<(script|style)\b.*?</\1>|<[^>]*>", b" ", content, flags=re.DOTALL).decode()


def pixels(content):
    """A picture in 16 x 16 colours, in which letters are grey."""
    picture = Image.open(io.BytesIO(content)).convert("RGB")
    return np.asarray(picture.resize((16, 16), Image.Resampling.BOX), float)


def assert_same(kept, made):
    """One file of a sample is what was made again; pictures but for the details of fonts."""
    old, new = kept.read_bytes(), made.read_bytes()
    if old == new:
        return
    if kept.suffix == ".html":
        assert_same_text(page_words(old), page_words(new), kept)
    elif kept.suffix == ".png":
        # Matplotlib's versions set text differently. Figures are held by the other files.
        assert np.abs(pixels(old) - pixels(new)).mean() < 3, kept
    elif kept.suffix == ".svg":
        assert re.findall(r"<text [^>]*>([^<]*)<", old.decode()) == re.findall(
            r"<text [^>]*>([^<]*)<", new.decode()
        ), kept
    else:
        assert_same_text(old.decode(), new.decode(), kept)


def names_in(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("sample", KEPT)
def test_files_are_made_from_the_recordings(sample, tmp_path, monkeypatch):
    # How few the colours are is looked at by no comparison of pictures; one sample has them.
    if sample != "resnet20-cpu-b32-train":
        monkeypatch.setattr(samples, "in_few_colours", lambda path: None)
    made = samples.make(sample, tmp_path)
    assert names_in(tmp_path) == made
    assert names_in(SAMPLES / sample) == set(KEPT[sample])
    assert made == {name for name in KEPT[sample] if not samples.is_source(name)}
    for name in made:
        assert_same(SAMPLES / sample / name, tmp_path / name)


def test_the_samples():
    assert {path.name for path in SAMPLES.iterdir() if path.is_dir()} == set(KEPT)
    assert sum(path.stat().st_size for path in SAMPLES.rglob("*") if path.is_file()) < 8e6
    assert {*FILES.values(), "report.html", "layers.svg"} <= set(KEPT["resnet20-cpu-b1"])
    listed = (SAMPLES / "README.md").read_text()
    for sample, names in KEPT.items():
        report = "engines.md" if "engines.md" in names else "report.md"
        assert f"({sample}/{report})" in listed
