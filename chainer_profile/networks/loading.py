"""Finds a network by name or in the user's code, and builds it."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.errors import ProfileError, UsageError, one_line
from chainer_profile.basics.words import TYPED

if TYPE_CHECKING:
    import chainer

_OWN_MODEL = "package.module:Callable or path/to/file.py:Callable"


@dataclass(frozen=True)
class ModelSource:
    """A network that can be built, from a registry or from the user's code.

    Unknown values are None.
    """

    #: Name for folders and reports, of letters, digits, ``.``, ``_`` and ``-`` only.
    name: str
    description: str
    build: Callable[[], chainer.Link]
    input_shape: tuple[int, ...] | None = None  #: Shape of an input, without the batch.
    mean: tuple[float, ...] | None = None  #: Mean of each channel of images from 0 to 1.
    std: tuple[float, ...] | None = None  #: Standard deviation of each channel.
    classes: int | None = None


def find_model(
    name: str,
    registry: Mapping[str, Any],
    classes: int | None = None,
    arguments: str = "",
) -> ModelSource:
    """Find a network by its name, without building it.

    Args:
        name: A name in the registry, or ``file.py:Callable`` or ``module:Callable``.
        registry: The networks that come with the profiler, by name.
        classes: Number of outputs of a network in the registry.
        arguments: Arguments for the user's callable, such as ``100, n_out=10``.
    """
    if name in registry:
        entry = registry[name]
        if arguments:
            raise UsageError(f"--model-args is for your own network, not for {name}")
        if classes is not None and entry.classes is None:
            raise UsageError(f"{name} returns feature maps, so it has no number of classes")
        return ModelSource(
            name=entry.name,
            description=entry.description,
            build=entry.build if classes is None else partial(entry.build, classes=classes),
            input_shape=entry.input_shape,
            mean=entry.mean,
            std=entry.std,
            classes=classes or entry.classes,
        )
    if classes is not None:
        raise UsageError(
            f"model {name!r}: only networks of {TYPED} --list-models take a number of classes"
        )
    if ":" not in name and name.endswith(".py"):
        raise UsageError(f"model {name!r}: name a network of the file, as in {name}:Callable")
    if ":" not in name:
        nearest = difflib.get_close_matches(name.lower(), registry, n=3, cutoff=0.5)
        hint = f"did you mean {_or(nearest)}?" if nearest else f"known are {', '.join(registry)}."
        raise UsageError(f"unknown model {name!r}: {hint} Your own network is {_OWN_MODEL}.")
    return _find_own_model(name, *_literals(arguments))


def build_model(source: ModelSource, seed: int) -> chainer.Link:
    """Build a network on the CPU. The same seed gives the same initial weights.

    The seed has no effect on a network that the user's module built, or on parameters that the
    first call initialises.
    """
    import chainer  # noqa: F401  (its import may draw random numbers, so it precedes the seed)
    import numpy

    if not 0 <= seed < 2**32:
        raise UsageError(f"the seed must be from 0 to {2**32 - 1}, not {seed}")
    numpy.random.seed(seed)  # noqa: NPY002  (the generator that Chainer's initializers use)
    return source.build()


def _literals(text: str) -> tuple[list[Any], dict[str, Any]]:
    """Parse the literal arguments of a call, such as ``100, n_out=10``."""
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        assert isinstance(call, ast.Call)
        assert all(keyword.arg for keyword in call.keywords)
        assert ast.unparse(call.func) == "f"
        named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        assert len(named) == len(call.keywords)  # no name is given twice
        return [ast.literal_eval(value) for value in call.args], named
    except (SyntaxError, ValueError, AssertionError):
        raise UsageError(
            f"--model-args {text!r}: give literals such as numbers and strings, as in 100, n_out=10"
        ) from None


def import_own_code(name: str, option: str, form: str) -> tuple[ModuleType, Path]:
    """Import the user's module of ``file.py:attribute`` or ``module:attribute``.

    Args:
        name: The file or module, and the attribute.
        option: The option with this name, for error messages.
        form: Description of a correct value, for error messages.

    Returns:
        The module and its folder.

    Raises:
        UsageError: The name has another form, or the module is missing.
    """
    source, _, attribute = name.rpartition(":")
    is_file = source.endswith(".py")
    path = Path(source).expanduser()
    if is_file and not path.is_file():
        raise UsageError(f"{option} {name}: there is no file {source}")
    identifiers = [attribute] if is_file else [attribute, *source.split(".")]
    if not all(identifier.isidentifier() for identifier in identifiers):
        raise UsageError(f"{option} {name!r}: your own {form}")
    folder = path.resolve().parent if is_file else Path.cwd()
    with importable(folder):
        return import_file(path) if is_file else import_module(source, form), folder


def _find_own_model(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ModelSource:
    """Import the user's network, or the callable that builds it; check the callable's arguments."""
    import chainer

    module, folder = import_own_code(name, "model", f"network is {_OWN_MODEL}")
    source, _, attribute = name.rpartition(":")
    if not hasattr(module, attribute):
        raise UsageError(_missing_attribute(module, source, attribute))
    target = getattr(module, attribute)
    if not isinstance(target, chainer.Link):
        _check_callable(target, source, attribute, args, kwargs)
    elif args or kwargs:
        raise UsageError(f"{attribute} of {source} is already a network: omit --model-args")

    def build() -> chainer.Link:
        if isinstance(target, chainer.Link):
            return target
        with importable(folder):
            try:
                link = target(*args, **kwargs)
            except (Exception, SystemExit) as error:
                raise ProfileError(
                    f"building {attribute} of {source} failed: {_one_line(error, folder)}"
                ) from error
        if not isinstance(link, chainer.Link):
            raise ProfileError(
                f"{attribute} of {source} returns {_kind(link)}, not a chainer.Link such as a Chain"
            )
        return link

    stem = Path(source).stem if source.endswith(".py") else source
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", f"{stem}-{attribute}")
    return ModelSource(name, f"{attribute} of {source}", build)


def import_module(name: str, form: str) -> ModuleType:
    """Import a module; raise an error in one line if it is missing or fails."""
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{name}.".startswith(f"{missing}."):
            raise UsageError(
                f"module {missing!r} is neither in this folder nor installed: your own {form}"
            ) from error
        raise ProfileError(f"importing {name} failed: {_one_line(error, Path.cwd())}") from error


def import_file(path: Path) -> ModuleType:
    """Import a Python file as a module."""
    # The prefix prevents that a file called numpy.py replaces NumPy.
    name = f"_profiled_{re.sub(r'[^A-Za-z0-9_]', '_', path.stem)}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None  # as the file's name ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle need their module in sys.modules
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        where = path.resolve().parent
        raise ProfileError(f"importing {path} failed: {_one_line(error, where)}") from error
    return module


# Modules that a module of the same name in the user's folder never replaces.
_NEVER_REPLACED = frozenset({"chainer", "chainer_profile", "chainerx", "cupy", "numpy"})


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Put a folder first on the import path within the context, as Python does for a script.

    Imported modules with the names of the folder's modules are hidden until the end.
    """
    if folder in (Path(entry).resolve() for entry in sys.path):
        yield
        return
    own = {item.stem for item in folder.glob("*.py")}
    own |= {item.parent.name for item in folder.glob("*/__init__.py")}
    own -= _NEVER_REPLACED | sys.stdlib_module_names
    hidden = {
        name: sys.modules.pop(name)
        for name in list(sys.modules)
        if name.partition(".")[0] in own and not _is_from(sys.modules[name], folder)
    }
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        # Later imports of these names find the installed modules again.
        sys.path.remove(str(folder))
        importlib.invalidate_caches()
        for name in list(sys.modules):
            top = name.partition(".")[0]
            if top in own and (top in hidden or PathFinder.find_spec(top) is not None):
                del sys.modules[name]
        sys.modules.update(hidden)


def _is_from(module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and folder in Path(file).resolve().parents


def _check_callable(
    target: object, source: str, attribute: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Raise UsageError if the user's object cannot be called with these arguments."""
    if not callable(target):
        raise UsageError(
            f"{attribute} of {source} is {_kind(target)}: name a chainer.Link, or a class or "
            "function that returns one"
        )
    error, parameters = _binding_error(target, args, kwargs)
    if error:
        needed = ", ".join(p.name for p in parameters if p.default is p.empty)
        raise UsageError(
            f"{attribute} of {source} takes ({needed}): {error}; give --model-args, such as "
            '--model-args "100, n_out=10"'
        )


#: Names of arguments that are labels.
_LABELS = frozenset({"t", "ts", "label", "labels", "target", "targets", "gt", "y"})


def check_arguments(model: chainer.Link, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise UsageError, with the missing arguments, if a network takes other arguments."""
    import chainer

    overrides_call = type(model).__call__ is not chainer.Link.__call__
    call = model.__call__ if overrides_call else getattr(model, "forward", None)
    error, parameters = _binding_error(call, args, kwargs)
    if not error:
        return
    name = type(model).__name__
    needed = [p for p in parameters if p.default is p.empty] or parameters
    if not needed:
        raise UsageError(f"{name} takes no argument, but its forward must take the input")
    raise UsageError(
        f"{name} takes ({', '.join(p.name for p in needed)}): {error}; give an "
        f"--input-shape for each, such as {' '.join(map(_example_option, needed))}"
    )


def _binding_error(
    call: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[TypeError | None, list[inspect.Parameter]]:
    """Bind arguments to a callable; return the error, and the parameters except ``*args``.

    If the arguments fit, these are None and an empty list.
    """
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):  # some built-in callables have none; the call will fail
        return None, []
    any_number = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return error, [p for p in signature.parameters.values() if p.kind not in any_number]
    return None, []


def _example_option(parameter: inspect.Parameter) -> str:
    """An example of the option for an argument of a network."""
    by_name = f"{parameter.name}=" if parameter.kind is parameter.KEYWORD_ONLY else ""
    spec = "one:int32:1000" if parameter.name in _LABELS else "SHAPE"
    return f"--input-shape {by_name}{spec}"


def _missing_attribute(module: ModuleType, source: str, attribute: str) -> str:
    """A message that ``attribute`` is missing, with similar names or all networks."""
    import chainer

    message = f"{source} has no {attribute!r}"
    names = [name for name in vars(module) if not name.startswith("_")]
    nearest = difflib.get_close_matches(attribute, names, n=3)
    if nearest:
        return f"{message}: did you mean {_or(nearest)}?"
    networks = []
    for name in names:
        value = getattr(module, name)
        is_class = isinstance(value, type) and issubclass(value, chainer.Link)
        if isinstance(value, chainer.Link) or (is_class and value.__module__ == module.__name__):
            networks.append(name)
    if networks:
        return f"{message}: its networks are {', '.join(networks)}"
    return f"{message}, and it contains no network"


def _one_line(error: BaseException, folder: Path) -> str:
    """Format an exception in one line, with its line in a file of the user's ``folder``."""
    if isinstance(error, SyntaxError):
        where = f" ({error.filename}, line {error.lineno})" if error.filename else ""
        return f"{type(error).__name__}: {error.msg}{where}"
    where = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if folder in Path(frame.filename).parents:
            where = f" ({frame.filename}, line {frame.lineno})"
    return one_line(error) + where


def _kind(value: object) -> str:
    """Describe the type of a value: ``None``, ``a list``, ``an int``."""
    if value is None:
        return "None"
    if isinstance(value, ModuleType):
        return "a module"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _or(words: list[str]) -> str:
    """Join words of a sentence: ``a, b or c``."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)
