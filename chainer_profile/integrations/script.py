"""Runs a program as Python itself would, its own modules before those that we loaded."""

from __future__ import annotations

import builtins
import linecache
import os
import pkgutil
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import machinery
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from chainer_profile.basics.errors import UsageError, one_line
from chainer_profile.basics.words import PROG
from chainer_profile.compat import install_in_children
from chainer_profile.integrations.numpy_changes import OldNames, advice

_PACKAGE = __name__.partition(".")[0]
#: What names a program: its file, its module (``python -m``), or its own text (``python -c``).
FILE, MODULE, TEXT = "file", "module", "text"
#: What a child process runs that ``multiprocessing`` starts anew for the program.
_OLD_NAMES_IN_CHILD = (
    "from chainer_profile.integrations.numpy_changes import OldNames; OldNames().__enter__()"
)


@dataclass(frozen=True)
class Script:
    #: Path of a file, a folder or an archive, or ``-`` for the standard input; or the name of a
    #: module, or the program's own text.
    name: str
    args: tuple[str, ...] = ()
    kind: str = FILE

    @property
    def stem(self) -> str:
        """Its name for a folder: a single printable name."""
        path = Path(self.name)
        if self.kind == TEXT or self.name == "-":
            name = "text" if self.kind == TEXT else "stdin"
        elif self.kind == MODULE:
            name = self.name.replace(".", "-")
        elif path.name.strip("."):
            name = path.stem
        else:  # ``.`` and ``..`` have a name elsewhere
            name = Path(os.path.realpath(path)).name
        signs = (c if c.isprintable() and c not in "/\\" else "_" for c in name)
        return "".join(signs).strip(". ") or "program"

    @property
    def words(self) -> tuple[str, ...]:
        """How it was called."""
        option = {FILE: (), MODULE: ("-m",), TEXT: ("-c",)}[self.kind]
        return (*option, self.name, *self.args)

    def prepare(self) -> Callable[[], None]:
        """What runs it, once ``sys.argv`` and ``sys.path`` are as the program expects them."""
        sys.argv[:] = ["-c" if self.kind == TEXT else self.name, *self.args]
        if self.kind == MODULE:
            sys.path[0] = os.getcwd()
            return partial(_run_module, self.name, alter_argv=True)
        if self.kind == TEXT:
            sys.path[0] = ""
            return partial(_run_text, self.name)
        if self.name == "-":
            sys.path[0] = ""
            source = sys.stdin.buffer.read()
            return partial(_run_source, source, "<stdin>", __file__="<stdin>")
        path = os.path.join(os.getcwd(), self.name)
        if pkgutil.get_importer(path) is not None:  # a folder or an archive
            sys.path[0] = path
            return partial(_run_module, "__main__", alter_argv=False)
        sys.path[0] = os.path.dirname(os.path.realpath(path))
        loader = machinery.SourceFileLoader("__main__", path)
        try:
            source = loader.get_data(path)
        except OSError as error:
            raise UsageError(f"{self.name}: cannot be read ({error.strerror})") from None
        return partial(_run_source, source, path, __file__=path, __loader__=loader)


# A program's ``__main__`` stays in ``sys.modules`` when its last line has run: its ``atexit``
# functions, threads and child processes need it. runpy's public functions take it away.


def _new_main(**names: object) -> dict[str, Any]:
    """The names of a new module ``__main__``."""
    module = sys.modules["__main__"] = ModuleType("__main__")
    vars(module).update(__builtins__=builtins, **names)
    return vars(module)


def _run_source(source: str | bytes, path: str, **names: object) -> None:
    exec(compile(source, path, "exec", dont_inherit=True), _new_main(**names))


def _run_text(text: str) -> None:
    if sys.version_info >= (3, 13):  # its tracebacks show the lines
        linecache.cache["<string>"] = (len(text), None, text.splitlines(True), "<string>")
    _run_source(text, "<string>")


def _run_module(name: str, *, alter_argv: bool) -> None:
    _new_main()
    as_python: Any = runpy
    as_python._run_module_as_main(name, alter_argv)  # what Python itself calls


@dataclass
class Outcome:
    """How a program ended: by an error, or by its last line."""

    error: BaseException | None = None
    note: str = ""  #: What ``run`` changed for it.

    def __str__(self) -> str:
        if isinstance(self.error, SystemExit):
            return f"exit code {self.exit_code}"
        if isinstance(self.error, KeyboardInterrupt):
            return "interrupted"
        return "complete" if self.error is None else one_line(self.error)

    @property
    def exit_code(self) -> int:
        """The exit code that Python would give it."""
        if not isinstance(self.error, SystemExit):
            return int(self.error is not None)
        code = self.error.code
        return code if isinstance(code, int) else int(code is not None)

    def print_error(self) -> None:
        """Print what Python prints of such an end."""
        error = self.error
        if isinstance(error, SystemExit):
            if not isinstance(error.code, int | None):
                _say(error.code)
        elif error is not None:
            _leave_out_our_frames(error)
            try:
                sys.excepthook(type(error), error, error.__traceback__)
            except BaseException:  # the program's own hook fails
                sys.__excepthook__(type(error), error, error.__traceback__)

    def print_advice(self) -> None:
        """Say what NumPy changed and what to write: what the program used, and what ended it."""
        with suppress(Exception):  # an exception of the program's may have no text
            for note in filter(None, (self.note, advice(self.error))):
                _say(f"{PROG}: {note}")

    def exit(self) -> int:
        """The exit code; an interrupt is raised again, so that Python ends in its own way."""
        if type(self.error) is KeyboardInterrupt:
            sys.excepthook = lambda *_: None  # it was printed before
            raise KeyboardInterrupt
        return self.exit_code


def _say(message: object) -> None:
    with suppress(Exception):  # the program may have replaced ``sys.stderr``
        sys.stderr.write(f"{message}\n")
        sys.stderr.flush()


def run(script: Script) -> Outcome:
    """Run a program, print what Python would print of its end, and return how it ended."""
    install_in_children(_OLD_NAMES_IN_CHILD)
    program = script.prepare()
    unload_shadowed_modules(sys.path[0])
    outcome = Outcome()
    with OldNames() as old_names:
        try:
            program()
        except BaseException as error:
            outcome.error = error
        outcome.print_error()
    outcome.note = old_names.note
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    return outcome


def _leave_out_our_frames(error: BaseException) -> None:
    """Remove our frames from the tracebacks of an exception and of those that caused it."""
    left: list[BaseException | None] = [error]
    seen: set[int] = set()
    while left:
        shown = left.pop()
        if shown is not None and id(shown) not in seen:
            seen.add(id(shown))
            shown.__traceback__ = without_our_frames(shown.__traceback__)
            left += [shown.__cause__, shown.__context__, *getattr(shown, "exceptions", ())]


def without_our_frames(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without our frames."""
    frames = []
    ours = False
    while traceback is not None:
        name = str(traceback.tb_frame.f_globals.get("__name__", ""))
        # The standard library's code enters and leaves our context managers.
        ours = name.partition(".")[0] == _PACKAGE or (ours and name == "contextlib")
        if not ours:
            frames.append((traceback.tb_frame, traceback.tb_lasti, traceback.tb_lineno))
        traceback = traceback.tb_next
    for frame, at, line in reversed(frames):
        traceback = TracebackType(traceback, frame, at, line)
    return traceback


#: Modules that gave way; modules that imported them before still use them.
_gone: dict[str, ModuleType] = {}


def unload_shadowed_modules(folder: str) -> None:
    """Forget loaded modules if a folder has others of their names, which come first in Python."""
    loaded = {name.partition(".")[0] for name in sys.modules} - {_PACKAGE, "__main__"}
    names = {name for name in loaded if _is_another(name, folder)}
    if names:
        names -= _loaded_by_python()
    for name in [name for name in sys.modules if name.partition(".")[0] in names]:
        _gone[name] = sys.modules.pop(name)


@contextmanager
def shadowed_modules_loaded() -> Iterator[None]:
    """Within this, imports find the modules that gave way: libraries import some of them late."""
    own = {name: sys.modules[name] for name in _gone if name in sys.modules}
    sys.modules.update(_gone)
    try:
        yield
    finally:
        for name in _gone:
            del sys.modules[name]
        sys.modules.update(own)


def _is_another(name: str, folder: str) -> bool:
    if machinery.BuiltinImporter.find_spec(name) or machinery.FrozenImporter.find_spec(name):
        return False
    beside = machinery.PathFinder.find_spec(name, [folder])
    if beside is None or beside.loader is None:  # a folder without __init__.py comes last
        return False
    loaded = getattr(sys.modules.get(name), "__spec__", None)
    return loaded is None or loaded.origin != beside.origin


def _loaded_by_python() -> set[str]:
    """Modules that a fresh interpreter has loaded before its program begins."""
    code = "import sys; print(*sys.modules)"
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    ran = subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True)
    return set(ran.stdout.split())
