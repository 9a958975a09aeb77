"""The network under ONNX Runtime."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from chainer_profile.basics.errors import one_line
from chainer_profile.basics.files import replacing
from chainer_profile.engines.equality import TOLERANCES, difference, outputs_of
from chainer_profile.engines.onnx.batch import larger_batch, with_any_batch
from chainer_profile.engines.onnx.files import check_model, read_model
from chainer_profile.engines.onnx.fusion import Step, blocked_by, done_by, steps_of
from chainer_profile.engines.onnx.nodes import Origin, write_origin
from chainer_profile.engines.protocol import EngineError, EngineNode, EngineProfile, Network
from chainer_profile.engines.runtimes.exported import ExportedEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Its profiler keeps a million events at most, as text; so many at a time are parsed.
_MOST_EVENTS = 25_000
_WARMUPS = 3
_KERNEL = "_kernel_time"


class OnnxRuntimeEngine(ExportedEngine):
    """ONNX Runtime, on a CPU.

    Attributes:
        name: What tables call it.
        suffix: What its files end with.
    """

    name = "onnxruntime"
    suffix = ".onnx"
    title = "ONNX Runtime"

    def __init__(self) -> None:
        super().__init__()
        self._inputs: list[str] = []
        self._outputs: list[str] = []

    @property
    def version(self) -> str:
        """Version of ONNX Runtime."""
        import onnxruntime

        return str(onnxruntime.__version__)

    # -- getting ready

    def _check(self, network: Network) -> None:
        super()._check(network)
        if network.precision == "bf16":
            raise EngineError("it has no kernels for bfloat16: choose fp32")
        if network.precision == "fp16":
            raise EngineError("it would compute in float32 and convert all arrays: choose fp32")

    def _read(self, path: Path) -> Any:
        return read_model(path)

    def _described(self, model: Any, network: Network) -> tuple[Origin | None, list[Step]]:
        return check_model(model, network), steps_of(model.graph)

    def _start(self, network: Network, model: Any) -> None:
        super()._start(network, model)
        self._inputs = [value.name for value in self._compiled.get_inputs()]
        self._outputs = [value.name for value in self._compiled.get_outputs()]

    def _compile(self, model: Any, **settings: Any) -> Any:
        import onnxruntime

        onnxruntime.disable_telemetry_events()
        onnxruntime.set_default_logger_severity(4)
        options = onnxruntime.SessionOptions()
        # One thread for each of the network's.
        options.intra_op_num_threads = self._known.threads or 0
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 4
        for name, value in settings.items():
            setattr(options, name, value)
        with self._failing("compile"):
            return onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )

    def take_any_batch(self) -> None:
        """Have the model take any batch size, where it is right for another one, too.

        Raises:
            EngineError: It is not: says why.
        """
        larger = larger_batch(self._known)
        try:
            expected = outputs_of(larger.model, larger.inputs)
        except Exception as error:  # the network's own code
            raise EngineError(f"the network takes no other: {one_line(error)}") from error
        other = type(self)()
        try:
            other._start(larger, with_any_batch(self._model, self._known, expected))
            found = difference(expected, other.run(larger.inputs))
        except Exception as error:  # ONNX Runtime's, of many kinds
            raise EngineError(f"the model holds the batch size: {one_line(error)}") from error
        if not found.relative <= TOLERANCES[self._known.precision]:
            raise EngineError("the model gives other outputs than Chainer for another batch")
        self._start(self._known, other._model)

    def take_opset(self, opset: int) -> None:
        """Have the model of another version of ONNX's operators.

        Raises:
            EngineError: ``onnx`` cannot convert it, or ONNX Runtime cannot run it then.
        """
        import onnx

        try:
            model = onnx.version_converter.convert_version(self._model, opset)
            model.ir_version = onnx.helper.find_min_ir_version_for(model.opset_import)
        except Exception as error:  # onnx's, of many kinds
            raise EngineError(f"cannot be converted: {one_line(error)}") from error
        if self._origin is not None:
            write_origin(model, self._origin)
        self._start(self._known, model)

    def save(self, path: Path) -> None:
        """Write the model as an ONNX file.

        Raises:
            ProfileError: It cannot be written.
        """
        with replacing(path) as file:
            file.write(self._model.SerializeToString())

    # -- running

    def _feed(self, inputs: tuple[Any, ...]) -> dict[str, Any]:
        return dict(zip(self._inputs, inputs, strict=True))

    def run(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """One forward pass; the outputs are new arrays."""
        return tuple(self._compiled.run(self._outputs, self._feed(inputs)))

    def serve(self, inputs: tuple[Any, ...], requests: int, jobs: int) -> Callable[[], None]:
        """So many runs by threads, which call the session at the same time."""
        feed = self._feed(inputs)

        def one(_: int) -> None:
            self._compiled.run(self._outputs, feed)

        def all_of_them() -> None:
            with ThreadPoolExecutor(jobs) as pool:
                list(pool.map(one, range(requests)))

        return all_of_them

    def _tensors(self, names: Sequence[str], inputs: tuple[Any, ...]) -> dict[str, Any]:
        import onnx

        model = type(self._model)()
        model.CopyFrom(self._model)
        model.graph.output.extend(
            onnx.helper.make_empty_tensor_value_info(name)
            for name in names
            if name not in self._outputs
        )
        arrays = self._compile(model).run(names, self._feed(inputs))
        return dict(zip(names, arrays, strict=True))

    # -- layer by layer

    def layers(self, inputs: tuple[Any, ...], trials: int) -> EngineProfile | None:
        """Times of its nodes, by its own profiler, in a session of their own."""
        names: list[_NodeName] = []
        node_us: list[list[int]] = []
        run_us: list[int] = []
        with tempfile.TemporaryDirectory(prefix="chainer-profile-") as folder:
            while len(run_us) < trials:
                # How many nodes there are is known after the first trial.
                most = max(1, _MOST_EVENTS // (len(names) + 2)) if names else 1
                runs = self._timed_runs(inputs, min(most, trials - len(run_us)), Path(folder))
                for node_times, total in runs:
                    names = names or list(node_times)
                    if node_times.keys() != set(names):
                        raise EngineError("its nodes are not the same in every trial")
                    # The order of branches may be another one in every session.
                    node_us.append([node_times[name] for name in names])
                    run_us.append(total)
            kinds = [(name, kind) for name, kind, _ in names]
            layers = self._layers_by_node(kinds, Path(folder))
        nodes = [EngineNode(*kind, done) for kind, done in zip(kinds, layers, strict=True)]
        times = np.array(node_us, np.int64).reshape(trials, len(nodes))
        return self._profile_of(nodes, times * 1000, np.array(run_us, np.int64) * 1000)

    def _timed_runs(
        self, inputs: tuple[Any, ...], trials: int, folder: Path
    ) -> list[tuple[dict[_NodeName, int], int]]:
        """For every trial the microseconds of each node as they ran, and those of the run."""
        session = self._compile(
            self._model, enable_profiling=True, profile_file_prefix=str(folder / "profile")
        )
        feed = self._feed(inputs)
        for _ in range(_WARMUPS + trials):
            session.run(self._outputs, feed)
        path = Path(session.end_profiling())
        events = json.loads(path.read_bytes())
        path.unlink()
        return _runs(events)[_WARMUPS:]

    def _layers_by_node(
        self, kinds: Sequence[tuple[str, str]], folder: Path
    ) -> list[tuple[int, ...]]:
        """Indices of Chainer's layers that every node does."""
        if self._origin is None:
            return [()] * len(kinds)
        import onnxruntime

        # Fusing and changing the layout come one after the other.
        levels = onnxruntime.GraphOptimizationLevel
        fused, constants = self._optimised(levels.ORT_ENABLE_EXTENDED, folder)
        blocked, _ = self._optimised(levels.ORT_ENABLE_ALL, folder)
        parts = done_by(self._steps, fused, constants)
        by_name: dict[tuple[str, str], list[tuple[int, ...]]] = {}
        for step, done in zip(blocked, blocked_by(fused, blocked), strict=True):
            key = _plain_name(step.name, step.kind), step.kind
            layers = self._layers_of(place for part in done for place in parts[part])
            by_name.setdefault(key, []).append(layers)
        # Those of the same name are in the same order.
        return [
            by_name[key].pop(0) if by_name.get(key) else self._origin.layers_of(key[0])
            for key in kinds
        ]

    def _optimised(self, level: Any, folder: Path) -> tuple[list[Step], list[str]]:
        """The steps of the model after its optimiser, and the names of its constants."""
        import onnx

        path = folder / "optimised.onnx"
        options = {"graph_optimization_level": level, "optimized_model_filepath": str(path)}
        self._compile(self._model, **options)
        graph = onnx.load(path).graph
        path.unlink()
        return steps_of(graph), [tensor.name for tensor in graph.initializer]


#: Name and kind of a node, and which it is of those where both are the same.
_NodeName = tuple[str, str, int]


def _plain_name(name: str, kind: str) -> str:
    """A node's name; its kind for a change of layout, which has another name in every session."""
    return kind if not name or re.fullmatch(rf"{kind}(_token)?(_\d+)?", name) else name


def _runs(events: Sequence[dict[str, Any]]) -> list[tuple[dict[_NodeName, int], int]]:
    """The runs in a profile, in order: the nodes as they ran, and the time of the whole."""
    found = []
    within: dict[_NodeName, int] = {}
    counts: Counter[tuple[str, str]] = Counter()
    # A run ends after its nodes.
    for event in sorted(events, key=lambda event: event["ts"] + event["dur"]):
        if event["name"] == "model_run":
            found.append((within, int(event["dur"])))
            within, counts = {}, Counter()
        elif event["cat"] == "Node" and event["name"].endswith(_KERNEL):
            kind = str(event["args"]["op_name"])
            name = _plain_name(event["name"].removesuffix(_KERNEL), kind)
            within[name, kind, counts[name, kind]] = int(event["dur"])
            counts[name, kind] += 1
    return found
