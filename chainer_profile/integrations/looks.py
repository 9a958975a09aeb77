"""Looks at a program's main thread from another process: where its time goes beside Chainer."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import IO

from chainer_profile.measure import samplers
from chainer_profile.measure.samplers import Frames
from chainer_profile.record.budget import Looked

#: Looks a second.
RATE = 100
#: Seconds that it is waited for what was seen.
_PATIENCE = 3.0
#: Functions that are told.
_TOLD = 12
_MAIN = re.compile(r'^thread \(.*\)(: "?MainThread"?)?$')
_LIBRARIES = tuple(
    path + os.sep
    for path in dict.fromkeys(map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))
)
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
#: Of Chainer: files, and methods in them whose time rows and accounts tell.
_TOLD_OTHERWISE = {
    ("link.py", "__call__"),
    ("function_node.py", "apply"),
    ("function.py", "__call__"),
    ("variable.py", "backward"),
    ("optimizer.py", "update"),
    ("optimizer.py", "update_core"),
}
_CHAINER = f"{os.sep}chainer{os.sep}"


class Looks:
    """Looks at this process between :meth:`start` and :meth:`end`."""

    def __init__(self) -> None:
        self.problem = ""  #: Why nothing can be seen; or empty.
        self._files = ExitStack()
        self._out: IO[bytes] | None = None
        self._pid = 0

    def start(self) -> None:
        program = samplers.find_py_spy()
        if not sys.platform.startswith("linux"):
            self.problem = "py-spy runs without root privileges only on Linux"
            return
        if program is None:
            self.problem = "py-spy is not installed (python -m pip install py-spy)"
            return
        # A file without a name: whatever ends this process leaves none behind.
        out = self._files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        self._files.enter_context(samplers.may_attach())
        # It stops the program for each look: else those at code that goes on would be lost. Lines
        # are not asked for (-F): looking takes an eighth less.
        look = f"record -r {RATE} -t -F --full-filenames -f raw -p {os.getpid()} -o"
        words = [program, *look.split(), f"/dev/fd/{out.fileno()}"]
        try:
            started = subprocess.run(
                # The shell ends at once and leaves the other to init: a program that waits for its
                # children does not meet it.
                ["sh", "-c", '"$0" "$@" >/dev/null 2>&1 & echo $!', *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=(out.fileno(),),
                start_new_session=True,  # Ctrl-C is for the program
                check=True,
            )
            self._out, self._pid = out, int(started.stdout)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self.problem = f"py-spy cannot be started: {error}"

    def end(self, own_ns: int) -> tuple[Looked, ...]:
        """Look no more; the functions beside Chainer that took the most of so much time."""
        out, self._out = self._out, None
        if out is None:
            return ()
        try:
            until = time.monotonic() + _PATIENCE
            while time.monotonic() < until and self._looks_on():
                with suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGINT)  # one that has just begun does not hear it
                time.sleep(0.01)
            content = os.pread(out.fileno(), os.fstat(out.fileno()).st_size, 0)
        except (OSError, ValueError):  # the program closed all files
            return ()
        finally:
            with suppress(OSError):
                self._files.close()
        return told(content.decode(errors="replace"), own_ns)

    def _looks_on(self) -> bool:
        """Whether the process is there, and still py-spy: its number may be another's by now."""
        # By the system's own calls: the program may have taken ``open`` away.
        try:
            file = os.open(f"/proc/{self._pid}/stat", os.O_RDONLY)
        except OSError:
            return False
        try:
            name, _, state = os.read(file, 1000).partition(b")")
        finally:
            os.close(file)
        return b"py-spy" in name and not state.startswith(b" Z")


def told(text: str, own_ns: int) -> tuple[Looked, ...]:
    """The functions of a program that took the most time beside Chainer."""
    counts: Counter[str] = Counter()
    every = 0
    for stack, count in _stacks(text):
        every += count
        name = _name_of(stack)
        if name:
            counts[name] += count
    return tuple(
        Looked(name, own_ns * count // every, count) for name, count in counts.most_common(_TOLD)
    )


def _stacks(text: str) -> Iterator[tuple[Frames, int]]:
    """Of the main thread: stacks, outermost first, and how often each was."""
    for (thread, *stack), count in samplers.folded(text):
        if _MAIN.match(thread):
            yield samplers.py_spy_frames(stack), count


def _name_of(stack: Frames) -> str:
    """What a look counts for: the program's innermost function, and what it calls."""
    # Empty for what rows and accounts tell (functions, links, updates, imports), and for our own.
    if not stack or stack[-1].file.startswith(_OURS):
        return ""
    own: tuple[str, str] | None = None
    called: tuple[str, str] | None = None
    # Whether what runs was called by the profiler, and not by the program in between.
    is_ours = False
    for file, name, _ in stack:
        place = os.path.basename(file), name.rpartition(".")[2]
        if file.startswith("<frozen importlib"):
            return ""
        if _CHAINER in file and place in _TOLD_OTHERWISE:
            return ""
        if file.startswith(_OURS):
            is_ours = True
        elif file.startswith("<"):
            continue
        elif not file.startswith(_LIBRARIES):
            own, called, is_ours = (name, file), None, False
        else:
            is_ours = is_ours and _CHAINER not in file
            called = called or ((name, file) if own is not None else None)
    if own is None or is_ours:
        return ""
    where = f"{own[0]} ({os.path.basename(own[1])})"
    if called is None:
        return where
    # What a Trainer runs has lines of its own.
    is_trainer = os.path.basename(called[1]) == "trainer.py" and called[0].endswith("run")
    return "" if is_trainer else f"{where}: {called[0]}"
