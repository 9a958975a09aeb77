"""Builds a network with a change applied, in the process that runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import chainer
import numpy as np

from chainer_profile.advice.worker import WorkerError
from chainer_profile.analyse.findings import Change
from chainer_profile.basics.describe import NS
from chainer_profile.basics.units import format_scientific
from chainer_profile.engines.catalogue import BASELINE
from chainer_profile.engines.equality import difference, host_copies, tolerance
from chainer_profile.engines.protocol import Network, flat_arrays
from chainer_profile.engines.race import Race, make_contestants
from chainer_profile.kernels.accelerate import Accelerated, accelerate
from chainer_profile.measure import configuration, runner
from chainer_profile.measure.arguments import Arguments
from chainer_profile.measure.clock import HOST_CLOCK
from chainer_profile.measure.steps import AnyStep, ForwardStep, learn_first, make_step
from chainer_profile.measure.threads import limit_blas_threads
from chainer_profile.record.recording import Settings

#: Largest number of trials that time layers, and about how many seconds they take.
_LAYER_TRIALS, _LAYER_S = 50, 0.5
#: Largest allowed relative difference of gradients in float64, and the batch size of that check.
_GRADIENT_TOLERANCE, _GRADIENT_BATCHSIZE = 1e-6, 4

#: Builds the network on the CPU, and its arguments, for a batch size.
Build = Callable[[int], tuple[Any, Arguments]]


@contextmanager
def network_with_change(
    build: Build, settings: Settings, loss: str, change: Change
) -> Iterator[Any]:
    """Build the network, apply a change, and yield an object that runs and checks it."""
    changed = replace(
        settings,
        threads=change.threads or settings.threads,
        batchsize=change.batchsize or settings.batchsize,
        dtype=change.dtype or settings.dtype,
        keep_memory=change.keep_memory or settings.keep_memory,
    )
    with ExitStack() as stack:
        stack.enter_context(limit_blas_threads(changed.threads))
        stack.enter_context(configuration.configured(changed))
        model, arguments = build(changed.batchsize)
        if change.batchsize not in (None, arguments.batchsize):
            raise WorkerError(f"the input file fixes the batch size at {arguments.batchsize}")
        changed = replace(changed, batchsize=arguments.batchsize)
        arguments = arguments.with_floats(configuration.input_dtype())
        step = _step(model, arguments, changed, loss)
        stack.enter_context(step.configured())
        structure = learn_first(step)
        if change.engine:
            if arguments.kwargs or not all(hasattr(value, "dtype") for value in arguments.args):
                raise WorkerError("engines take only arrays, by position")
            network = Network(
                changed.model, model, arguments.args, structure.layers, "cpu", changed.threads
            )
            yield _EngineNetwork(network, change.engine, changed.batchsize)
            return
        fast = None
        if change.kernels:
            fast = stack.enter_context(accelerate(change.kernels, threads=changed.threads))

        def build_float64() -> tuple[AnyStep, Any]:
            with chainer.using_config("dtype", np.dtype(np.float64)):
                model, arguments = build(min(changed.batchsize, _GRADIENT_BATCHSIZE))
                arguments = Arguments(arguments.args, arguments.kwargs).with_floats(np.float64)
                step = _step(model, arguments, changed, loss)
                step()
                return step, model

        yield _ChainerNetwork(step, changed, fast, build_float64)


def _step(model: Any, arguments: Arguments, settings: Settings, loss: str) -> AnyStep:
    return make_step(
        settings.phase,
        model,
        arguments.args,
        keywords=arguments.kwargs,
        train_mode=settings.train_mode,
        loss=loss,
        seed=settings.seed,
    )


class _ChainerNetwork:
    """A network that Chainer runs, with its own kernels or others; ``batchsize`` inputs a run."""

    def __init__(
        self,
        step: AnyStep,
        settings: Settings,
        fast: Accelerated | None,
        build_float64: Callable[[], tuple[AnyStep, Any]],
    ) -> None:
        self.run, self.batchsize = step, settings.batchsize
        self._seed, self._fast, self._build_float64 = settings.seed, fast, build_float64

    def check(self) -> str:
        """Compare outputs or gradients with Chainer's kernels, and describe a difference.

        Returns an empty text if they agree. The network is not used after this.

        Gradients are compared in float64. In float32, rounding decides whether a number near 0
        passes a ReLU: a rounded input changes Chainer's own gradients by several per cent.
        """
        if self._fast is None:
            return ""
        step, model, compared = self.run, None, "outputs"
        if not isinstance(step, ForwardStep):
            (step, model), compared = self._build_float64(), "gradients"
        got = self._outputs_or_gradients(step, model)
        self._fast.undo()
        expected = self._outputs_or_gradients(step, model)
        largest = difference(expected, got).relative
        allowed = tolerance(expected[0].dtype) if model is None else _GRADIENT_TOLERANCE
        if largest <= allowed:
            return ""
        return f"its {compared} differ by {format_scientific(largest)}"

    def _outputs_or_gradients(self, step: AnyStep, model: Any) -> tuple[Any, ...]:
        """Run a step. Return its outputs, or the gradients of ``model`` if it is not None."""
        np.random.seed(self._seed)  # noqa: NPY002  (Chainer's)
        outputs = step()
        if model is None:
            return host_copies(flat_arrays(outputs))
        params = (param for _, param in sorted(model.namedparams()))
        return host_copies([param.grad for param in params if param.grad is not None])

    def layers(self) -> list[tuple[str, str, str, float]]:
        """Phase, label, path and median seconds of each layer, for one input."""
        begin_ns = HOST_CLOCK.now_ns()
        self.run()
        run_s = max((HOST_CLOCK.now_ns() - begin_ns) * NS, 1e-6)
        trials = max(3, min(_LAYER_TRIALS, int(_LAYER_S / run_s)))
        recording = runner.run(
            self.run,
            Settings(trials=trials, clean_trials=0, warmups=1),
            memory=False,
            choose_threads=False,
        )
        medians = np.median(recording.self_ns, axis=0) * NS / self.batchsize
        return [
            (layer.phase, layer.label, layer.path, float(median_s))
            for layer, median_s in zip(recording.layers, medians, strict=True)
        ]


class _EngineNetwork:
    """A network that another engine runs."""

    def __init__(self, network: Network, name: str, batchsize: int) -> None:
        self._network, self._name, self.batchsize = network, name, batchsize
        _, contestant = make_contestants([name])
        if contestant.error:
            raise WorkerError(contestant.error)
        self._engine = contestant.engine
        self._engine.prepare(network)

    def run(self) -> object:
        return self._engine.run(self._network.inputs)

    def check(self) -> str:
        """Compare the outputs with Chainer's, and describe a difference; empty if they agree."""
        contestants = make_contestants([BASELINE, self._name])
        race = Race(contestants, self._network, trials=1, warmups=0)
        race.run()
        engine = contestants[1]
        if engine.error or engine.difference is None or not engine.wrong:
            return engine.error
        return f"its outputs differ by {format_scientific(engine.difference.relative)}"

    def layers(self) -> list[tuple[str, str, str, float]]:
        """Return an empty list, because the engine's nodes are not Chainer's layers."""
        return []
