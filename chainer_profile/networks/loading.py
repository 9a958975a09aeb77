"""Finds the network that a user names, and builds it."""

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
    """A network that can be built, from a registry or from a user's own code."""

    #: For folders and reports: letters, digits, ``.``, ``_`` and ``-`` only.
    name: str
    description: str
    build: Callable[[], chainer.Link]
    #: Shape of an input without the batch. Unknown values are None.
    input_shape: tuple[int, ...] | None = None
    #: What to subtract from each channel of an image scaled to 0..1, and to divide it by.
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    classes: int | None = None


def find_model(
    name: str,
    registry: Mapping[str, Any],
    classes: int | None = None,
    arguments: str = "",
) -> ModelSource:
    """Finds the network that a name stands for; nothing is built yet."""
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
    """Builds a network on the CPU; the same seed gives the same initial weights."""
    # A network that existed before, and parameters that the first call initialises, are outside of
    # the seed's reach.
    import chainer  # noqa: F401  (imported first, so that the draws begin with the network)
    import numpy

    if not 0 <= seed < 2**32:
        raise UsageError(f"the seed must be from 0 to {2**32 - 1}, not {seed}")
    numpy.random.seed(seed)  # noqa: NPY002  (the generator that Chainer's initializers use)
    return source.build()


def _literals(text: str) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call, such as ``100, n_out=10``."""
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
            f"--model-args {text!r}: give numbers, strings, lists and so on, as in 100, n_out=10"
        ) from None


def own_code(name: str, option: str, form: str) -> tuple[ModuleType, Path]:
    """The module of ``place:attribute``, and its folder; a UsageError says what it is to be."""
    place, _, attribute = name.rpartition(":")
    is_file = place.endswith(".py")
    path = Path(place).expanduser()
    if is_file and not path.is_file():
        raise UsageError(f"{option} {name}: there is no file {place}")
    words = [attribute] if is_file else [attribute, *place.split(".")]
    if not all(word.isidentifier() for word in words):
        raise UsageError(f"{option} {name!r}: your own {form}")
    folder = path.resolve().parent if is_file else Path.cwd()
    with importable(folder):
        return import_file(path) if is_file else import_module(place, form), folder


def _find_own_model(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ModelSource:
    import chainer

    module, folder = own_code(name, "model", f"network is {_OWN_MODEL}")
    place, _, attribute = name.rpartition(":")
    if not hasattr(module, attribute):
        raise UsageError(_missing_attribute(module, place, attribute))
    target = getattr(module, attribute)
    if not isinstance(target, chainer.Link):
        _check_callable(target, place, attribute, args, kwargs)
    elif args or kwargs:
        raise UsageError(f"{attribute} of {place} is already a network: leave out --model-args")

    def build() -> chainer.Link:
        if isinstance(target, chainer.Link):
            return target
        with importable(folder):
            try:
                link = target(*args, **kwargs)
            except (Exception, SystemExit) as error:
                raise ProfileError(
                    f"building {attribute} of {place} failed: {_one_line(error, folder)}"
                ) from error
        if not isinstance(link, chainer.Link):
            raise ProfileError(
                f"{attribute} of {place} returns {_kind(link)}, not a chainer.Link such as a Chain"
            )
        return link

    stem = Path(place).stem if place.endswith(".py") else place
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", f"{stem}-{attribute}")
    return ModelSource(name, f"{attribute} of {place}", build)


def import_module(name: str, form: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{name}.".startswith(f"{missing}."):
            raise UsageError(
                f"module {missing!r} is neither here nor installed: your own {form}"
            ) from error
        raise ProfileError(f"importing {name} failed: {_one_line(error, Path.cwd())}") from error


def import_file(path: Path) -> ModuleType:
    """Runs a Python file as a module."""
    # A name of its own, so that a file called numpy.py takes nobody's place.
    name = f"_profiled_{re.sub(r'[^A-Za-z0-9_]', '_', path.stem)}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None  # always one for a name that ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        where = path.resolve().parent
        raise ProfileError(f"importing {path} failed: {_one_line(error, where)}") from error
    return module


# Modules that stay as they are even if the user's folder has a module of the same name.
_KEPT = frozenset({"chainer", "chainer_profile", "chainerx", "cupy", "numpy"})


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Put a folder first on the import path for a while, as Python does for a script."""
    if folder in (Path(entry).resolve() for entry in sys.path):
        yield
        return
    own = {item.stem for item in folder.glob("*.py")}
    own |= {item.parent.name for item in folder.glob("*/__init__.py")}
    own -= _KEPT | sys.stdlib_module_names
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
        # Later imports of these names get the installed modules again.
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
    target: object, place: str, attribute: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    if not callable(target):
        raise UsageError(
            f"{attribute} of {place} is {_kind(target)}: name a chainer.Link, or a class or "
            "function that returns one"
        )
    error, parameters = _misfit(target, args, kwargs)
    if error:
        needed = ", ".join(p.name for p in parameters if p.default is p.empty)
        raise UsageError(
            f"{attribute} of {place} takes ({needed}): {error}; give --model-args, such as "
            '--model-args "100, n_out=10"'
        )


#: Names of arguments that are labels.
_LABELS = frozenset({"t", "ts", "label", "labels", "target", "targets", "gt", "y"})


def check_arguments(model: chainer.Link, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a network that takes other arguments, and say which are missing."""
    import chainer

    own = type(model).__call__ is not chainer.Link.__call__
    call = model.__call__ if own else getattr(model, "forward", None)
    error, parameters = _misfit(call, args, kwargs)
    if not error:
        return
    name = type(model).__name__
    needed = [p for p in parameters if p.default is p.empty] or parameters
    if not needed:
        raise UsageError(f"{name} takes no argument, but its forward must take the input")
    raise UsageError(
        f"{name} takes ({', '.join(p.name for p in needed)}): {error}; give an "
        f"--input-shape for each, such as {' '.join(map(_offered, needed))}"
    )


def _misfit(
    call: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[TypeError | None, list[inspect.Parameter]]:
    """Why a callable does not take these arguments, and its parameters, but not ``*args``."""
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):  # some built-in callables have none; running it will tell
        return None, []
    any_number = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return error, [p for p in signature.parameters.values() if p.kind not in any_number]
    return None, []


def _offered(parameter: inspect.Parameter) -> str:
    """The option that gives a network this argument."""
    by_name = f"{parameter.name}=" if parameter.kind is parameter.KEYWORD_ONLY else ""
    spec = "one:int32:1000" if parameter.name in _LABELS else "SHAPE"
    return f"--input-shape {by_name}{spec}"


def _missing_attribute(module: ModuleType, place: str, attribute: str) -> str:
    """A message that ``attribute`` is missing, with the nearest names or all networks."""
    import chainer

    message = f"{place} has no {attribute!r}"
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
    """An exception in one line, with its place in the user's ``folder``."""
    if isinstance(error, SyntaxError):
        where = f" ({error.filename}, line {error.lineno})" if error.filename else ""
        return f"{type(error).__name__}: {error.msg}{where}"
    where = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if folder in Path(frame.filename).parents:
            where = f" ({frame.filename}, line {frame.lineno})"
    return one_line(error) + where


def _kind(value: object) -> str:
    """Names a value for a message: ``None``, ``a list``, ``an int``."""
    if value is None:
        return "None"
    if isinstance(value, ModuleType):
        return "a module"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _or(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)
