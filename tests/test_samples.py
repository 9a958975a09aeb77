"""The samples equal the files that ``benchmarks.samples`` makes from their recordings."""

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
#: Markup, scripts and styles of pages and pictures.
_MARKUP = re.compile(r"<(script|style|metadata)\b.*?</\1>|<[^>]*>", re.DOTALL)


def pixels(content):
    """A picture reduced to 16 x 16 pixels, in which text is grey."""
    picture = Image.open(io.BytesIO(content)).convert("RGB")
    return np.asarray(picture.resize((16, 16), Image.Resampling.BOX), float)


def assert_same(sample, written):
    """Check that a file of a sample equals a new one.

    Words must be equal. Last digits of numbers may differ between versions of NumPy, and details
    of fonts in pictures between versions of Matplotlib.
    """
    old, new = sample.read_bytes(), written.read_bytes()
    if sample.suffix == ".png":
        assert np.abs(pixels(old) - pixels(new)).mean() < 3, sample
        return
    texts = [content.decode() for content in (old, new)]
    if sample.suffix in (".html", ".svg"):
        texts = [" ".join(_MARKUP.sub(" ", text).split()) for text in texts]
    words, others = map(_NUMBER.split, texts)
    assert words == others, sample
    for number, other in zip(*map(_NUMBER.findall, texts), strict=True):
        assert number == other or math.isclose(float(number), float(other), rel_tol=1e-9), sample


@pytest.mark.slow
@pytest.mark.parametrize("sample", KEPT)
def test_sample_files_equal_new_ones(sample, tmp_path, monkeypatch):
    # Reducing colours is slow, and the comparison ignores it: do it for one sample.
    if sample != "resnet20-cpu-b32-train":
        monkeypatch.setattr(samples, "reduce_colours", lambda path: None)
    written = samples.make(sample, tmp_path)
    assert written == {name for name in KEPT[sample] if not samples.is_source(name)}
    for folder, names in ((tmp_path, written), (SAMPLES / sample, set(KEPT[sample]))):
        present = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
        assert set(map(str, present)) == names
    for name in written:
        assert_same(SAMPLES / sample / name, tmp_path / name)


def test_samples_are_complete_small_and_listed():
    assert {path.name for path in SAMPLES.iterdir() if path.is_dir()} == set(KEPT)
    assert sum(path.stat().st_size for path in SAMPLES.rglob("*") if path.is_file()) < 8e6
    assert {*FILES.values(), "report.html", "layers.svg"} <= set(KEPT["resnet20-cpu-b1"])
    listed = (SAMPLES / "README.md").read_text()
    for sample, names in KEPT.items():
        report = "engines.md" if "engines.md" in names else "report.md"
        assert f"({sample}/{report})" in listed
