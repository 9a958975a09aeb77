"""Run all checks that need a GPU, one after the other.

    python -m benchmarks.gpu_acceptance [--gpu 0] [--out DIR] [--only NAME ...]

``truth`` plants kernels of known length (``truth_gpu.py``). ``overhead`` measures the overhead of
profiling (``overhead.py --gpu 0``). Both print their figures. Each other case is a ``profile.py``
command with a separate folder. Cases with a recording are skipped, so an interrupted run can be
continued. The last line has the cases that failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_MANY = ["--trials", "300", "--warmups", "25"]
_FEW = ["--trials", "100", "--warmups", "25"]
CASES = {
    "truth": ["-m", "benchmarks.truth_gpu"],
    "overhead": ["-m", "benchmarks.overhead", "--rounds", "100"],
    "resnet20-gpu-b1": ["profile.py", "--trials", "10000"],
    "resnet20-gpu-b128": ["profile.py", "-b", "128", *_MANY],
    "resnet20-gpu-b128-train": ["profile.py", "-b", "128", "--phase", "train", *_MANY],
    # R5's case.
    "se-resnet9-fixup-gpu-b128-fp16": [
        *("profile.py", "-m", "se-resnet9-fixup", "-b", "128", "--dtype", "float16", *_MANY)
    ],
}
# R2's cases.
for _name in ("resnet50", "resnet50-bottleneck"):
    for _end, _phase in (("", "forward"), ("-backward", "forward-backward")):
        CASES[f"{_name}-gpu-b32{_end}"] = [
            *("profile.py", "-m", _name, "-b", "32", "--phase", _phase, *_FEW)
        ]
# R3's networks and inputs.
for _name in ("resnet18", "resnet34", "resnet50", "resnet101"):
    for _label, _size in (("cityscapes", "1024x2048"), ("voc", "500x334")):
        CASES[f"{_name}-gpu-{_label}"] = ["profile.py", "-m", _name, "--input-shape", _size, *_MANY]
#: Ends with the reason if the GPU cannot be used; a process of its own, so that no context remains.
_PROBE = """
import sys
from chainer_profile.basics.errors import ProfileError
from chainer_profile.measure.devices import use_gpu
try:
    use_gpu(int(sys.argv[1]))
except ProfileError as error:
    sys.exit(f"gpu_acceptance: error: {error}")
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--out", type=Path, default=ROOT / "reports" / "samples")
    parser.add_argument("--only", nargs="*", metavar="NAME", choices=CASES, default=CASES)
    args = parser.parse_args()
    if code := subprocess.run([sys.executable, "-c", _PROBE, args.gpu], cwd=ROOT).returncode:
        return code
    failed = []
    for name in args.only:
        folder = args.out.resolve() / name
        if (folder / "recording.npz").exists():
            continue
        print(f"== {name}", flush=True)
        command = [sys.executable, *CASES[name], "--gpu", args.gpu]
        command += ["--limit", "5", "--out", str(folder)] if "profile.py" in command else []
        if subprocess.run(command, cwd=ROOT).returncode:
            failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "all cases passed")
    return len(failed) > 0


if __name__ == "__main__":
    sys.exit(main())
