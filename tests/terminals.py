"""Commands on a terminal: a pseudo-terminal of a given width, with a process of its own."""

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

#: What a terminal does not show: colours and other codes.
CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-Z\\^_])")
#: Variables that change what is printed.
_OURS = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TERM", "COLORTERM")


class Terminal(io.StringIO):
    """Stands in for a stream that is a terminal; keeps what is written."""

    def isatty(self):
        return True


def on_terminal(command, width=80, environment=None):
    """What a command writes to a terminal, standard error included, with its codes.

    Args:
        command: What to run, in a fork of this process.
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
            # Without what pytest would do at the end.
            os._exit(0)
    written = b""
    with suppress(OSError):  # Linux's way to say that the other side is closed
        while part := os.read(ours, 65536):
            written += part
    os.close(ours)
    os.waitpid(process, 0)
    return written.decode(errors="replace").replace("\r\n", "\n")


def plain(text):
    """The text without codes."""
    return CODES.sub("", text)
