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
#: What a page or a picture does not say in words.
_NO_WORDS = re.compile(r"<(script|style|metadata)\b.*?</\1>|<[^>]*>", re.DOTALL)


def pixels(content):
    """A picture in 16 x 16 colours, in which letters are grey."""
    picture = Image.open(io.BytesIO(content)).convert("RGB")
    return np.asarray(picture.resize((16, 16), Image.Resampling.BOX), float)


def assert_same(kept, made):
    """One file of a sample is what was made again.

    Words are equal, numbers but for what NumPy's versions make of their last digit, and pictures
    but for the details of fonts, which Matplotlib's versions set differently.
    """
    old, new = kept.read_bytes(), made.read_bytes()
    if kept.suffix == ".png":
        assert np.abs(pixels(old) - pixels(new)).mean() < 3, kept
        return
    texts = [content.decode() for content in (old, new)]
    if kept.suffix in (".html", ".svg"):
        texts = [" ".join(_NO_WORDS.sub(" ", text).split()) for text in texts]
    words, others = map(_NUMBER.split, texts)
    assert words == others, kept
    for number, other in zip(*map(_NUMBER.findall, texts), strict=True):
        assert number == other or math.isclose(float(number), float(other), rel_tol=1e-9), kept


@pytest.mark.slow
@pytest.mark.parametrize("sample", KEPT)
def test_files_are_made_from_the_recordings(sample, tmp_path, monkeypatch):
    # How few the colours are is looked at by no comparison of pictures; one sample has them.
    if sample != "resnet20-cpu-b32-train":
        monkeypatch.setattr(samples, "reduce_colours", lambda path: None)
    made = samples.make(sample, tmp_path)
    assert made == {name for name in KEPT[sample] if not samples.is_source(name)}
    for folder, names in ((tmp_path, made), (SAMPLES / sample, set(KEPT[sample]))):
        there = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
        assert set(map(str, there)) == names
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
