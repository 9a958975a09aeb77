"""Everything that is to be seen on a GPU, one command after the other.

    python benchmarks/gpu_acceptance.py [--gpu 0] [--out DIR] [--only NAME ...] [--quick]

Each case is a ``profile.py`` command with a folder of its own; a folder that holds a run is passed
over, so the whole can be begun again where it ended. The last case is the overhead benchmark. What
failed is listed at the end, and the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_FEW = ["--trials", "100", "--warmups", "25"]
_MANY = ["--trials", "300", "--warmups", "25"]


def cases() -> dict[str, list[str]]:
    """Folder and options of every case."""
    found = {
        "resnet20-gpu-b1": ["--trials", "10000"],
        "resnet20-gpu-b128": ["-b", "128", *_MANY],
        "resnet20-gpu-b128-train": ["-b", "128", "--phase", "train", *_MANY],
        # R2's cases.
        "resnet50-gpu-b32": ["-m", "resnet50", "-b", "32", *_FEW],
        "resnet50-gpu-b32-backward": [
            *("-m", "resnet50", "-b", "32", "--phase", "forward-backward", *_FEW)
        ],
        "resnet50-bottleneck-gpu-b32": ["-m", "resnet50-bottleneck", "-b", "32", *_FEW],
        "resnet50-bottleneck-gpu-b32-backward": [
            *("-m", "resnet50-bottleneck", "-b", "32", "--phase", "forward-backward", *_FEW)
        ],
        # R5's case.
        "se-resnet9-fixup-gpu-b128-fp16": [
            *("-m", "se-resnet9-fixup", "-b", "128", "--dtype", "float16", *_MANY)
        ],
    }
    # R3's networks and inputs.
    for name in ("resnet18", "resnet34", "resnet50", "resnet101"):
        for label, size in (("cityscapes", "1024x2048"), ("voc", "500x334")):
            found[f"{name}-gpu-{label}"] = ["-m", name, "--input-size", size, *_MANY]
    return found


def run(command: list[str]) -> tuple[int, float]:
    """Exit code and seconds of a command, which is shown first."""
    print("$ python", *command, flush=True)
    begin = time.perf_counter()
    code = subprocess.run([sys.executable, *command], cwd=ROOT).returncode
    return code, time.perf_counter() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ROOT / "reports" / "samples")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="these cases alone")
    parser.add_argument("--quick", action="store_true", help="ten trials of each, to see it run")
    args = parser.parse_args()
    results = []
    for name, options in cases().items():
        folder = args.out / name
        if args.only is not None and name not in args.only:
            continue
        if (folder / "recording.npz").exists():
            results.append((name, 0, 0.0))
            continue
        few = ["--trials", "10", "--warmups", "3"] if args.quick else []
        command = ["profile.py", "--gpu", str(args.gpu), *options, *few, "--out", str(folder)]
        results.append((name, *run([*command, "--limit", "5"])))
    if args.only is None:
        rounds = ["--rounds", "3"] if args.quick else ["--rounds", "100"]
        command = ["benchmarks/overhead.py", "--gpu", str(args.gpu), *rounds]
        results.append(("overhead", *run(command)))
    for name, code, seconds in results:
        print(f"{name:40} {'done' if code == 0 else f'FAILED ({code})':12} {seconds:8.1f} s")
    return int(any(code for _, code, _ in results))


if __name__ == "__main__":
    sys.exit(main())
