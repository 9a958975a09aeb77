"""Run a program as Python itself would.

The program's modules replace modules of the same names that the profiler has loaded.
"""

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
#: Kinds of programs: a file, a module (``python -m``), or text (``python -c``).
FILE, MODULE, TEXT = "file", "module", "text"
#: Code for the interpreters that ``multiprocessing`` starts for the program.
_OLD_NAMES_IN_CHILD = (
    "from chainer_profile.integrations.numpy_changes import OldNames; OldNames().__enter__()"
)


@dataclass(frozen=True)
class Script:
    """A program and its arguments."""

    #: Path of a file, a folder or an archive, ``-`` for the standard input, the name of a module,
    #: or the program's text.
    name: str
    args: tuple[str, ...] = ()
    kind: str = FILE

    @property
    def stem(self) -> str:
        """Printable name that can be used as the name of a folder."""
        path = Path(self.name)
        if self.kind == TEXT or self.name == "-":
            name = "text" if self.kind == TEXT else "stdin"
        elif self.kind == MODULE:
            name = self.name.replace(".", "-")
        elif path.name.strip("."):
            name = path.stem
        else:  # ``.`` or ``..``
            name = Path(os.path.realpath(path)).name
        chars = (c if c.isprintable() and c not in "/\\" else "_" for c in name)
        return "".join(chars).strip(". ") or "program"

    @property
    def words(self) -> tuple[str, ...]:
        """Arguments that would run the program with ``python``."""
        option = {FILE: (), MODULE: ("-m",), TEXT: ("-c",)}[self.kind]
        return (*option, self.name, *self.args)

    def prepare(self) -> Callable[[], None]:
        """Set ``sys.argv`` and ``sys.path`` as Python would, and return a function that runs it.

        Raises:
            UsageError: The file cannot be read.
        """
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


# The program's ``__main__`` stays in ``sys.modules`` at its end, because its ``atexit`` functions,
# threads and child processes need it. runpy's public functions would remove it.


def _new_main(**names: object) -> dict[str, Any]:
    """Make a new module ``__main__``, and return its namespace."""
    module = sys.modules["__main__"] = ModuleType("__main__")
    vars(module).update(__builtins__=builtins, **names)
    return vars(module)


def _run_source(source: str | bytes, path: str, **names: object) -> None:
    exec(compile(source, path, "exec", dont_inherit=True), _new_main(**names))


def _run_text(text: str) -> None:
    if sys.version_info >= (3, 13):  # tracebacks of ``python -c`` show lines since then
        linecache.cache["<string>"] = (len(text), None, text.splitlines(True), "<string>")
    _run_source(text, "<string>")


def _run_module(name: str, *, alter_argv: bool) -> None:
    _new_main()
    untyped: Any = runpy
    untyped._run_module_as_main(name, alter_argv)  # ``python -m`` calls this, too


@dataclass
class Outcome:
    """The end of a program: an exception, or None after its last line."""

    error: BaseException | None = None
    note: str = ""  #: Advice on the old names of NumPy that it used.

    def __str__(self) -> str:
        if isinstance(self.error, SystemExit):
            return f"exit code {self.exit_code}"
        if isinstance(self.error, KeyboardInterrupt):
            return "interrupted"
        return "complete" if self.error is None else one_line(self.error)

    @property
    def exit_code(self) -> int:
        """Exit code that Python would end with."""
        if not isinstance(self.error, SystemExit):
            return int(self.error is not None)
        code = self.error.code
        return code if isinstance(code, int) else int(code is not None)

    def print_error(self) -> None:
        """Print the exception or exit message as Python would."""
        error = self.error
        if isinstance(error, SystemExit):
            if not isinstance(error.code, int | None):
                _print(error.code)
        elif error is not None:
            _remove_our_frames(error)
            try:
                sys.excepthook(type(error), error, error.__traceback__)
            except BaseException:  # the program's own hook fails
                sys.__excepthook__(type(error), error, error.__traceback__)

    def print_advice(self) -> None:
        """Print advice on changes in NumPy that affect the program or ended it."""
        with suppress(Exception):  # str() of the program's exception may fail
            for note in filter(None, (self.note, advice(self.error))):
                _print(f"{PROG}: {note}")

    def exit(self) -> int:
        """Return the exit code, or raise the program's interrupt again: Python handles it."""
        if type(self.error) is KeyboardInterrupt:
            sys.excepthook = lambda *_: None  # its traceback has been printed
            raise KeyboardInterrupt
        return self.exit_code


def _print(message: object) -> None:
    """Print a line to the standard error, if that is possible."""
    with suppress(Exception):  # the program may have replaced ``sys.stderr``
        sys.stderr.write(f"{message}\n")
        sys.stderr.flush()


def run(script: Script) -> Outcome:
    """Run a program, print its exception as Python would, and return how it ended."""
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


def _remove_our_frames(error: BaseException) -> None:
    """Remove this package's frames from all tracebacks that Python prints for an exception."""
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        printed = pending.pop()
        if printed is not None and id(printed) not in seen:
            seen.add(id(printed))
            printed.__traceback__ = without_our_frames(printed.__traceback__)
            nested = getattr(printed, "exceptions", ())
            pending += [printed.__cause__, printed.__context__, *nested]


def without_our_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Copy a traceback without the frames of this package."""
    frames = []
    ours = False
    while traceback is not None:
        name = str(traceback.tb_frame.f_globals.get("__name__", ""))
        # Frames of contextlib that ours call run our context managers.
        ours = name.partition(".")[0] == _PACKAGE or (ours and name == "contextlib")
        if not ours:
            frames.append((traceback.tb_frame, traceback.tb_lasti, traceback.tb_lineno))
        traceback = traceback.tb_next
    for frame, instruction, line in reversed(frames):
        traceback = TracebackType(traceback, frame, instruction, line)
    return traceback


#: Modules that were removed from ``sys.modules``. Modules that had imported them still use them.
_unloaded: dict[str, ModuleType] = {}


def unload_shadowed_modules(folder: str) -> None:
    """Unload modules if a folder has modules of the same names, which the program would import."""
    loaded = {name.partition(".")[0] for name in sys.modules} - {_PACKAGE, "__main__"}
    names = {name for name in loaded if _is_shadowed(name, folder)}
    if names:
        names -= _loaded_by_python()
    for name in [name for name in sys.modules if name.partition(".")[0] in names]:
        _unloaded[name] = sys.modules.pop(name)


@contextmanager
def shadowed_modules_loaded() -> Iterator[None]:
    """Load the unloaded modules again within the context, because libraries may import them."""
    programs = {name: sys.modules[name] for name in _unloaded if name in sys.modules}
    sys.modules.update(_unloaded)
    try:
        yield
    finally:
        for name in _unloaded:
            del sys.modules[name]
        sys.modules.update(programs)


def _is_shadowed(name: str, folder: str) -> bool:
    """Whether a program in this folder would import a file of its own instead of this module."""
    if machinery.BuiltinImporter.find_spec(name) or machinery.FrozenImporter.find_spec(name):
        return False
    found = machinery.PathFinder.find_spec(name, [folder])
    if found is None or found.loader is None:  # a folder without __init__.py comes last
        return False
    loaded = getattr(sys.modules.get(name), "__spec__", None)
    return loaded is None or loaded.origin != found.origin


def _loaded_by_python() -> set[str]:
    """Names of the modules that Python has loaded before a program begins."""
    code = "import sys; print(*sys.modules)"
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    done = subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True)
    return set(done.stdout.split())
