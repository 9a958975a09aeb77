"""Everything that is to be seen on a GPU, one command after the other.

    python benchmarks/gpu_acceptance.py [--gpu 0] [--out DIR] [--only NAME ...] [--quick]
                                        [--seconds S]

``truth`` plants kernels of a known length (``truth_gpu.py``), ``overhead`` is the table of what
profiling costs (``overhead.py --gpu 0``); what they say is kept in ``truth.txt`` and
``overhead.txt``, or in ``truth.failed.txt`` and so on. Each other case is a ``profile.py`` command
with a folder of its own. What has a result is passed over, so the whole can be begun again where it
ended: with ``--seconds`` it begins nothing after so long. What failed is listed at the end, and the
exit code is 1 then; it is 3 where something is left to do.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

_FEW = ["--trials", "100", "--warmups", "25"]
_MANY = ["--trials", "300", "--warmups", "25"]
#: What says its figures on the terminal.
_PRINTED = {
    "truth": ["benchmarks/truth_gpu.py"],
    "overhead": ["benchmarks/overhead.py"],
}
_QUICK = {"truth": ["--trials", "10"], "overhead": ["--rounds", "3"]}
_FULL = {"truth": ["--trials", "100"], "overhead": ["--rounds", "100"]}
LEFT = 3


def cases() -> dict[str, list[str]]:
    found = {
        "resnet20-gpu-b1": ["--trials", "10000"],
        "resnet20-gpu-b128": ["-b", "128", *_MANY],
        "resnet20-gpu-b128-train": ["-b", "128", "--phase", "train", *_MANY],
        # R5's case.
        "se-resnet9-fixup-gpu-b128-fp16": [
            *("-m", "se-resnet9-fixup", "-b", "128", "--dtype", "float16", *_MANY)
        ],
    }
    # R2's cases.
    for name in ("resnet50", "resnet50-bottleneck"):
        asked = ["-m", name, "-b", "32", *_FEW]
        found[f"{name}-gpu-b32"] = asked
        found[f"{name}-gpu-b32-backward"] = [*asked, "--phase", "forward-backward"]
    # R3's networks and inputs.
    for name in ("resnet18", "resnet34", "resnet50", "resnet101"):
        for label, size in (("cityscapes", "1024x2048"), ("voc", "500x334")):
            found[f"{name}-gpu-{label}"] = ["-m", name, "--input-size", size, *_MANY]
    return found


def printed(command: list[str], file: Path) -> int:
    """Exit code of a command, whose words are shown and kept in a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    said = []
    with subprocess.Popen(
        [sys.executable, "-u", *command], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            said.append(line)
    file = file.with_suffix(".failed.txt" if process.returncode else ".txt")
    file.write_text("".join(said))
    return process.returncode


def run(name: str, out: Path, gpu: int, quick: bool) -> int:
    on_gpu = ["--gpu", str(gpu)]
    if name in _PRINTED:
        how = (_QUICK if quick else _FULL)[name]
        return printed([*_PRINTED[name], *on_gpu, *how], out / f"{name}.txt")
    few = ["--trials", "10", "--warmups", "3"] if quick else []
    command = ["profile.py", *on_gpu, *cases()[name], *few, "--out", str(out / name)]
    return subprocess.run([sys.executable, *command, "--limit", "5"], cwd=ROOT).returncode


def is_done(name: str, out: Path) -> bool:
    kept = f"{name}.txt" if name in _PRINTED else f"{name}/recording.npz"
    return (out / kept).exists()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ROOT / "reports" / "samples")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="these cases alone")
    parser.add_argument("--quick", action="store_true", help="ten trials of each, to see it run")
    parser.add_argument("--seconds", type=float, help="begin no case after so long")
    args = parser.parse_args()
    names = [*_PRINTED, *cases()]
    unknown = set(args.only or ()) - set(names)
    if unknown:
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    names = [name for name in names if args.only is None or name in args.only]
    begin, results = time.perf_counter(), {}
    for name in names:
        began = time.perf_counter()
        if is_done(name, args.out):
            said = "done before"
        elif args.seconds is not None and began - begin >= args.seconds:
            said = "left"
        else:
            print(f"== {name}", flush=True)
            code = run(name, args.out.resolve(), args.gpu, args.quick)
            said = f"FAILED ({code})" if code else "done"
        results[name] = said, time.perf_counter() - began
    for name, (said, seconds) in results.items():
        print(f"{name:40} {said:28} {seconds:8.1f} s")
    if any(said.startswith("FAILED") for said, _ in results.values()):
        return 1
    return LEFT if any(said == "left" for said, _ in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
