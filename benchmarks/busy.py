"""What busy cores do to a run: ResNet20 on the machine as it is, and beside other programs.

    python benchmarks/busy.py               # the probe chooses the BLAS threads
    python benchmarks/busy.py --threads 2   # as many as there are cores: what it keeps you from

Beside the second run, as many programs as there are cores run an empty loop. Options are those of a
run. Prints of both runs how long the command took, the BLAS threads, and the hottest layers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from chainer_profile import Recording, summarise  # noqa: E402
from chainer_profile.basics.parsing import usable_cores  # noqa: E402
from chainer_profile.basics.units import format_duration, plural  # noqa: E402

_HOTTEST = 10


def main() -> None:
    cores = usable_cores() or 1
    with tempfile.TemporaryDirectory() as folder:
        quiet = run(Path(folder, "quiet"), 0)
        busy = run(Path(folder, "busy"), cores)
    print(f"of the {_HOTTEST} hottest layers {len(quiet & busy)} are the same")


def run(folder: Path, programs: int) -> set[str]:
    """Run the README's first command beside so many busy programs; returns its hottest layers."""
    command = [sys.executable, str(ROOT / "profile.py"), "--trials", "200", *sys.argv[1:]]
    spin = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(spin) for _ in range(programs)]
    load = os.getloadavg()[0]
    begin = time.monotonic()
    try:
        subprocess.run([*command, "--out", str(folder)], stdout=subprocess.DEVNULL, check=True)
    finally:
        seconds = time.monotonic() - begin
        for other in others:
            other.kill()
            other.wait()
    recording = Recording.load(folder / "recording.npz")
    summary = summarise(recording)
    totals, threads = summary.totals, recording.environment.blas[0].threads
    print(f"beside {plural(programs, 'busy program')} (load before it {load:.1f}): {seconds:.0f} s")
    print(
        f"  {plural(threads, 'BLAS thread')}, {recording.n_trials} trials, clean trial "
        f"{format_duration(totals.clean.mean_s if totals.clean else None)}"
    )
    hottest = summary.layers.nlargest(_HOTTEST, "mean_s")
    for row in hottest.itertuples():
        print(f"  {row.label:28} {row.path:16} {row.mean_s * 1e3:8.3f} ms {row.share:7.1%}")
    return set(hottest["label"])


if __name__ == "__main__":
    main()
