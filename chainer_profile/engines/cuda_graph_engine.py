"""Chainer's own kernels as a CUDA graph: captured once, then launched as a whole.

A small network on a GPU waits for the host, which launches hundreds of kernels from Python. A graph
holds them all, with the addresses that they read and write, and takes one launch. So its inputs and
outputs always lie in the same arrays, and all that it works in belongs to it.
"""

from __future__ import annotations

import gc
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.errors import one_line
from chainer_profile.basics.units import format_shape
from chainer_profile.engines.cublas import CapturedProducts
from chainer_profile.engines.protocol import EngineError, EngineProfile, Network, flat_arrays

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Runs before the capture: they compile kernels, and take the memory that the captured run takes.
_WARMUPS = 3


class CudaGraphEngine:
    """Chainer's forward pass, captured with CuPy and replayed.

    cuDNN is not used, as CuPy does not call it while a stream captures; matrix products are
    cuBLAS'.

    Attributes:
        name: What tables call it.
    """

    name = "cuda-graph"

    def __init__(self) -> None:
        self._cupy: Any = None
        self._device: Any = None
        self._stream: Any = None
        self._arrived: Any = None
        self._inputs: tuple[Any, ...] = ()
        self._outputs: tuple[Any, ...] = ()
        self._graph: Any = None
        # What the graph works with, by address, must stay as long as it does.
        self._kept: tuple[Any, ...] = ()

    @property
    def version(self) -> str:
        """Version of CuPy."""
        import cupy

        return str(cupy.__version__)

    def prepare(self, network: Network) -> None:
        """Run the network a few times in a stream of its own, then capture it.

        Raises:
            EngineError: The network is not on a GPU, another precision is wanted than it has, or it
                does what no graph can hold.
        """
        if not network.gpu:
            raise EngineError("it needs a GPU: give --gpu 0")
        own = _precision(network.model)
        if network.precision not in (own, "fp32"):
            raise EngineError(f"it computes as Chainer does, here in {own}: choose {own}")
        import cupy

        self._cupy = cupy
        self._device = cupy.cuda.Device(int(network.device.partition(":")[2]))
        with self._device:
            self._stream = cupy.cuda.Stream(non_blocking=True)
            self._arrived = cupy.cuda.Event(disable_timing=True)
            pool = cupy.cuda.MemoryPool()
            products = CapturedProducts(cupy, self._stream)
            self._wait_for_caller()
            with ExitStack() as stack:
                stack.enter_context(self._stream)
                stack.enter_context(cupy.cuda.using_allocator(pool.malloc))
                stack.enter_context(_configured())
                stack.enter_context(products.instead_of_cupys())
                self._inputs = tuple(array.copy() for array in network.inputs)
                try:
                    for _ in range(_WARMUPS):
                        flat_arrays(network.model(*self._inputs))
                    self._stream.synchronize()
                except EngineError:
                    raise
                except Exception as error:
                    raise EngineError(
                        f"it cannot run the network in a stream: {one_line(error)}"
                    ) from error
                # What is freed while the stream captures may not be free before.
                gc.collect()
                self._capture(network.model)
            self._kept = (network.model, pool, products)

    def run(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """One forward pass; the outputs are new arrays on the device.

        Raises:
            EngineError: The inputs are not of the shapes and types that it was prepared for.
        """
        cupy = self._cupy
        assert self._graph is not None, "prepare comes first"
        self._check(inputs)
        with self._device:
            self._wait_for_caller()
            with self._stream:
                for array, given in zip(self._inputs, inputs, strict=True):
                    cupy.copyto(array, given)
                self._graph.launch(self._stream)
                outputs = tuple(array.copy() for array in self._outputs)
            self._stream.synchronize()
        return outputs

    def layers(self, inputs: tuple[Any, ...], trials: int) -> EngineProfile | None:
        """Not known: a graph tells no times of its kernels."""
        return None

    def _wait_for_caller(self) -> None:
        """Let the stream begin when the caller's stream has got so far: it does not by itself."""
        self._arrived.record(self._cupy.cuda.get_current_stream())
        self._stream.wait_event(self._arrived)

    def _capture(self, model: Any) -> None:
        """Capture one run."""
        self._stream.begin_capture()
        try:
            outputs = flat_arrays(model(*self._inputs))
            for array in outputs:
                if not isinstance(array, self._cupy.ndarray):
                    raise EngineError("the network gives an array of the host")
            self._graph = self._stream.end_capture()
        except BaseException as error:
            # Whatever happened, the stream captures no longer; what it has is no use.
            with suppress(Exception):
                self._stream.end_capture()
            if isinstance(error, EngineError) or not isinstance(error, Exception):
                raise
            raise EngineError(_why(error)) from error
        self._outputs = outputs

    def _check(self, inputs: tuple[Any, ...]) -> None:
        found, known = (
            ", ".join(f"{format_shape(array.shape)} {array.dtype}" for array in arrays)
            for arrays in (inputs, self._inputs)
        )
        if found != known:
            raise EngineError(f"it was captured for inputs of {known}, not {found}")


def _why(error: Exception) -> str:
    """Why a capture failed, in one line."""
    said = one_line(error)
    if isinstance(error, NotImplementedError):
        return f"the network calls what CuPy cannot capture: {said}"
    return (
        "its forward pass cannot be captured, as where it waits for the device or reads a value "
        f"from it, like float(loss): {said}"
    )


def _precision(model: Any) -> str:
    """What Chainer computes the network in: that of its parameters."""
    kinds = {p.dtype for p in model.params(include_uninit=False) if p.dtype is not None}
    return "fp16" if any(kind == "float16" for kind in kinds) else "fp32"


@contextmanager
def _configured() -> Iterator[None]:
    """Chainer's configuration of what is captured."""
    import chainer

    with (
        chainer.using_config("train", False),
        chainer.using_config("type_check", False),
        chainer.using_config("use_cudnn", "never"),
        chainer.no_backprop_mode(),
    ):
        yield
