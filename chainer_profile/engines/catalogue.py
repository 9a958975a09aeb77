"""The catalogue of engines, and engines of the user."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.errors import ProfileError, UsageError, one_line

if TYPE_CHECKING:
    from chainer_profile.engines.protocol import Engine

#: The engine that is the reference for all others.
BASELINE = "chainer"
#: Chainer under :func:`chainer_profile.accelerate`.
FAST = "chainer-fast"


@dataclass(frozen=True)
class EngineEntry:
    """An engine of the catalogue."""

    name: str
    description: str
    factory: str  #: The engine's class, as ``module:Class``.
    needs: tuple[str, ...] = ()  #: Modules that the engine requires.
    install: str = ""  #: The command that installs these modules.
    provider: str = ""  #: ONNX Runtime's execution provider; empty for the default.

    def why_unavailable(self) -> str:
        """Explain why the engine cannot run here; empty if it can."""
        if any(importlib.util.find_spec(name) is None for name in self.needs):
            return "not installed"
        try:
            for name in self.needs:
                importlib.import_module(name)
        except Exception as error:  # a broken installation may raise anything
            return f"cannot be imported ({one_line(error)})"
        if self.provider and self.provider not in _providers("get_available_providers"):
            return f"the installed ONNX Runtime has no {self.provider}"
        return ""

    def make(self) -> Any:
        """Make the engine, without a network."""
        module, _, name = self.factory.partition(":")
        arguments = [self.provider] if self.provider else []
        return getattr(importlib.import_module(module), name)(*arguments)


_PACKAGE = "chainer_profile.engines"
#: All engines by name, in the order of the tables.
ENGINES: Mapping[str, EngineEntry] = {
    entry.name: entry
    for entry in (
        EngineEntry(
            BASELINE,
            "Chainer unchanged: the baseline",
            f"{_PACKAGE}.runtimes.chainer_engine:ChainerEngine",
        ),
        EngineEntry(
            FAST,
            "Chainer with faster NumPy kernels; also for training, see accelerate()",
            f"{_PACKAGE}.runtimes.chainer_engine:FastEngine",
        ),
        EngineEntry(
            "onnxruntime",
            "ONNX Runtime, on a CPU",
            f"{_PACKAGE}.runtimes.onnxruntime_engine:OnnxRuntimeEngine",
            ("onnx", "onnxruntime"),
            "python -m pip install onnx onnxruntime",
        ),
    )
}

#: Packages that replace ``onnxruntime``, and contain a further execution provider.
_PACKAGES_OF_PROVIDERS = {
    "OpenVINOExecutionProvider": "onnxruntime-openvino",
    "CUDAExecutionProvider": "onnxruntime-gpu",
    "TensorrtExecutionProvider": "onnxruntime-gpu tensorrt",
}
#: Prefix of the names of engines for a given execution provider of ONNX Runtime.
_PROVIDER_PREFIX = "onnxruntime:"


def entry_of(name: str) -> EngineEntry | None:
    """Find the entry of an engine, also ``onnxruntime:PROVIDER``; None for the user's engines."""
    return _provider_entry(provider) if (provider := provider_of(name)) else ENGINES.get(name)


def all_entries() -> list[EngineEntry]:
    """All engines, and one entry per execution provider with a separate package."""
    return [*ENGINES.values(), *map(_provider_entry, _PACKAGES_OF_PROVIDERS)]


def provider_of(name: str) -> str:
    """The execution provider in the name of an engine; empty for other names."""
    return name.removeprefix(_PROVIDER_PREFIX) if name.startswith(_PROVIDER_PREFIX) else ""


def label_of(name: str) -> str:
    """Format the name of an engine for tables, such as ``ONNX Runtime, OpenVINO``."""
    provider = provider_of(name)
    return f"ONNX Runtime, {provider.removesuffix('ExecutionProvider')}" if provider else name


def _provider_entry(provider: str) -> EngineEntry:
    """Make the entry of ONNX Runtime on a provider; raise UsageError for an unknown one."""
    name = f"{_PROVIDER_PREFIX}{provider}"
    providers = dict.fromkeys([*_PACKAGES_OF_PROVIDERS, *_providers("get_all_providers")])
    if provider not in providers:
        raise UsageError(
            f"unknown engine {name!r}: execution providers of ONNX Runtime are "
            f"{', '.join(providers)}"
        )
    package = _PACKAGES_OF_PROVIDERS.get(provider)
    return replace(
        ENGINES["onnxruntime"],
        name=name,
        description=label_of(name),
        install=f"python -m pip install onnx {package}" if package else "",
        provider=provider,
    )


def _providers(function: str) -> list[str]:
    """Call a function of ONNX Runtime that lists providers; empty if the package is not usable."""
    try:
        return list(getattr(importlib.import_module("onnxruntime"), function)())
    except Exception:
        return []


_FORM = "module:Class or path/to/file.py:Class"
_METHODS = ("prepare", "run", "layers")


def find_engine(name: str) -> Engine:
    """Make the user's engine ``module:Class`` or ``path/to/file.py:Class``.

    Raises:
        UsageError: There is no such class, or it is not an engine.
        ProfileError: The class cannot be instantiated.
    """
    source, colon, attribute = name.rpartition(":")
    if not colon:
        nearest = difflib.get_close_matches(name.lower(), ENGINES, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else f"known are {', '.join(ENGINES)}."
        raise UsageError(f"unknown engine {name!r}: {hint} Your own engine is {_FORM}.")
    from chainer_profile.networks.loading import import_own_code, importable

    module, folder = import_own_code(name, "engine", f"engine is {_FORM}")
    make = getattr(module, attribute, None)
    if make is None:
        raise UsageError(f"engine {name}: {source} has no {attribute!r}")
    with importable(folder):
        try:
            engine: Engine = make()
        except Exception as error:  # from the user's code
            raise ProfileError(f"engine {name}: cannot be made: {one_line(error)}") from error
    missing = [method for method in _METHODS if not callable(getattr(engine, method, None))]
    if missing:
        raise UsageError(f"engine {name} is not an engine: it has no {', '.join(missing)}")
    return engine
