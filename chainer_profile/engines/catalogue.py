"""The engines: those that come with the profiler, and a user's own."""

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

#: The engine with which all others are compared.
BASELINE = "chainer"
#: Chainer under :func:`chainer_profile.accelerate`.
FAST = "chainer-fast"


@dataclass(frozen=True)
class EngineEntry:
    name: str
    description: str
    #: Its class, as ``module:Class``.
    factory: str
    #: Modules without which it cannot run, and the command that installs them.
    needs: tuple[str, ...] = ()
    install: str = ""
    #: ONNX Runtime's execution provider; empty for the engine's own choice.
    provider: str = ""

    def lacks(self) -> str:
        """Why the engine cannot run here; empty if it can."""
        if any(importlib.util.find_spec(name) is None for name in self.needs):
            return "not installed"
        try:
            for name in self.needs:
                importlib.import_module(name)
        except Exception as error:  # a broken installation raises anything
            return f"cannot be imported ({one_line(error)})"
        if self.provider and self.provider not in _providers("get_available_providers"):
            return f"the installed ONNX Runtime has no {self.provider}"
        return ""

    def make(self) -> Any:
        """The engine, not yet prepared."""
        module, _, name = self.factory.partition(":")
        arguments = [self.provider] if self.provider else []
        return getattr(importlib.import_module(module), name)(*arguments)


_HERE = "chainer_profile.engines"
#: Every engine by its name, in the order of tables.
ENGINES: Mapping[str, EngineEntry] = {
    entry.name: entry
    for entry in (
        EngineEntry(
            BASELINE,
            "Chainer unchanged: the baseline",
            f"{_HERE}.runtimes.chainer_engine:ChainerEngine",
        ),
        EngineEntry(
            FAST,
            "Chainer with faster NumPy kernels; also for training, see accelerate()",
            f"{_HERE}.runtimes.chainer_engine:FastEngine",
        ),
        EngineEntry(
            "onnxruntime",
            "ONNX Runtime, on a CPU",
            f"{_HERE}.runtimes.onnxruntime_engine:OnnxRuntimeEngine",
            ("onnx", "onnxruntime"),
            "python -m pip install onnx onnxruntime",
        ),
    )
}

#: Packages that bring an execution provider of ONNX Runtime, in place of ``onnxruntime``.
_PACKAGES_OF_PROVIDERS = {
    "OpenVINOExecutionProvider": "onnxruntime-openvino",
    "CUDAExecutionProvider": "onnxruntime-gpu",
    "TensorrtExecutionProvider": "onnxruntime-gpu tensorrt",
}
#: Beginning of the names of ONNX Runtime's execution providers.
_ON_PROVIDER = "onnxruntime:"


def entry_of(name: str) -> EngineEntry | None:
    """The entry of an engine, also ``onnxruntime:PROVIDER``; None for a user's own."""
    return _of_provider(provider) if (provider := provider_of(name)) else ENGINES.get(name)


def listed() -> list[EngineEntry]:
    """All engines, and the execution providers that have packages of their own."""
    return [*ENGINES.values(), *map(_of_provider, _PACKAGES_OF_PROVIDERS)]


def provider_of(name: str) -> str:
    """The execution provider in the name of an engine; empty if there is none."""
    return name.removeprefix(_ON_PROVIDER) if name.startswith(_ON_PROVIDER) else ""


def label_of(name: str) -> str:
    """The name of an engine in tables: ``ONNX Runtime, OpenVINO`` for a provider."""
    provider = provider_of(name)
    return f"ONNX Runtime, {provider.removesuffix('ExecutionProvider')}" if provider else name


def _of_provider(provider: str) -> EngineEntry:
    name = f"{_ON_PROVIDER}{provider}"
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
    """The providers that a function of ONNX Runtime lists; none if it is missing or broken."""
    try:
        return list(getattr(importlib.import_module("onnxruntime"), function)())
    except Exception:
        return []


_OWN = "module:Class or path/to/file.py:Class"
_METHODS = ("prepare", "run", "layers")


def find_engine(name: str) -> Engine:
    """A user's own engine, named as ``module:Class`` or ``path/to/file.py:Class``."""
    place, colon, attribute = name.rpartition(":")
    if not colon:
        nearest = difflib.get_close_matches(name.lower(), ENGINES, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else f"known are {', '.join(ENGINES)}."
        raise UsageError(f"unknown engine {name!r}: {hint} Your own engine is {_OWN}.")
    from chainer_profile.networks.loading import import_own_code, importable

    module, folder = import_own_code(name, "engine", f"engine is {_OWN}")
    make = getattr(module, attribute, None)
    if make is None:
        raise UsageError(f"engine {name}: {place} has no {attribute!r}")
    with importable(folder):
        try:
            engine: Engine = make()
        except Exception as error:  # the user's own code
            raise ProfileError(f"engine {name}: cannot be made: {one_line(error)}") from error
    lacks = [method for method in _METHODS if not callable(getattr(engine, method, None))]
    if lacks:
        raise UsageError(f"engine {name} is not an engine: it lacks {', '.join(lacks)}")
    return engine
