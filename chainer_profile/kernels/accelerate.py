"""``accelerate()``: faster kernels under Chainer's own functions, for as long as it is wanted."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.replacements import Replacements
from chainer_profile.kernels import memory
from chainer_profile.kernels.functions import replacements

KERNELS = {"numpy": "numpy_kernels", "torch": "torch_kernels"}
#: Those that are active; memory is given back when the last of them ends that keeps it.
_ACTIVE: list[Accelerated] = []


def kernels_now() -> str:
    """The kernels under Chainer's functions; empty where they are Chainer's own."""
    return _ACTIVE[-1].kernels if _ACTIVE else ""


def accelerate(
    kernels: str = "numpy", *, keep_memory: bool = True, threads: int | None = None
) -> Accelerated:
    """Make Chainer's functions faster on the CPU, in training and in inference.

    It takes effect at once and for the whole process, until the ``with`` block that it opens is
    left or :meth:`Accelerated.undo` is called. Convolutions, deconvolutions and their gradients,
    batch normalisation and pooling are computed without the copies that Chainer makes in vain;
    networks, optimizers, snapshots and reports stay as they are. Where a replacement does not
    apply (arrays on a GPU, of mixed types, in float16; other layouts) Chainer's own code runs, and
    errors are Chainer's. In float64 results agree to about 1e-12; in float32 sums are added in
    another order, so that a training does not repeat earlier ones to the last digit.

    Args:
        kernels: ``numpy`` needs nothing else. ``torch`` puts PyTorch's CPU kernels (oneDNN) under
            the same functions, grouped convolutions among them; arrays are shared with it, not
            copied.
        keep_memory: Have glibc keep freed memory in the process in place of fetching it from the
            kernel for every array anew (Linux with glibc alone; elsewhere nothing happens).
        threads: PyTorch's threads; None leaves them as they are. NumPy's are BLAS's, which
            ``threadpoolctl`` limits.

    Raises:
        UsageError: There are no such kernels, or PyTorch cannot be imported.
    """
    return Accelerated(kernels, keep_memory, threads)


class Accelerated:
    """That Chainer is faster; see :func:`accelerate`.

    Attributes:
        kernels: The kernels.
        keeps_memory: Whether freed memory is kept.
    """

    def __init__(self, kernels: str, keep_memory: bool, threads: int | None) -> None:
        module = _kernels(kernels)
        self.kernels = kernels
        self._threads_before: int | None = None
        if threads is not None and hasattr(module, "set_threads"):
            self._threads_before = module.set_threads(threads)
        self._module = module
        self._replacements = Replacements()
        for owner, name, wrap in replacements(module):
            self._replacements.wrap(owner, name, wrap)
        _ACTIVE.append(self)
        self.keeps_memory = keep_memory and memory.keep_memory()

    def undo(self) -> None:
        """Let Chainer's own code run again; once more does nothing."""
        if self not in _ACTIVE:
            return
        _ACTIVE.remove(self)
        self._replacements.undo()
        if self._threads_before is not None:
            self._module.set_threads(self._threads_before)
        if self.keeps_memory and not any(one.keeps_memory for one in _ACTIVE):
            memory.keep_memory(False)

    def __enter__(self) -> Accelerated:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()


def _kernels(name: str) -> ModuleType:
    if name not in KERNELS:
        raise UsageError(f"there are no kernels {name!r}: known are {' and '.join(KERNELS)}")
    try:
        return import_module(f"chainer_profile.kernels.{KERNELS[name]}")
    except ImportError as error:
        if name == "torch":
            raise UsageError(
                f"PyTorch cannot be imported ({error}): python -m pip install torch"
            ) from None
        raise
