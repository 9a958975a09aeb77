"""Makes the samples in reports/samples again, from their recordings.

    python -m benchmarks.samples                        # all of them
    python -m benchmarks.samples resnet20-cpu-b1        # one
    python -m benchmarks.samples --measure              # run the commands in the recordings first

:data:`KEPT` has the files of each sample; other files of a run are deleted.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Collection
from pathlib import Path

from PIL import Image

from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.files import make_folder, replacing
from chainer_profile.basics.words import PROG
from chainer_profile.cli.parsers import parser_of
from chainer_profile.engines.results import RESULTS
from chainer_profile.record.budget import ADVICE, BUDGET
from chainer_profile.report.content.profile import ReportTitle
from chainer_profile.runs import engines
from chainer_profile.runs.folder import RECORDING, load_run
from chainer_profile.runs.formats import FILES
from chainer_profile.runs.write import with_folder_name, write_reports

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "reports" / "samples"

#: report.md, and the files that it shows or links.
_ENGINE = (RECORDING, "report.md", "layers.csv", "links.csv", "layers.png")
_RUN = (*_ENGINE, "roofline.png")
_TRIED = (*_RUN, ADVICE, "advice.md")
_ALL = (*_RUN, "layers.svg", "roofline.svg", "report.html", *FILES.values())
_ENGINES = (
    *(RESULTS, "engines.md", "engines.csv", "engines.png", f"chainer/{RECORDING}"),
    *(f"onnxruntime/{file}" for file in _ENGINE),
)
_PROGRAM = (*_RUN, BUDGET)
#: The files of each sample.
KEPT: dict[str, tuple[str, ...]] = {
    "resnet20-cpu-b1": _ALL,
    "resnet20-cpu-b32-train": _TRIED,
    "train-mnist": _PROGRAM,
    "engines-resnet20-cpu-b1": _ENGINES,
}


def is_source(name: str) -> bool:
    """Whether a file contains measurements; other files are made from these."""
    return Path(name).name in (RESULTS, RECORDING, ADVICE, BUDGET)


def is_of_engines(sample: str) -> bool:
    return RESULTS in KEPT[sample]


def is_of_program(sample: str) -> bool:
    """Whether a sample is a run of a program, which is not part of this project."""
    return BUDGET in KEPT[sample]


def command(sample: str) -> list[str]:
    """The command that measured a sample, from ``profile.py`` on."""
    folder = SAMPLES / sample
    if is_of_engines(sample):
        settings = engines.read_run(folder)[0].settings
    else:
        settings = load_run(folder).settings
    words = shlex.split(settings.command)
    return words[words.index(PROG) :]


def make(sample: str, target: Path, names: Collection[str] | None = None) -> set[str]:
    """Make files of a sample from its recordings; return their names relative to ``target``.

    Args:
        sample: Name of the sample.
        target: The folder for the files.
        names: The files to make. Default: all files of the sample.
    """
    folder = SAMPLES / sample
    names = KEPT[sample] if names is None else names
    if is_of_engines(sample):
        run, recordings = engines.read_run(folder)
        written = {target / name for name in engines.write_reports(target, run, recordings)}
        for path in [path for path in written if path.name not in names]:
            path.unlink()
            written.remove(path)
        for engine in run.engines:
            begin = f"{engine.folder}/"
            files = {name.removeprefix(begin) for name in names if name.startswith(begin)}
            if engine.name in recordings and not all(map(is_source, files)):
                make_folder(target / begin)
                summary = summarise(recordings[engine.name])
                written |= set(write_reports(target / begin, summary, only=files))
    else:
        formats, title = (), None
        if not is_of_program(sample):
            args = parser_of("profile").parse_args(command(sample)[1:])
            formats, title = args.formats, ReportTitle(args.title, args.author, args.course)
        summary = with_folder_name(summarise(load_run(folder)), Path("reports", "samples", sample))
        written = set(write_reports(target, summary, formats, title, only=names, run=folder))
    for path in written:
        if path.suffix == ".png":
            reduce_colours(path)
    return {path.relative_to(target).as_posix() for path in written}


def reduce_colours(path: Path) -> None:
    """Reduce a picture to a palette of 256 colours, which needs 40 % of the bytes."""
    picture = Image.open(path).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    picture.save(path, optimize=True)


def measure(sample: str) -> None:
    """Run the command of a sample again, which replaces its files."""
    if is_of_program(sample):
        print("not measured again: reports/samples/README.md has the command")
        return
    words = [sys.executable, *command(sample)]
    subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    if ADVICE in KEPT[sample]:
        words = [sys.executable, PROG, "advise", str(SAMPLES / sample), "--force", "-q"]
        subprocess.run(words, cwd=ROOT, check=True)
    for path in (SAMPLES / sample).rglob(RECORDING):
        compress(path)


def compress(path: Path) -> None:
    """Compress a recording with bzip2: three quarters of the bytes, but much slower."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_BZIP2) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


def remove_others(sample: str) -> None:
    folder = SAMPLES / sample
    for path in folder.rglob("*"):
        if path.is_file() and path.relative_to(folder).as_posix() not in KEPT[sample]:
            path.unlink()


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("samples", nargs="*", metavar="SAMPLE", help="one of reports/samples")
    parser.add_argument("--measure", action="store_true", help="measure them first (minutes)")
    args = parser.parse_args(argv)
    for sample in args.samples:
        if sample not in KEPT:
            parser.error(f"there is no sample {sample}: choose {', '.join(KEPT)}")
    for sample in args.samples or KEPT:
        print(sample, flush=True)
        try:
            if args.measure:
                measure(sample)
            make(sample, SAMPLES / sample)
        except (ProfileError, subprocess.CalledProcessError) as error:
            sys.exit(f"{sample}: {error}")
        missing = [name for name in KEPT[sample] if not (SAMPLES / sample / name).exists()]
        if missing:
            sys.exit(f"{sample}: there is no {', '.join(missing)}")
        remove_others(sample)


if __name__ == "__main__":
    main()
