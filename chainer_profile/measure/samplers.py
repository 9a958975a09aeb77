"""Samples the interpreter's stack by another process: py-spy, or Python's own sampler."""

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

#: Samples a second, without and with a stop of the program for each sample.
RATE = 400
STOPPED_RATE = 200
#: Timeout in seconds for a sampler's start, and for its end.
_TIMEOUT_S = 15.0
#: Advice if a sampler has no permission to read this process.
_PERMISSION_ADVICE = "run as root, or permit ptrace (in a container: --cap-add SYS_PTRACE)"
#: Option of Linux's prctl: a further process that the Yama security module permits to attach.
_PR_SET_PTRACER = 0x59616D61


class Frame(NamedTuple):
    """A frame as a sampler names it; line 0 if the line is unknown."""

    file: str
    function: str
    line: int = 0


Frames = tuple[Frame, ...]


@dataclass(frozen=True)
class Samples:
    """The samples of a sampler."""

    method: str
    samples: dict[Frames, int]  # number of samples by stack, frames outermost first
    has_lines: bool = True  # whether the numbers of lines are right


#: Runs the trials to sample.
Run = Callable[[], None]


def sample_stacks(run: Run, *, stopped: bool) -> Samples:
    """Run trials and sample their stacks.

    Args:
        run: Makes the trials.
        stopped: Let py-spy stop the program for each sample, which short functions need.

    Raises:
        ProfileError: No sampler can attach; the message says what to install or permit.
    """
    # Without the stop, py-spy loses a stack if a function ends while py-spy reads it. This happens
    # to short functions, so the shares of long functions become too large.
    if sys.version_info >= (3, 15):
        return _sample_by_python(run)
    return _sample_by_py_spy(run, stopped)


def find_py_spy() -> str | None:
    return shutil.which("py-spy", path=sysconfig.get_path("scripts")) or shutil.which("py-spy")


def _sample_by_py_spy(run: Run, stopped: bool) -> Samples:
    program = find_py_spy()
    if program is None:
        raise ProfileError("py-spy is not installed (python -m pip install py-spy)")
    how = f"-r {STOPPED_RATE}" if stopped else f"-r {RATE} --nonblocking"
    options = f"record {how} --idle --full-filenames -f raw -p {os.getpid()} -o"
    folded = _run_sampled([program, *options.split()], "Sampling process", run)
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    name = version.stdout.strip() or "py-spy"
    # From Python 3.12 on, py-spy's line numbers are off by one statement.
    has_lines = sys.version_info < (3, 12)
    return Samples(name, _counted(read_py_spy(folded)), has_lines)


def _sample_by_python(run: Run) -> Samples:
    options = f"-m profiling.sampling attach --collapsed -r {RATE} {os.getpid()} -o"
    # This sampler prints nothing when it begins.
    folded = _run_sampled([sys.executable, *options.split()], "", run)
    return Samples("profiling.sampling", _counted(read_collapsed(folded)))


def _counted(stacks: Iterable[tuple[Frames, int]]) -> dict[Frames, int]:
    """Add up the samples of equal stacks."""
    counts: Counter[Frames] = Counter()
    for stack, count in stacks:  # several threads may have the same stack
        counts[stack] += count
    return dict(counts)


def _run_sampled(command: list[str], begins: str, run: Run) -> str:
    """Run the trials while a sampler samples this process; return the sampler's output.

    Args:
        command: The sampler's command line, without the name of its output file.
        begins: Text that the sampler prints when it begins to sample.
        run: Makes the trials.

    Raises:
        ProfileError: The sampler recorded nothing.
    """
    name = Path(command[0]).name if begins else "profiling.sampling"
    # Temporary files have no names, so they vanish even if this process is killed.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as messages, may_attach():
        child = subprocess.Popen(
            killed_with_parent([*command, f"/dev/fd/{out.fileno()}"]),
            stdin=subprocess.DEVNULL,
            stdout=messages,
            stderr=messages,
            pass_fds=(out.fileno(),),
            start_new_session=True,  # Ctrl-C must reach only this process
        )
        try:
            for _ in range(int(_TIMEOUT_S / 0.02)):
                with suppress(subprocess.TimeoutExpired):
                    child.wait(0.02)
                if child.returncode is not None or begins in _content(messages):
                    break
            if child.returncode is None:
                run()
                child.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    child.wait(_TIMEOUT_S)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        stacks = _content(out)
        if stacks:
            return stacks
        last_line = _content(messages).strip().rpartition("\n")[2]
        raise ProfileError(
            f"{name} recorded nothing ({last_line[:80] or 'no message'}): {_PERMISSION_ADVICE}"
        )


def _content(file: IO[bytes]) -> str:
    """Read a file that another process writes, without moving the shared file position."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")


@contextmanager
def may_attach() -> Iterator[None]:
    """Permit child processes to attach to this process, which Linux otherwise may refuse."""
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else lambda *_: None
    prctl(_PR_SET_PTRACER, os.getpid(), 0, 0, 0)  # including all descendants
    try:
        yield
    finally:
        prctl(_PR_SET_PTRACER, 0, 0, 0, 0)


_PY_SPY = re.compile(r"^(.*) \(([^()]*):(\d+)\)$")


def read_py_spy(text: str) -> Iterator[tuple[Frames, int]]:
    """Read the stacks of ``py-spy record -f raw``, without frames that are not Python functions."""
    for stack, count in folded(text):
        named = map(_PY_SPY.match, stack)
        yield tuple(Frame(match[2], match[1], int(match[3])) for match in named if match), count


def read_collapsed(text: str) -> Iterator[tuple[Frames, int]]:
    """Read the stacks of ``profiling.sampling --collapsed``.

    This format has no folders. The modules of this process give the full path of a file.
    """
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
        paths = [path for path in files.get(file, ()) if _is_in_function(path, function, int(line))]
        return Frame(paths[0] if paths else file, function, int(line))

    for (_thread, *stack), count in folded(text):
        yield tuple(frames.setdefault(text, frame(text)) for text in stack), count


def _is_in_function(path: str, function: str, line: int) -> bool:
    """Whether a function of that name begins at a line of a file, or in the 400 lines before."""
    lines = linecache.getlines(path)
    wanted = re.compile(rf"\s*(?:async )?(?:def|class) {re.escape(function.rpartition('.')[2])}\b")
    return line <= len(lines) and any(map(wanted.match, lines[max(0, line - 400) : line]))


def folded(text: str) -> Iterator[tuple[list[str], int]]:
    """Read stacks in the folded format, one a line: frames separated by ``;``, then a count."""
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        if count.isdigit():
            yield stack.split(";"), int(count)
