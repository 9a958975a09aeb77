"""Commands on a terminal: a pseudo-terminal of a given width, with a process of its own."""

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
import traceback

#: What a terminal does not show: colours and other codes.
CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-Z\\^_])")
#: Variables that change what is printed.
_OURS = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TERM", "COLORTERM")


class Terminal(io.StringIO):
    """Stands in for a stream that is a terminal; keeps what is written."""

    def isatty(self):
        return True


def on_terminal(command, width=80, environment=None, seconds=60):
    """What a command writes to a terminal, standard error included, with its codes.

    Args:
        command: What to run, in a fork of this process.
        width: Columns of the terminal.
        environment: Variables in place of ``TERM=xterm-256color``.
        seconds: Time after which the process is killed.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    process = os.fork()
    if not process:
        try:
            os.close(ours)
            os.setsid()
            for number in (0, 1, 2):
                os.dup2(theirs, number)
            sys.stdin = os.fdopen(0, closefd=False)
            sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)  # type: ignore[misc]
            sys.stderr = sys.__stderr__ = os.fdopen(2, "w", closefd=False)  # type: ignore[misc]
            for name in _OURS:
                os.environ.pop(name, None)
            os.environ.update({"TERM": "xterm-256color"} | dict(environment or {}))
            command()
        except SystemExit:  # --help
            pass
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            # Without what pytest would do at the end.
            os._exit(0)
    os.close(theirs)
    written = b""
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            if not select.select([ours], [], [], 0.1)[0]:
                continue
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux's way to say that the other side is closed
                break
            if not part:
                break
            written += part
        else:
            os.kill(process, signal.SIGKILL)
    finally:
        os.close(ours)
        os.waitpid(process, 0)
    return written.decode(errors="replace").replace("\r\n", "\n")


def plain(text):
    """The text without codes."""
    return CODES.sub("", text)
