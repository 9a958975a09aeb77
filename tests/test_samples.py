"""The sample reports are what this code makes of their recordings.

``python -m tests.test_samples`` makes them again, from the recordings that are there.
"""

from __future__ import annotations

import io
import math
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.files import make_folder
from chainer_profile.basics.words import PROG
from chainer_profile.cli.run import parser as run_parser
from chainer_profile.cli.shown import wanted
from chainer_profile.report.page.html import script_text
from chainer_profile.runs import engines as run_folder
from chainer_profile.runs import output
from chainer_profile.runs.formats import FILES, Wanted
from tests.command import ROOT

SAMPLES = ROOT / "reports" / "samples"
RUNS = sorted(path.parent for path in SAMPLES.glob("*/recording.npz"))
ENGINES = sorted(path.parent for path in SAMPLES.glob("*/engines.json"))
#: Of an engine's own folder only these are kept: the page alone is 1 MB.
KEPT = ("layers.csv", "layers.png", "links.csv", "report.md", "roofline.png")

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?")


def asked(command: str) -> Wanted:
    """What the command that made a sample asked for."""
    words = shlex.split(command)
    return wanted(run_parser().parse_args(words[words.index(PROG) + 1 :]))


def make_run(folder: Path, place: Path) -> list[Path]:
    """Make the reports of a run again, in another folder."""
    recording = output.load_run(folder)
    return output.write_reports(place, summarise(recording), asked(recording.settings.command))


def make_engines(folder: Path, place: Path) -> list[Path]:
    """Make the reports of a run of several engines again, and of each of its engines."""
    run, recordings = run_folder.read_run(folder)
    written = [place / name for name in run_folder.write_reports(place, run, recordings)]
    (place / "engines.svg").unlink()
    written.remove(place / "engines.svg")
    for engine in run.engines:
        if engine.name in recordings:
            make_folder(place / engine.folder)
            for path in output.write_reports(
                place / engine.folder, summarise(recordings[engine.name])
            ):
                if path.name in KEPT:
                    written.append(path)
                else:
                    path.unlink()
    return written


def assert_same_text(old: str, new: str, where: Path) -> None:
    """Words are equal, and numbers but for what NumPy's versions make of their last digit."""
    assert _NUMBER.split(old) == _NUMBER.split(new), where
    for one, other in zip(_NUMBER.findall(old), _NUMBER.findall(new), strict=True):
        assert one == other or math.isclose(float(one), float(other), rel_tol=1e-9), where


def page_without_scripts(content: bytes) -> str:
    """A page without Bokeh's script, its charts, and the hashes of scripts."""
    text = content.decode()
    kept = re.findall(r'<script type="application/json" id="data">.*?</script>', text, re.DOTALL)
    assert len(kept) == 1
    text = re.sub(r"<script\b.*?</script>", "", text, flags=re.DOTALL)
    text = re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    return re.sub(r"sha256-[A-Za-z0-9+/=]+", "", text) + kept[0]


def pdf_words(content: bytes) -> list[str]:
    reader = pytest.importorskip("pypdf").PdfReader(io.BytesIO(content))
    return [word for page in reader.pages for word in page.extract_text().split()]


def pixels(content: bytes) -> np.ndarray:
    """A picture in 16 x 16 colours, in which letters are grey."""
    picture = Image.open(io.BytesIO(content)).convert("RGB")
    return np.asarray(picture.resize((16, 16), Image.Resampling.BOX), float)


def assert_same(kept: Path, made: Path) -> None:
    """One file of a sample is what was made again; pictures but for the details of fonts."""
    old, new = kept.read_bytes(), made.read_bytes()
    if kept.suffix == ".html":
        assert_same_text(page_without_scripts(old), page_without_scripts(new), kept)
    elif kept.suffix == ".pdf":
        assert pdf_words(old) == pdf_words(new), kept
    elif kept.suffix == ".png":
        # Matplotlib's versions set text differently. Figures are held by the other files.
        assert np.abs(pixels(old) - pixels(new)).mean() < 3, kept
    elif kept.suffix == ".svg":
        assert re.findall(r"<text [^>]*>([^<]*)<", old.decode()) == re.findall(
            r"<text [^>]*>([^<]*)<", new.decode()
        ), kept
    else:
        assert_same_text(old.decode(), new.decode(), kept)


def names_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("folder", RUNS, ids=lambda path: path.name)
def test_reports_are_made_from_their_recording(folder: Path, tmp_path: Path) -> None:
    if "pdf" in asked(output.load_run(folder).settings.command).formats:
        pytest.importorskip("fpdf")
    made = make_run(folder, tmp_path)
    assert names_in(folder) == {path.name for path in made} | {"recording.npz"}
    for path in made:
        assert_same(folder / path.name, path)


@pytest.mark.parametrize("folder", ENGINES, ids=lambda path: path.name)
def test_reports_of_engines_are_made_from_their_recordings(folder: Path, tmp_path: Path) -> None:
    made = {str(path.relative_to(tmp_path)) for path in make_engines(folder, tmp_path)}
    others = {"engines.json"}
    others |= {str(path.relative_to(folder)) for path in folder.glob("*/recording.npz")}
    assert names_in(folder) == made | others
    for name in made:
        assert_same(folder / name, tmp_path / name)


def test_all_formats_have_a_sample() -> None:
    for folder in RUNS:
        assert set(FILES.values()) <= names_in(folder)
    assert {path.name for path in RUNS} >= {"resnet20-cpu-b1", "resnet20-cpu-b32-train"}
    assert len(ENGINES) >= 5


def test_a_sample_that_differs_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,1.00000001\n")
    for text in ("x,1.00000002\n", "y,1.00000001\n", "x,1.00000001,2\n", "x,-1.00000001\n"):
        (tmp_path / "b.csv").write_text(text)
        with pytest.raises(AssertionError):
            assert_same(tmp_path / "a.csv", tmp_path / "b.csv")
    (tmp_path / "b.csv").write_text("x,1.000000010000001\n")
    assert_same(tmp_path / "a.csv", tmp_path / "b.csv")
    for name, level in (("a.png", 255), ("b.png", 200)):
        Image.new("L", (9, 9), level).save(tmp_path / name)
    with pytest.raises(AssertionError):
        assert_same(tmp_path / "a.png", tmp_path / "b.png")
    page = f'<p>{{}}</p><script type="application/json" id="data">{script_text("1")}</script>'
    (tmp_path / "a.html").write_text(page.format("x") + "<script>1</script>")
    (tmp_path / "b.html").write_text(page.format("x") + "<script>2</script>")
    (tmp_path / "c.html").write_text(page.format("y"))
    assert_same(tmp_path / "a.html", tmp_path / "b.html")
    with pytest.raises(AssertionError):
        assert_same(tmp_path / "a.html", tmp_path / "c.html")


if __name__ == "__main__":
    for folder in RUNS:
        make_run(folder, folder)
    for folder in ENGINES:
        make_engines(folder, folder)
