"""``accelerate()``: replaces the code of Chainer's functions by faster kernels, until undone."""

from __future__ import annotations

import threading
from importlib import import_module
from types import ModuleType

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.replacements import Replacements
from chainer_profile.kernels import memory
from chainer_profile.kernels.functions import replacements

KERNELS = {"numpy": "numpy_kernels", "torch": "torch_kernels"}
_ACTIVE: list[Accelerated] = []
#: PyTorch's threads before the first of :data:`_ACTIVE` changed the number.
_threads_before: int | None = None
_LOCK = threading.RLock()


def kernels_now() -> str:
    """Name of the kernels that replace Chainer's functions now; empty if none do."""
    return _ACTIVE[-1].kernels if _ACTIVE else ""


def accelerate(
    kernels: str = "numpy", *, keep_memory: bool = True, threads: int | None = None
) -> Accelerated:
    """Make Chainer's functions faster on the CPU, in training and in inference.

    It takes effect at once and for the whole process, until you leave the ``with`` block that it
    opens or call :meth:`Accelerated.undo`. Convolutions, deconvolutions and their gradients, batch
    normalisation and pooling run without Chainer's unnecessary copies; networks, optimizers,
    snapshots and reports stay as they are. Where a replacement does not apply (arrays on a GPU, of
    mixed types, in float16; other layouts), Chainer's own code runs. Errors are Chainer's. In
    float64, results agree to about 1e-12. In float32, sums are added in another order, so a
    training does not repeat earlier ones to the last digit.

    Args:
        kernels: ``numpy`` needs nothing else. ``torch`` uses PyTorch's CPU kernels (oneDNN) for the
            same functions, including grouped convolutions; arrays are shared with PyTorch, not
            copied.
        keep_memory: Let glibc keep freed memory in the process instead of requesting it again from
            the kernel for each array (Linux with glibc only; elsewhere nothing happens).
        threads: PyTorch's threads; None leaves them as they are. NumPy's threads are BLAS's, which
            ``threadpoolctl`` limits.

    Raises:
        UsageError: The kernels are unknown, or PyTorch cannot be imported.
    """
    return Accelerated(kernels, keep_memory, threads)


class Accelerated:
    """The result of :func:`accelerate`: undoes the replacement. A context manager.

    ``kernels`` is the name of the kernels, ``keeps_memory`` whether glibc keeps freed memory.
    """

    def __init__(self, kernels: str, keep_memory: bool, threads: int | None) -> None:
        self.kernels, self.keeps_memory = kernels, False
        self._module = import_kernels(kernels)
        self._threads = threads if hasattr(self._module, "set_threads") else None
        self._replacements = Replacements()
        try:
            self._begin(keep_memory)
        except BaseException:
            self.undo()
            raise

    def _begin(self, keep_memory: bool) -> None:
        with _LOCK:
            _ACTIVE.append(self)
            for owner, name, wrap in replacements(self._module):
                self._replacements.wrap(owner, name, wrap)
            if self._threads is not None:
                _choose_threads(self._module)
            if keep_memory:
                self.keeps_memory = memory.keep(self)

    def undo(self) -> None:
        """Let Chainer's own code run again; another call does nothing."""
        try:
            self._end()
        finally:  # repeated, because an interrupt may have cut the first call short
            self._end()

    def _end(self) -> None:
        with _LOCK:
            self._replacements.undo()
            if self in _ACTIVE:
                _ACTIVE.remove(self)
            if self._threads is not None:
                _choose_threads(self._module)
            memory.give_back(self)

    def __enter__(self) -> Accelerated:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()


def _choose_threads(torch: ModuleType) -> None:
    """Set PyTorch's threads to the latest active choice; without one, to the original number."""
    global _threads_before
    if _threads_before is None:
        _threads_before = torch.threads()
    choices = [active._threads for active in _ACTIVE if active._threads is not None]
    torch.set_threads(choices[-1] if choices else _threads_before)
    if not choices:
        _threads_before = None


def import_kernels(name: str) -> ModuleType:
    """Import the module of kernels with this name; raise UsageError if that is impossible."""
    if name not in KERNELS:
        raise UsageError(f"unknown kernels {name!r}: choose {' or '.join(KERNELS)}")
    try:
        return import_module(f"chainer_profile.kernels.{KERNELS[name]}")
    except ImportError as error:
        if name == "torch":
            raise UsageError(
                f"PyTorch cannot be imported ({error}): python -m pip install torch"
            ) from None
        raise
