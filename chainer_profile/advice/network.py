"""A network under a change, in the process that runs it."""

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
from chainer_profile.engines.race import Race, choose
from chainer_profile.kernels.accelerate import Accelerated, accelerate
from chainer_profile.measure import configuration, runner
from chainer_profile.measure.arguments import Arguments
from chainer_profile.measure.clock import HOST_CLOCK
from chainer_profile.measure.steps import AnyStep, ForwardStep, learn_first, make_step
from chainer_profile.measure.threads import limit_blas_threads
from chainer_profile.record.recording import Settings

#: Layers are timed in at most so many trials, which take about so many seconds.
_LAYER_TRIALS, _LAYER_S = 50, 0.5
#: The largest allowed relative difference of gradients in float64, and the inputs for them.
_EXACT, _EXACT_BATCH = 1e-6, 4

#: Builds the network on the CPU, with its arguments, for so many inputs at a time.
Build = Callable[[int], tuple[Any, Arguments]]


@contextmanager
def network_under(build: Build, settings: Settings, loss: str, change: Change) -> Iterator[Any]:
    """The network under a change of its settings, ready to run."""
    own = replace(
        settings,
        threads=change.threads or settings.threads,
        batchsize=change.batchsize or settings.batchsize,
        dtype=change.dtype or settings.dtype,
        keep_memory=change.keep_memory or settings.keep_memory,
    )
    with ExitStack() as stack:
        stack.enter_context(limit_blas_threads(own.threads))
        stack.enter_context(configuration.configured(own))
        model, given = build(own.batchsize)
        if change.batchsize not in (None, given.batchsize):
            raise WorkerError(f"the input file fixes the batch size at {given.batchsize}")
        own = replace(own, batchsize=given.batchsize)
        given = given.with_floats(configuration.input_dtype())
        step = _step(model, given, own, loss)
        stack.enter_context(step.configured())
        structure = learn_first(step)
        if change.engine:
            if given.kwargs or not all(hasattr(value, "dtype") for value in given.args):
                raise WorkerError("engines take only arrays, by position")
            network = Network(own.model, model, given.args, structure.layers, "cpu", own.threads)
            yield _UnderEngine(network, change.engine, own.batchsize)
            return
        fast = None
        if change.kernels:
            fast = stack.enter_context(accelerate(change.kernels, threads=own.threads))

        def exact() -> tuple[AnyStep, Any]:
            with chainer.using_config("dtype", np.dtype(np.float64)):
                model, given = build(min(own.batchsize, _EXACT_BATCH))
                given = Arguments(given.args, given.kwargs).with_floats(np.float64)
                step = _step(model, given, own, loss)
                step()
                return step, model

        yield _UnderChainer(step, own, fast, exact)


def _step(model: Any, given: Arguments, settings: Settings, loss: str) -> AnyStep:
    return make_step(
        settings.phase,
        model,
        given.args,
        keywords=given.kwargs,
        train_mode=settings.train_mode,
        loss=loss,
        seed=settings.seed,
    )


class _UnderChainer:
    """Chainer itself, on its own or other kernels; a run has ``batchsize`` inputs."""

    def __init__(
        self,
        step: AnyStep,
        settings: Settings,
        fast: Accelerated | None,
        exact: Callable[[], tuple[AnyStep, Any]],
    ) -> None:
        self.run, self.batchsize = step, settings.batchsize
        self._seed, self._fast, self._exact = settings.seed, fast, exact

    def check(self) -> str:
        """Why its outputs or gradients are wrong; empty if they are right. It is not run again.

        Gradients are compared in float64: in float32 a number on the edge of a ReLU falls to one
        side or the other, and Chainer's own differ by some per cent for a rounding of the input.
        """
        if self._fast is None:
            return ""
        step, model, compared = self.run, None, "outputs"
        if not isinstance(step, ForwardStep):
            (step, model), compared = self._exact(), "gradients"
        got = self._outcome(step, model)
        self._fast.undo()
        expected = self._outcome(step, model)
        most = difference(expected, got).relative
        allowed = tolerance(expected[0].dtype) if model is None else _EXACT
        return "" if most <= allowed else f"its {compared} differ by {format_scientific(most)}"

    def _outcome(self, step: AnyStep, model: Any) -> tuple[Any, ...]:
        """Outputs of a forward pass, or the gradients that a step leaves."""
        np.random.seed(self._seed)  # noqa: NPY002  (Chainer's)
        outputs = step()
        if model is None:
            return host_copies(flat_arrays(outputs))
        params = (param for _, param in sorted(model.namedparams()))
        return host_copies([param.grad for param in params if param.grad is not None])

    def layers(self) -> list[tuple[str, str, str, float]]:
        """Phase, label, path and median seconds of each layer of an input."""
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


class _UnderEngine:
    """Another engine; its outputs are compared as in a race."""

    def __init__(self, network: Network, name: str, batchsize: int) -> None:
        self._network, self._name, self.batchsize = network, name, batchsize
        _, contestant = choose([name])
        if contestant.error:
            raise WorkerError(contestant.error)
        self._engine = contestant.engine
        self._engine.prepare(network)

    def run(self) -> object:
        return self._engine.run(self._network.inputs)

    def check(self) -> str:
        """Run it beside Chainer in a race, which compares them."""
        contestants = choose([BASELINE, self._name])
        race = Race(contestants, self._network, trials=1, warmups=0)
        race.run()
        engine = contestants[1]
        if engine.error or engine.difference is None or not engine.wrong:
            return engine.error
        return f"its outputs differ by {format_scientific(engine.difference.relative)}"

    def layers(self) -> list[tuple[str, str, str, float]]:
        """None: its nodes are not Chainer's layers."""
        return []
