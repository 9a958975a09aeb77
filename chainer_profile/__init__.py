"""A layer-wise profiler for Chainer networks.

Importing this package lets Chainer 7.8.1 import and run on current Python, NumPy and CuPy, so
import it before Chainer.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 10):  # noqa: UP036  (a clone is run as it is, without pip's check)
    version = ".".join(map(str, sys.version_info[:3]))
    raise ImportError(f"chainer-profile needs Python 3.10 or newer; this is Python {version}")

# `python -m` puts the current folder first. A file typing.py there must not replace the standard
# module.
if sys.argv[:1] == ["-m"]:
    _current_folder = sys.path.pop(0)

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from chainer_profile import compat
from chainer_profile.basics import began as began  # before slow imports
from chainer_profile.basics import views
from chainer_profile.basics.words import VERSION

if TYPE_CHECKING:
    from chainer_profile.analyse.summaries import summarise as summarise
    from chainer_profile.analyse.summary import Summary as Summary
    from chainer_profile.basics.errors import ProfileError as ProfileError
    from chainer_profile.basics.errors import UsageError as UsageError
    from chainer_profile.comparison.compare import Comparison as Comparison
    from chainer_profile.comparison.compare import compare as compare
    from chainer_profile.comparison.sides import Side as Side
    from chainer_profile.costs.work import register_cost as register_cost
    from chainer_profile.integrations.profiling import profiling as profiling
    from chainer_profile.integrations.trainer import LayerProfile as LayerProfile
    from chainer_profile.kernels.accelerate import accelerate as accelerate
    from chainer_profile.measure.layer_frames import layer_frames as layer_frames
    from chainer_profile.measure.layer_timer import LayerTimerHook as LayerTimerHook
    from chainer_profile.measure.network import summary as summary
    from chainer_profile.measure.profile import profile as profile
    from chainer_profile.record.folding import fold_call_history as fold_call_history
    from chainer_profile.record.network import ModelSummary as ModelSummary
    from chainer_profile.record.recording import Layer as Layer
    from chainer_profile.record.recording import Recording as Recording

__version__ = VERSION

# Modules of public names, which are imported at first use: `--help` must not wait for Chainer.
_MODULES = {
    "accelerate": "kernels.accelerate",
    "Comparison": "comparison.compare",
    "Layer": "record.recording",
    "LayerProfile": "integrations.trainer",
    "LayerTimerHook": "measure.layer_timer",
    "ModelSummary": "record.network",
    "ProfileError": "basics.errors",
    "Recording": "record.recording",
    "Side": "comparison.sides",
    "Summary": "analyse.summary",
    "UsageError": "basics.errors",
    "compare": "comparison.compare",
    "fold_call_history": "record.folding",
    "layer_frames": "measure.layer_frames",
    # IPython calls these two for %load_ext chainer_profile.
    "load_ipython_extension": "cli.notebook",
    "unload_ipython_extension": "cli.notebook",
    "profile": "measure.profile",
    "profiling": "integrations.profiling",
    "register_cost": "costs.work",
    "summarise": "analyse.summaries",
    "summary": "measure.network",
}
__all__ = ["__version__", *(name for name in _MODULES if not name.endswith("_ipython_extension"))]


def __getattr__(name: str) -> object:
    if name == "optimize":
        # `from chainer_profile import optimize` would hide the message of an AttributeError.
        raise ImportError(
            "chainer_profile has no optimize() any more: call the network within accelerate(), or "
            "run it under ONNX Runtime (chainer-profile engines --model FILE.py:NETWORK "
            "--input-shape SHAPE --engines onnxruntime)"
        )
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(_import(_MODULES[name]), name)
    globals()[name] = value
    return value


def _import(module: str) -> Any:
    from importlib import import_module

    return import_module(f"{__name__}.{module}")


def __dir__() -> list[str]:
    return sorted(globals().keys() | set(_MODULES))


def _view(path: str) -> Callable[..., Any]:
    """Make a function that imports the module of ``module.function``, and calls the function."""
    module, _, name = path.rpartition(".")
    return lambda *args, **options: getattr(_import(module), name)(*args, **options)


for _kind, _names in {
    "Recording": ("recording_line", "recording_line", "recording_html"),
    "Summary": ("summary_line", "summary_text", "summary_html"),
    "Comparison": ("comparison_line", "comparison_text", "comparison_html"),
    "ModelSummary": ("model_text", "model_text", "model_html"),  # a prompt shows the table
}.items():
    _line, _text, _html = (_view(f"report.views.{_name}") for _name in _names)
    views.register(_kind, line=_line, text=_text, html=_html)
views.register(
    "Summary", plot=_view("report.pictures.layers.LayerPlot"), save=_view("runs.write.save")
)

compat.install()
if sys.argv[:1] == ["-m"]:
    sys.path.insert(0, _current_folder)
