"""Run commands on a pseudo-terminal of a given width, in a fork of this process."""

import fcntl
import io
import os
import pty
import re
import signal
import struct
import sys
import termios
import traceback
from contextlib import suppress

from tests import HANGS_S

#: Escape sequences, such as colours.
CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-Z\\^_])")
#: Environment variables that affect the output.
_OURS = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TERM", "COLORTERM")


class Terminal(io.StringIO):
    """A fake terminal that stores its output."""

    def isatty(self):
        return True


def run_on_terminal(command, width=80, environment=None):
    """Run a command on a terminal; return its output and errors with escape sequences.

    Args:
        command: Function to run in a fork of this process.
        width: Columns of the terminal.
        environment: Variables in place of ``TERM=xterm-256color``.
    """
    process, ours = pty.fork()
    if not process:
        try:
            signal.alarm(HANGS_S)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
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
            # Skip the exit handlers of pytest.
            os._exit(0)
    written = b""
    with suppress(OSError):  # Linux raises it at the end of the output
        while data := os.read(ours, 65536):
            written += data
    os.close(ours)
    os.waitpid(process, 0)
    return written.decode(errors="replace").replace("\r\n", "\n")


def plain(text):
    """Text without escape sequences."""
    return CODES.sub("", text)
