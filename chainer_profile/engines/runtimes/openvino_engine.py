"""The network under OpenVINO."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import astuple, dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.basics.files import replacing
from chainer_profile.engines.onnx.files import check_foreign, read_file
from chainer_profile.engines.onnx.folding import fold_normalisations
from chainer_profile.engines.onnx.fusion import Step, done_by, steps_of
from chainer_profile.engines.onnx.nodes import METADATA, Origin
from chainer_profile.engines.protocol import EngineError, EngineNode, EngineProfile, Network
from chainer_profile.engines.runtimes.exported import ExportedEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

_STEPS = f"{METADATA}_steps"
#: Steps that are no work.
_NO_WORK = frozenset(("Const", "Input", "Output"))
#: What OpenVINO adds to the name of a layer whose bias it adds by itself.
_PART = "/WithoutBiases"
_WARMUPS = 10
_LEAST_BLOCK = 20
_MOST_BLOCKS = 10


@dataclass(frozen=True, eq=False)
class _Block:
    """The mean trial of a block: of each node nanoseconds, and whether it does anything."""

    nodes: list[EngineNode]
    node_ns: NDArray[np.int64]
    run_ns: int
    ran: NDArray[np.bool_]


class OpenVinoEngine(ExportedEngine):
    """OpenVINO on the CPU, in the precision that is asked for and no other.

    Its files are its own: ``.xml`` for the network, and beside it ``.bin`` for the weights.

    Attributes:
        name: What tables call it.
        suffix: What its files end with.
    """

    name = "openvino"
    suffix = ".xml"
    title = "OpenVINO"

    @property
    def version(self) -> str:
        """Version of OpenVINO."""
        import openvino

        return str(openvino.__version__).partition("-")[0]

    # -- getting ready

    def _check(self, network: Network) -> None:
        super()._check(network)
        known = shared_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        if network.precision.upper() not in known:
            raise EngineError(f"it has no {network.precision} on this CPU: choose fp32")

    def _converted(self, exported: Any) -> Any:
        steps = steps_of(exported.graph)
        fold_normalisations(exported)
        with self._failing("read"):
            model = shared_core().read_model(exported.SerializeToString())
        metadata = {entry.key: entry.value for entry in exported.metadata_props}
        model.set_rt_info(metadata[METADATA], [METADATA])
        model.set_rt_info(json.dumps([astuple(step) for step in steps]), [_STEPS])
        return model

    def _read(self, path: Path) -> Any:
        weights = path.with_suffix(".bin")
        for part in (path, weights):
            read_file(part)
        try:
            return shared_core().read_model(path, weights)
        except Exception as error:
            raise EngineError(f"{path} is damaged, or no model of OpenVINO") from error

    def _described(self, model: Any, network: Network) -> tuple[Origin | None, list[Step]]:
        if not model.has_rt_info([METADATA]):
            check_foreign([_shape(value.partial_shape) for value in model.inputs], network)
            return None, []
        origin = Origin.from_json(model.get_rt_info([METADATA]).astype(str))
        origin.check(network)
        return origin, _read_steps(model.get_rt_info([_STEPS]).astype(str))

    def _compile(self, model: Any, **settings: Any) -> Any:
        precision = self._known.precision
        config: dict[str, Any] = {
            "PERFORMANCE_HINT": "LATENCY",
            # Left out, OpenVINO takes bfloat16 by itself where the CPU has it.
            "INFERENCE_PRECISION_HINT": "f32" if precision == "fp32" else precision,
        }
        if self._known.threads is not None:
            config["INFERENCE_NUM_THREADS"] = self._known.threads
        with self._failing("compile"):
            return shared_core().compile_model(model, "CPU", config | settings)

    def _start(self, network: Network, model: Any) -> None:
        super()._start(network, model)
        self._request = self._compiled.create_infer_request()
        self._n_outputs = len(model.outputs)

    def save(self, path: Path) -> None:
        """Write the model as OpenVINO's two files.

        Raises:
            ProfileError: They cannot be written.
        """
        import openvino

        with tempfile.TemporaryDirectory(prefix="chainer-profile-") as folder:
            part = Path(folder, "model.xml")
            try:
                openvino.save_model(self._model, part, compress_to_fp16=False)
                contents = [part.with_suffix(".bin").read_bytes(), part.read_bytes()]
            except Exception as error:
                raise ProfileError(f"{path}: cannot be written ({one_line(error)})") from error
        # The file that the user names comes last: where it is, its weights are.
        for place, content in zip((path.with_suffix(".bin"), path), contents, strict=True):
            with replacing(place) as file:
                file.write(content)

    # -- running

    def run(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """One forward pass; the outputs are new arrays."""
        _infer(self._request, inputs)
        # They are OpenVINO's own, which the next run overwrites.
        return tuple(
            self._request.get_output_tensor(place).data.copy() for place in range(self._n_outputs)
        )

    def serve(self, inputs: tuple[Any, ...], requests: int, jobs: int) -> Callable[[], None]:
        """So many runs in as many streams of a model that is compiled for them."""
        import openvino

        config: dict[str, Any] = {"NUM_STREAMS": jobs, "PERFORMANCE_HINT": "THROUGHPUT"}
        if self._known.threads is not None:
            config["INFERENCE_NUM_THREADS"] = jobs * self._known.threads
        queue = openvino.AsyncInferQueue(self._compile(self._model, **config), jobs)

        def all_of_them() -> None:
            for _ in range(requests):
                queue.start_async(list(inputs))
            queue.wait_all()

        return all_of_them

    def _tensors(self, names: Sequence[str], inputs: tuple[Any, ...]) -> dict[str, Any]:
        model = self._model.clone()
        values = [value for node in model.get_ordered_ops() for value in node.outputs()]
        there = {name for value in values for name in value.get_names()}.intersection(names)
        given = {name for value in model.outputs for name in value.get_names()}
        model.add_outputs([name for name in names if name in there - given])
        request = self._compile(model).create_infer_request()
        _infer(request, inputs)
        return {name: request.get_tensor(name).data for name in there}

    # -- layer by layer

    def layers(self, inputs: tuple[Any, ...], trials: int) -> EngineProfile | None:
        """Times of its nodes, by its own counters; of a trial as a whole, around its call.

        OpenVINO keeps means, from the first run of a compiled network on. So the trials are made
        in blocks, each with the network compiled anew, and a row is the mean trial of a block.
        """
        n_blocks = max(1, min(_MOST_BLOCKS, trials // _LEAST_BLOCK))
        blocks = [
            self._block(inputs, len(part)) for part in np.array_split(np.arange(trials), n_blocks)
        ]
        # Nodes of OpenVINO's own have other names each time.
        made = [[(node.kind, node.layers) for node in block.nodes] for block in blocks]
        if any(one != made[0] for one in made):
            raise EngineError("its nodes are not the same every time")
        node_ns = np.array([block.node_ns for block in blocks], np.int64)
        run_ns = np.array([block.run_ns for block in blocks], np.int64)
        ran = np.any([block.ran for block in blocks], axis=0)
        nodes = [node for node, runs in zip(blocks[0].nodes, ran, strict=True) if runs]
        return self._profile_of(nodes, node_ns[:, ran], run_ns)

    def _block(self, inputs: tuple[Any, ...], trials: int) -> _Block:
        """The mean of some trials of a network that is compiled for them."""
        import openvino

        compiled = self._compile(self._model, PERF_COUNT=True)
        request = compiled.create_infer_request()
        steps = self._runtime_steps(compiled.get_runtime_model())
        nodes = [
            EngineNode(step.name, step.kind, self._layers_of(places))
            for step, places in zip(steps, done_by(self._steps, steps), strict=True)
        ]
        columns = {node.name: place for place, node in enumerate(nodes)}

        def run() -> int:
            begin = time.perf_counter_ns()
            _infer(request, inputs)
            return time.perf_counter_ns() - begin

        def mean_us() -> tuple[Any, Any]:
            """Whole microseconds of every node, the rest cut off; and whether it runs at all."""
            means, ran = np.zeros(len(nodes), np.int64), np.zeros(len(nodes), np.bool_)
            for info in request.get_profiling_info():
                place = columns.get(info.node_name)
                if place is not None and info.status == openvino.ProfilingInfo.Status.EXECUTED:
                    means[place] = info.real_time // timedelta(microseconds=1)
                    ran[place] = True
            return means, ran

        for _ in range(_WARMUPS):
            run()
        # Their sum is known up to what was cut off: no more is counted than was there.
        most_before = (mean_us()[0] + 1) * _WARMUPS - 1
        total_ns = sum(run() for _ in range(trials))
        means, ran = mean_us()
        node_us = np.maximum(means * (_WARMUPS + trials) - most_before, 0)
        return _Block(nodes, node_us * 1000 // trials, total_ns // trials, ran)

    def _runtime_steps(self, model: Any) -> list[Step]:
        """The steps of a compiled model, in the order in which they run.

        Each gives the last of the tensors of the exported network that are said to be in it, or
        one that is not in that.
        """
        place = {name: at for at, step in enumerate(self._steps) for name in step.outputs}
        gives: dict[str, str] = {}
        steps: list[tuple[int, Step]] = []
        for node in model.get_ordered_ops():
            info = {key: value.astype(str) for key, value in node.get_rt_info().items()}
            kind = info.get("layerType", node.get_type_name())
            name = node.get_friendly_name()
            parts = info.get("originalLayersNames", "").split(",")
            # A convolution whose bias is added in the same step.
            known = [part for part in (part.removesuffix(_PART) for part in parts) if part in place]
            gives[name] = max(known, key=place.__getitem__) if known else f"{name} of OpenVINO"
            if kind not in _NO_WORK:
                sources = (value.get_source_output().get_node() for value in node.inputs())
                inputs = tuple(gives[source.get_friendly_name()] for source in sources)
                order = int(info.get("execOrder", len(steps)))
                steps.append((order, Step(name, kind, inputs, (gives[name],))))
        return [step for _, step in sorted(steps, key=lambda entry: entry[0])]


@cache
def shared_core() -> Any:
    """Give this process's ``openvino.Core``, kept to its end.

    Each core gives signal handlers a stack of its own and takes it away with itself. When several
    end in another order than the last first, the stack left in use is one that is gone, and the
    next signal (Ctrl-C) ends the process with a segmentation fault. (Seen with OpenVINO 2026.4.)
    """
    import openvino

    return openvino.Core()


def _infer(request: Any, inputs: tuple[Any, ...]) -> None:
    """One forward pass, without what ``infer`` does for other kinds of arguments."""
    import openvino

    for place, array in enumerate(inputs):
        tensor = openvino.Tensor(np.ascontiguousarray(array), shared_memory=True)
        request.set_input_tensor(place, tensor)
    # Within this thread, without waking another one.
    request.infer(share_outputs=True)


def _shape(partial: Any) -> tuple[int | None, ...]:
    """A shape, with None where a dimension is not fixed."""
    if partial.rank.is_dynamic:
        return ()
    return tuple(None if dim.is_dynamic else int(dim.get_length()) for dim in partial)


def _read_steps(text: str) -> list[Step]:
    """Steps from JSON.

    Raises:
        EngineError: They cannot be what was written.
    """
    try:
        return [
            Step(str(name), str(kind), tuple(inputs), tuple(outputs), bool(idle), twin)
            for name, kind, inputs, outputs, idle, twin in json.loads(text)
        ]
    except (ValueError, TypeError) as error:
        raise EngineError("what the file says of Chainer's layers is damaged") from error
