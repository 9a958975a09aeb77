"""ONNX Runtime as an engine."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from chainer_profile.basics.errors import one_line
from chainer_profile.basics.files import replacing
from chainer_profile.basics.units import plural
from chainer_profile.engines.onnx.fusion import match_names, match_steps, steps_of
from chainer_profile.engines.onnx.nodes import Origin, read_model, read_origin
from chainer_profile.engines.onnx.weights import other_parameter
from chainer_profile.engines.protocol import EngineError, EngineNode, EngineProfile, Network

# Largest number of events in a profile, which ONNX Runtime writes as JSON.
_MAX_EVENTS = 25_000
_WARMUPS = 3
_KERNEL = "_kernel_time"
_CPU = "CPUExecutionProvider"
#: Providers that launch kernels without waiting for their end.
_ON_GPU = frozenset(
    f"{name}ExecutionProvider" for name in ("CUDA", "MIGraphX", "NvTensorRTRTX", "Tensorrt")
)
#: Name of a node that a provider has compiled from several nodes.
_SUBGRAPH = "subgraph"

#: Name and kind of a node, and its number among the nodes with the same name and kind.
_NodeName = tuple[str, str, int]


class OnnxRuntimeEngine:
    """Runs the exported network by ONNX Runtime, on an execution provider."""

    #: Describes the nodes that the provider does not run; empty if it runs all.
    note = ""
    network: Network
    model: Any  #: The exported network, an ``onnx.ModelProto``.
    origin: Origin

    def __init__(self, provider: str = _CPU) -> None:
        self.name = "onnxruntime" if provider == _CPU else f"onnxruntime:{provider}"
        self.provider = provider

    @property
    def version(self) -> str:
        import onnxruntime

        return str(onnxruntime.__version__)

    # -- preparation

    def prepare(self, network: Network) -> None:
        """Export the network and compile it."""
        from chainer_profile.engines.onnx.export import export_model

        self._refuse_gpu(network)
        self.start(network, export_model(network))

    def load(self, network: Network, path: Path) -> None:
        """Prepare the engine from a file, with the weights of that file."""
        self._refuse_gpu(network)
        self.start(network, read_model(path))

    def other_weights(self) -> str:
        """The path of the first parameter that differs in the model; empty if all are equal."""
        return other_parameter(self.model, self.network.model)

    def _refuse_gpu(self, network: Network) -> None:
        if network.gpu:
            raise EngineError("it accepts only arrays in the CPU's memory: omit --gpu")

    def start(self, network: Network, model: Any) -> None:
        """Compile an exported model of the network, and use it for the next runs.

        Raises EngineError if the model is from another network, or the provider runs no node.
        """
        origin = read_origin(model)
        origin.check(network)
        self.network, self.model, self.origin = network, model, origin
        self._steps = steps_of(model.graph)
        if self.provider == _CPU:
            self._use(self._compile(model))
        else:
            with tempfile.TemporaryDirectory(prefix="chainer-profile-") as folder:
                # After the end of profiling, a session is as fast as one without it.
                self._use(self._compile(model, **_profiling_in(Path(folder))))
                self.run(network.inputs)
                self._require_provider(_events(self._session))

    def _use(self, session: Any) -> None:
        """Use a session for the next runs."""
        self._session = session
        self._inputs = [value.name for value in session.get_inputs()]
        self._outputs = [value.name for value in session.get_outputs()]

    def _require_provider(self, events: Sequence[dict[str, Any]]) -> None:
        """Raise EngineError if no node runs on the provider; note nodes that run elsewhere."""
        ran_by = Counter(event["args"]["provider"] for event in events if _is_kernel(event))
        count, others = ran_by.pop(self.provider, 0), ", ".join(sorted(ran_by))
        if self.provider not in self._session.get_providers() or not count:
            raise EngineError(
                f"none of its nodes runs on {self.provider}: ONNX Runtime would use {others}"
            )
        if others:
            nodes = plural(count + ran_by.total(), "node")
            self.note = (
                f"{count} of its {nodes} ran on {self.provider} (a node may be a subgraph of "
                f"several layers), the others on {others}"
            )

    def save(self, path: Path) -> None:
        """Write the model to a file."""
        with replacing(path) as file:
            file.write(self.model.SerializeToString())

    def _compile(self, model: Any, **settings: Any) -> Any:
        """Make a session of a model; ``settings`` are additional session options."""
        import onnxruntime

        onnxruntime.disable_telemetry_events()
        onnxruntime.set_default_logger_severity(4)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.network.threads or 0
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 4
        for name, value in settings.items():
            setattr(options, name, value)
        try:
            return onnxruntime.InferenceSession(
                model.SerializeToString(),
                options,
                providers=[(self.provider, self._provider_options())],
                enable_fallback=0,  # a fallback would print on standard output
            )
        except Exception as error:  # ONNX Runtime raises many kinds
            raise EngineError(f"ONNX Runtime cannot compile it: {one_line(error)}") from error

    def _provider_options(self) -> dict[str, str]:
        """Options for full float32 precision and the network's number of threads."""
        if self.provider == "CUDAExecutionProvider":
            return {"use_tf32": "0"}
        if self.provider != "OpenVINOExecutionProvider":
            return {}
        options = {"device_type": "CPU", "precision": "FP32"}
        if self.network.threads is not None:
            options["num_of_threads"] = str(self.network.threads)
        return options

    # -- running

    def _feed(self, inputs: tuple[Any, ...]) -> dict[str, Any]:
        """Name the inputs for ONNX Runtime."""
        return dict(zip(self._inputs, inputs, strict=True))

    def run(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Run a forward pass; the outputs are new arrays."""
        return tuple(self._session.run(self._outputs, self._feed(inputs)))

    def intermediates(self, inputs: tuple[Any, ...]) -> dict[int, Any]:
        """Output arrays of the layers that have nodes, by index of Chainer's layer."""
        import onnx

        # If a layer has several nodes, the last one has its output.
        outputs = {
            index: step.outputs[0]
            for step in self._steps
            for index in self.origin.layers_of(step.name)[:1]
        }
        names = list(dict.fromkeys(outputs.values()))
        model = type(self.model)()
        model.CopyFrom(self.model)
        model.graph.output.extend(
            onnx.helper.make_empty_tensor_value_info(name)
            for name in names
            if name not in self._outputs
        )
        arrays = dict(zip(names, self._compile(model).run(names, self._feed(inputs)), strict=True))
        return {index: arrays[name] for index, name in outputs.items()}

    # -- layer by layer

    def layers(self, inputs: tuple[Any, ...], trials: int) -> EngineProfile:
        """Measure the nodes by ONNX Runtime's profiler, in additional sessions."""
        if self.provider in _ON_GPU:
            raise EngineError("its profiler times the launch of a GPU's nodes, not their execution")
        names: list[_NodeName] = []
        node_us: list[list[int]] = []
        run_us: list[int] = []
        with tempfile.TemporaryDirectory(prefix="chainer-profile-") as folder:
            while len(run_us) < trials:
                # The first trial shows the number of nodes.
                count = max(1, _MAX_EVENTS // (len(names) + 2)) if names else 1
                runs = self._timed_runs(inputs, min(count, trials - len(run_us)), Path(folder))
                for node_times, total in runs:
                    names = names or list(node_times)
                    if node_times.keys() != set(names):
                        raise EngineError("its nodes differ between trials")
                    # Each session may run branches in another order.
                    node_us.append([node_times[name] for name in names])
                    run_us.append(total)
            nodes = self._nodes([(name, kind) for name, kind, _ in names], Path(folder))
        done = {index for node in nodes for index in node.layers}
        return EngineProfile(
            tuple(nodes),
            np.array(node_us, np.int64).reshape(trials, len(nodes)) * 1000,
            np.array(run_us, np.int64) * 1000,
            gone=tuple(index for index in range(len(self.network.layers)) if index not in done),
        )

    def _timed_runs(
        self, inputs: tuple[Any, ...], trials: int, folder: Path
    ) -> list[tuple[dict[_NodeName, int], int]]:
        """Run trials; return the microseconds of each node and of the whole run, per trial."""
        session = self._compile(self.model, **_profiling_in(folder))
        feed = self._feed(inputs)
        for _ in range(_WARMUPS + trials):
            session.run(self._outputs, feed)
        return _runs(_events(session))[_WARMUPS:]

    def _nodes(self, ran: Sequence[tuple[str, str]], folder: Path) -> list[EngineNode]:
        """Find the layers of each node that ran, given by name and kind."""
        import onnx
        import onnxruntime

        subgraphs = [name for name, _ in ran if name == _SUBGRAPH]
        if subgraphs and len(ran) == 1:
            return [self._node(*ran[0], range(len(self._steps)))]
        if subgraphs:
            raise EngineError("the layers of its subgraphs are unknown")
        # ONNX Runtime first fuses nodes, and changes the layout later.
        level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        path = str(folder / "fused.onnx")
        self._compile(self.model, graph_optimization_level=level, optimized_model_filepath=path)
        graph = onnx.load(path).graph
        fused = steps_of(graph)
        parts = match_steps(self._steps, fused, [tensor.name for tensor in graph.initializer])
        done = match_names(fused, [name for name, _ in ran])
        return [
            self._node(name, kind, [step for fused_step in steps for step in parts[fused_step]])
            for (name, kind), steps in zip(ran, done, strict=True)
        ]

    def _node(self, name: str, kind: str, steps: Iterable[int]) -> EngineNode:
        """Make a node that computes these steps of the exported network, given by their indices."""
        layers = {
            index for step in steps for index in self.origin.layers_of(self._steps[step].name)
        }
        return EngineNode(name, kind, tuple(sorted(layers)))


def _profiling_in(folder: Path) -> dict[str, Any]:
    """Session options that write a profile into a folder."""
    return {"enable_profiling": True, "profile_file_prefix": str(folder / "profile")}


def _events(session: Any) -> list[dict[str, Any]]:
    """End a session's profiling, remove the file, and return the events."""
    path = Path(session.end_profiling())
    events: list[dict[str, Any]] = json.loads(path.read_bytes())
    path.unlink()
    return events


def _is_kernel(event: dict[str, Any]) -> bool:
    """Whether an event is the execution of a node."""
    return bool(event["cat"] == "Node" and event["name"].endswith(_KERNEL))


def _name_and_kind(event: dict[str, Any]) -> tuple[str, str]:
    """Name and type of the node of an event, equal in all sessions."""
    provider, kind = event["args"]["provider"], str(event["args"]["op_name"])
    name = event["name"].removesuffix(_KERNEL)
    if name.startswith(f"{provider}_"):  # a subgraph, with a new number in every session
        return _SUBGRAPH, provider.removesuffix("ExecutionProvider")
    # A change of layout has a different name in each session.
    return (kind if re.fullmatch(rf"|{kind}(_token)?(_\d+)?", name) else name), kind


def _runs(events: Sequence[dict[str, Any]]) -> list[tuple[dict[_NodeName, int], int]]:
    """Split a profile into runs: microseconds of the nodes, and of the whole run."""
    runs = []
    node_us: dict[_NodeName, int] = {}
    counts: Counter[tuple[str, str]] = Counter()
    # The event of a run ends after the events of its nodes.
    for event in sorted(events, key=lambda event: event["ts"] + event["dur"]):
        if event["name"] == "model_run":
            runs.append((node_us, int(event["dur"])))
            node_us, counts = {}, Counter()
        elif _is_kernel(event):
            name, kind = _name_and_kind(event)
            node_us[name, kind, counts[name, kind]] = int(event["dur"])
            counts[name, kind] += 1
    return runs
