"""Samples the interpreter's stack while trials run, by another process: py-spy or Python's own."""

from __future__ import annotations

import ctypes
import linecache
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from chainer_profile.basics.children import killed_with_parent
from chainer_profile.basics.errors import ProfileError

#: Samples a second; and where the program is stopped for each.
RATE = 400
STOPPED_RATE = 200
#: Seconds that a sampler has to begin, and to end.
_PATIENCE = 15.0
#: Advice where a sampler must not read this process.
_PERMIT = "run as root, or permit ptrace (in a container: --cap-add SYS_PTRACE)"
#: Linux: whom Yama lets attach, beside parents and root.
_PR_SET_PTRACER = 0x59616D61


class Frame(NamedTuple):
    """A frame as a sampler names it; line 0 if the line is unknown."""

    file: str
    function: str
    line: int = 0


Frames = tuple[Frame, ...]


@dataclass(frozen=True)
class Seen:
    method: str
    samples: dict[Frames, int]  # number of samples by stack, frames outermost first
    has_lines: bool = True  # whether the numbers of lines are right


#: Runs trials while something samples them.
Run = Callable[[], None]


def sampled(run: Run, *, stopped: bool) -> Seen:
    """Run trials and sample their stacks; ``stopped`` stops the program for each of py-spy's.

    Raises:
        ProfileError: Nothing can sample this process; says what to install or permit.
    """
    # Where py-spy does not stop the program for each sample, stacks of functions that end while it
    # reads them are lost, which makes what takes longer look larger.
    return _python_sampled(run) if sys.version_info >= (3, 15) else _py_spied(run, stopped)


def find_py_spy() -> str | None:
    return shutil.which("py-spy", path=sysconfig.get_path("scripts")) or shutil.which("py-spy")


def _py_spied(run: Run, stopped: bool) -> Seen:
    program = find_py_spy()
    if program is None:
        raise ProfileError("py-spy is not installed (python -m pip install py-spy)")
    how = f"-r {STOPPED_RATE}" if stopped else f"-r {RATE} --nonblocking"
    options = f"record {how} --idle --full-filenames -f raw -p {os.getpid()} -o"
    folded = _attached([program, *options.split()], "Sampling process", run)
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    name = said.stdout.strip() or "py-spy"
    # From Python 3.12 on py-spy's lines are off by one statement.
    has_lines = sys.version_info < (3, 12)
    return Seen(name, _counted(read_py_spy(folded)), has_lines)


def _python_sampled(run: Run) -> Seen:
    options = f"-m profiling.sampling attach --collapsed -r {RATE} {os.getpid()} -o"
    # It says nothing when it begins.
    folded = _attached([sys.executable, *options.split()], "", run)
    return Seen("profiling.sampling", _counted(read_collapsed(folded)))


def _counted(stacks: Iterable[tuple[Frames, int]]) -> dict[Frames, int]:
    counts: Counter[Frames] = Counter()
    for stack, count in stacks:  # which several threads may have
        counts[stack] += count
    return dict(counts)


def _attached(command: list[str], begins: str, run: Run) -> str:
    """What a sampler writes that is attached to this process, and has begun, while trials run."""
    name = Path(command[0]).name if begins else "profiling.sampling"
    # Files without names: whatever ends this process leaves none behind.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as said, may_attach():
        child = subprocess.Popen(
            killed_with_parent([*command, f"/dev/fd/{out.fileno()}"]),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            pass_fds=(out.fileno(),),
            start_new_session=True,  # Ctrl-C is for us
        )
        try:
            for _ in range(int(_PATIENCE / 0.02)):
                with suppress(subprocess.TimeoutExpired):
                    child.wait(0.02)
                if child.returncode is not None or begins in _content(said):
                    break
            if child.returncode is None:
                run()
                child.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    child.wait(_PATIENCE)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        stacks = _content(out)
        if stacks:
            return stacks
        last = _content(said).strip().rpartition("\n")[2]
        raise ProfileError(f"{name} recorded nothing ({last[:80] or 'no message'}): {_PERMIT}")


def _content(file: IO[bytes]) -> str:
    """What another process wrote to a file; where that writes next stays as it is."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")


@contextmanager
def may_attach() -> Iterator[None]:
    """Let child processes of this one look into it, where Linux asks for that."""
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else lambda *_: None
    prctl(_PR_SET_PTRACER, os.getpid(), 0, 0, 0)  # and those below it
    try:
        yield
    finally:
        prctl(_PR_SET_PTRACER, 0, 0, 0, 0)


_PY_SPY = re.compile(r"^(.*) \(([^()]*):(\d+)\)$")


def read_py_spy(text: str) -> Iterator[tuple[Frames, int]]:
    """The stacks of ``py-spy record -f raw``; of those that are no Python functions nothing."""
    for stack, count in folded(text):
        named = map(_PY_SPY.match, stack)
        yield tuple(Frame(match[2], match[1], int(match[3])) for match in named if match), count


def read_collapsed(text: str) -> Iterator[tuple[Frames, int]]:
    """The stacks of ``profiling.sampling --collapsed``, which names files without their folders."""
    files: dict[str, list[str]] = {}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if path is not None:
            files.setdefault(os.path.basename(path), []).append(path)
    frames: dict[str, Frame] = {}

    def frame(text: str) -> Frame:
        file, _, rest = text.partition(":")
        function, _, line = rest.rpartition(":")
        if not line.isdigit():
            return Frame("~", text)  # <GC>
        paths = [path for path in files.get(file, ()) if _holds(path, function, int(line))]
        return Frame(paths[0] if paths else file, function, int(line))

    for (_thread, *stack), count in folded(text):
        yield tuple(frames.setdefault(text, frame(text)) for text in stack), count


def _holds(path: str, function: str, line: int) -> bool:
    """Whether a line of a file is in a function of that name."""
    lines = linecache.getlines(path)
    wanted = re.compile(rf"\s*(?:async )?(?:def|class) {re.escape(function.rpartition('.')[2])}\b")
    return line <= len(lines) and any(map(wanted.match, lines[max(0, line - 400) : line]))


def folded(text: str) -> Iterator[tuple[list[str], int]]:
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        if count.isdigit():
            yield stack.split(";"), int(count)
