"""The network under ONNX Runtime."""

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
from chainer_profile.engines.onnx.fusion import blocked_by, done_by, steps_of
from chainer_profile.engines.onnx.nodes import Origin, read_model, read_origin
from chainer_profile.engines.onnx.weights import other_parameter
from chainer_profile.engines.protocol import EngineError, EngineNode, EngineProfile, Network

# Events of a profile, which ONNX Runtime writes as text: so many are parsed at a time.
_MAX_EVENTS = 25_000
_WARMUPS = 3
_KERNEL = "_kernel_time"
_CPU = "CPUExecutionProvider"
#: Providers that launch kernels and do not wait for them.
_ON_GPU = frozenset(
    f"{name}ExecutionProvider" for name in ("CUDA", "MIGraphX", "NvTensorRTRTX", "Tensorrt")
)
#: Name of a node that a provider has compiled from several.
_SUBGRAPH = "subgraph"

#: Name and kind of a node, and its number among those of the same name and kind.
_NodeName = tuple[str, str, int]


class OnnxRuntimeEngine:
    """ONNX Runtime on a provider. It runs the exported network, whose nodes have layers' names."""

    #: How many nodes the provider does not run, in words; empty if it runs all.
    note = ""
    network: Network
    #: The exported network, an ``onnx.ModelProto``.
    model: Any
    origin: Origin

    def __init__(self, provider: str = _CPU) -> None:
        self.name = "onnxruntime" if provider == _CPU else f"onnxruntime:{provider}"
        self.provider = provider

    @property
    def version(self) -> str:
        import onnxruntime

        return str(onnxruntime.__version__)

    # -- getting ready

    def prepare(self, network: Network) -> None:
        """Export the network and compile it."""
        from chainer_profile.engines.onnx.export import export_model

        self._refuse(network)
        self.start(network, export_model(network))

    def load(self, network: Network, path: Path) -> None:
        """Prepare the engine from a file, with the weights of that file."""
        self._refuse(network)
        self.start(network, read_model(path))

    def other_weights(self) -> str:
        """The path of the first parameter that differs in the model; empty if all are equal."""
        return other_parameter(self.model, self.network.model)

    def _refuse(self, network: Network) -> None:
        if network.gpu:
            raise EngineError("it takes arrays from a CPU's memory only: leave out --gpu")

    def start(self, network: Network, model: Any) -> None:
        """Compile a model of a network for the next runs."""
        origin = read_origin(model)
        origin.check(network)
        self.network, self.model, self.origin = network, model, origin
        self._steps = steps_of(model.graph)
        if self.provider == _CPU:
            self._use(self._compile(model))
        else:
            with tempfile.TemporaryDirectory(prefix="chainer-profile-") as folder:
                # When its profiling has ended, the session runs as if without.
                self._use(self._compile(model, **_profiling_in(Path(folder))))
                self.run(network.inputs)
                self._require_provider(_events(self._session))

    def _use(self, session: Any) -> None:
        """Run this session from now on."""
        self._session = session
        self._inputs = [value.name for value in session.get_inputs()]
        self._outputs = [value.name for value in session.get_outputs()]

    def _require_provider(self, events: Sequence[dict[str, Any]]) -> None:
        """Refuse a session that falls back to the CPU in silence; note the nodes that do."""
        ran_by = Counter(event["args"]["provider"] for event in events if _is_kernel(event))
        n_here, others = ran_by.pop(self.provider, 0), ", ".join(sorted(ran_by))
        if self.provider not in self._session.get_providers() or not n_here:
            raise EngineError(
                f"none of its nodes runs on {self.provider}: ONNX Runtime would take {others}"
            )
        if others:
            nodes = plural(n_here + ran_by.total(), "node")
            self.note = (
                f"{n_here} of its {nodes} ran on {self.provider} (a node may be a subgraph of "
                f"several layers), the others on {others}"
            )

    def save(self, path: Path) -> None:
        """Write the model into a file."""
        with replacing(path) as file:
            file.write(self.model.SerializeToString())

    def _compile(self, model: Any, **settings: Any) -> Any:
        """A session of a model, with the same settings for all but these."""
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
                enable_fallback=0,  # with a message on standard output
            )
        except Exception as error:  # of many kinds
            raise EngineError(f"ONNX Runtime cannot compile it: {one_line(error)}") from error

    def _provider_options(self) -> dict[str, str]:
        """Options that keep a provider to float32 and to the network's threads."""
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
        return dict(zip(self._inputs, inputs, strict=True))

    def run(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Run a forward pass; the outputs are new arrays."""
        return tuple(self._session.run(self._outputs, self._feed(inputs)))

    def intermediates(self, inputs: tuple[Any, ...]) -> dict[int, Any]:
        """Output arrays by index of Chainer's layer, for layers that have nodes."""
        import onnx

        # The output of a layer of several nodes is that of the last.
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
        """Times of its nodes by its own profiler, in further sessions.

        Layers that no node does are gone.
        """
        if self.provider in _ON_GPU:
            raise EngineError("its clock tells when a GPU's nodes begin, not how long they take")
        names: list[_NodeName] = []
        node_us: list[list[int]] = []
        run_us: list[int] = []
        with tempfile.TemporaryDirectory(prefix="chainer-profile-") as folder:
            while len(run_us) < trials:
                # The first trial shows how many nodes there are.
                count = max(1, _MAX_EVENTS // (len(names) + 2)) if names else 1
                runs = self._timed_runs(inputs, min(count, trials - len(run_us)), Path(folder))
                for node_times, total in runs:
                    names = names or list(node_times)
                    if node_times.keys() != set(names):
                        raise EngineError("its nodes differ between trials")
                    # Branches may run in another order in every session.
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
        """For every trial the microseconds of each node, in their order, and of the run."""
        session = self._compile(self.model, **_profiling_in(folder))
        feed = self._feed(inputs)
        for _ in range(_WARMUPS + trials):
            session.run(self._outputs, feed)
        return _runs(_events(session))[_WARMUPS:]

    def _nodes(self, ran: Sequence[tuple[str, str]], folder: Path) -> list[EngineNode]:
        import onnx
        import onnxruntime

        subgraphs = [name for name, _ in ran if name == _SUBGRAPH]
        if subgraphs and len(ran) == 1:
            return [self._node(*ran[0], range(len(self._steps)))]
        if subgraphs:
            raise EngineError("its subgraphs do not say which layers they compute")
        # ONNX Runtime fuses steps first and changes the layout later.
        level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        path = str(folder / "fused.onnx")
        self._compile(self.model, graph_optimization_level=level, optimized_model_filepath=path)
        graph = onnx.load(path).graph
        fused = steps_of(graph)
        parts = done_by(self._steps, fused, [tensor.name for tensor in graph.initializer])
        done = blocked_by(fused, [name for name, _ in ran])
        return [
            self._node(name, kind, [place for at in fused_places for place in parts[at]])
            for (name, kind), fused_places in zip(ran, done, strict=True)
        ]

    def _node(self, name: str, kind: str, places: Iterable[int]) -> EngineNode:
        """A node that does these steps of the exported network."""
        layers = {
            index for place in places for index in self.origin.layers_of(self._steps[place].name)
        }
        return EngineNode(name, kind, tuple(sorted(layers)))


def _profiling_in(folder: Path) -> dict[str, Any]:
    """Settings of a session that writes its profile into a folder."""
    return {"enable_profiling": True, "profile_file_prefix": str(folder / "profile")}


def _events(session: Any) -> list[dict[str, Any]]:
    """The events in a session's profile, which ends; its file is removed."""
    path = Path(session.end_profiling())
    events: list[dict[str, Any]] = json.loads(path.read_bytes())
    path.unlink()
    return events


def _is_kernel(event: dict[str, Any]) -> bool:
    """Whether an event is the run of a node."""
    return bool(event["cat"] == "Node" and event["name"].endswith(_KERNEL))


def _name_and_kind(event: dict[str, Any]) -> tuple[str, str]:
    provider, kind = event["args"]["provider"], str(event["args"]["op_name"])
    name = event["name"].removesuffix(_KERNEL)
    if name.startswith(f"{provider}_"):  # a subgraph, with a new number in every session
        return _SUBGRAPH, provider.removesuffix("ExecutionProvider")
    # A change of layout has another name in every session.
    return (kind if re.fullmatch(rf"|{kind}(_token)?(_\d+)?", name) else name), kind


def _runs(events: Sequence[dict[str, Any]]) -> list[tuple[dict[_NodeName, int], int]]:
    """The runs in a profile, in order: microseconds of the nodes, and of the whole."""
    runs = []
    within: dict[_NodeName, int] = {}
    counts: Counter[tuple[str, str]] = Counter()
    # A run ends after its nodes.
    for event in sorted(events, key=lambda event: event["ts"] + event["dur"]):
        if event["name"] == "model_run":
            runs.append((within, int(event["dur"])))
            within, counts = {}, Counter()
        elif _is_kernel(event):
            name, kind = _name_and_kind(event)
            within[name, kind, counts[name, kind]] = int(event["dur"])
            counts[name, kind] += 1
    return runs
