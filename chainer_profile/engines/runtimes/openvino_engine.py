"""The network under OpenVINO."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import astuple
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.engines.onnx.fusion import Step, done_by, steps_of
from chainer_profile.engines.onnx.nodes import METADATA, Origin, read_file
from chainer_profile.engines.protocol import EngineError, EngineNode
from chainer_profile.engines.runtimes.exported import ExportedEngine, Timed

_STEPS = f"{METADATA}_steps"
#: What OpenVINO adds to the name of a layer whose bias it adds by itself, and what
#: :func:`_split_normalisations` adds.
_PARTS = re.compile("(/WithoutBiases|/product)$")
#: Kinds of nodes that do nothing, and that do nothing where OpenVINO names no primitive for them.
_ENDS = frozenset(("Const", "Input", "Output"))
_VIEWS = frozenset(("Concatenation", "Reshape", "Split"))
_WARMUPS = 10
_LEAST_BLOCK = 20
_MOST_BLOCKS = 10


class OpenVinoEngine(ExportedEngine):
    """OpenVINO on the CPU; its files are ``.xml``, with the weights in ``.bin`` beside it."""

    name = "openvino"
    suffix = ".xml"
    title = "OpenVINO"

    def _check(self, precision: str) -> None:
        if precision.upper() not in shared_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
            raise EngineError(f"it does not support {precision} on this CPU: choose fp32")

    def _converted(self, exported: Any) -> Any:
        try:
            model = shared_core().read_model(exported.SerializeToString())
        except Exception as error:  # of many kinds
            raise EngineError(f"{self.title} cannot read it: {one_line(error)}") from error
        if len(model.inputs) < len(exported.graph.input):
            raise EngineError(f"{self.title} leaves out an input that the network does not use")
        _split_normalisations(model)
        (origin,) = (one.value for one in exported.metadata_props if one.key == METADATA)
        model.set_rt_info(origin, [METADATA])
        model.set_rt_info(json.dumps([astuple(x) for x in steps_of(exported.graph)]), [_STEPS])
        return model

    def _read(self, path: Path) -> Any:
        weights = path.with_suffix(".bin")
        for part in (path, weights):
            read_file(part)
        try:
            return shared_core().read_model(path, weights)
        except Exception as error:
            raise EngineError(f"{path} is damaged, or not an OpenVINO model") from error

    def _files(self, path: Path) -> dict[Path, bytes]:
        import openvino

        with tempfile.TemporaryDirectory(prefix="chainer-profile-") as folder:
            part = Path(folder, "model.xml")
            try:
                openvino.save_model(self.model, part, compress_to_fp16=False)
                return {
                    one: (part.with_suffix(one.suffix)).read_bytes()
                    for one in (path.with_suffix(".bin"), path)
                }
            except Exception as error:
                raise ProfileError(f"{path}: cannot be written ({one_line(error)})") from error

    def _said(self, model: Any) -> tuple[Origin | None, list[Step]]:
        if not model.has_rt_info([METADATA]):
            return None, []
        origin, steps = (model.get_rt_info([key]).astype(str) for key in (METADATA, _STEPS))
        return Origin.from_json(origin), _steps(steps)

    def _shapes(self, model: Any) -> list[tuple[int | None, ...]]:
        return [
            ()
            if value.partial_shape.rank.is_dynamic
            else tuple(None if dim.is_dynamic else dim.get_length() for dim in value.partial_shape)
            for value in model.inputs
        ]

    def _compiled(self, model: Any, **settings: Any) -> Any:
        precision = self.network.precision
        config: dict[str, Any] = {
            "PERFORMANCE_HINT": "LATENCY",
            # Left out, OpenVINO takes bfloat16 by itself where the CPU has it.
            "INFERENCE_PRECISION_HINT": "f32" if precision == "fp32" else precision,
        }
        if self.network.threads is not None:
            config["INFERENCE_NUM_THREADS"] = self.network.threads
        return shared_core().compile_model(model, "CPU", config | settings)

    def _use(self, compiled: Any) -> None:
        self._request = compiled.create_infer_request()

    # -- running

    def run(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        _infer(self._request, inputs)
        # They are OpenVINO's own, which the next run overwrites.
        return tuple(tensor.data.copy() for tensor in self._request.output_tensors)

    def _tensors(self, names: Sequence[str], inputs: tuple[Any, ...]) -> dict[str, Any]:
        model = self.model.clone()
        values = [value for node in model.get_ordered_ops() for value in node.outputs()]
        there = {name for value in values for name in value.get_names()}.intersection(names)
        given = {name for value in model.outputs for name in value.get_names()}
        model.add_outputs([name for name in names if name in there - given])
        request = self._compile(model).create_infer_request()
        _infer(request, inputs)
        return {name: request.get_tensor(name).data for name in there}

    # -- layer by layer

    def _timed(self, inputs: tuple[Any, ...], trials: int) -> Timed:
        """By its own counters; of a trial as a whole, around its call."""
        # OpenVINO keeps means, from the first run of a compiled network on. So the trials are made
        # in blocks, each with the network compiled anew, and a row is the mean trial of a block.
        n_blocks = max(1, min(_MOST_BLOCKS, trials // _LEAST_BLOCK))
        parts = np.array_split(np.arange(trials), n_blocks)
        blocks = [self._block(inputs, len(part)) for part in parts]
        nodes, node_ns, run_ns = zip(*blocks, strict=True)
        # Nodes of OpenVINO's own have other names each time.
        made = [[(node.kind, node.layers) for node in block] for block in nodes]
        if any(one != made[0] for one in made):
            raise EngineError("its nodes differ between runs")
        return nodes[0], np.array(node_ns, np.int64), np.array(run_ns, np.int64)

    def _block(
        self, inputs: tuple[Any, ...], trials: int
    ) -> tuple[list[EngineNode], list[int], int]:
        """Nodes, and the mean trial of some of a network that is compiled for them."""
        compiled = self._compile(self.model, PERF_COUNT=True)
        request = compiled.create_infer_request()

        def run() -> int:
            begin = time.perf_counter_ns()
            _infer(request, inputs)
            return time.perf_counter_ns() - begin

        def mean_us() -> dict[str, int]:
            """Whole microseconds of every node, the rest cut off."""
            return {
                info.node_name: info.real_time // timedelta(microseconds=1)
                for info in request.get_profiling_info()
            }

        for _ in range(_WARMUPS):
            run()
        before = mean_us()
        total_ns = sum(run() for _ in range(trials))
        means = mean_us()
        nodes, node_ns = [], []
        steps = _runtime_steps(compiled.get_runtime_model())
        for step, places in zip(steps, done_by(self._steps, steps), strict=True):
            if step.idle or step.name not in means:
                continue
            # Their sum is known up to what was cut off: no more is counted than was there.
            most_before = (before[step.name] + 1) * _WARMUPS - 1
            us = max(0, means[step.name] * (_WARMUPS + trials) - most_before)
            nodes.append(self._node(step.name, step.kind, places))
            node_ns.append(us * 1000 // trials)
        return nodes, node_ns, total_ns // trials


def _split_normalisations(model: Any) -> None:
    """Make a product and a sum of every batch normalisation."""
    # OpenVINO does so by itself, but gives the product a name of no use, which is all that is left
    # of a normalisation whose sum adds nothing.
    from openvino import opset8

    for op in model.get_ordered_ops():
        sources = [value.get_source_output() for value in op.inputs()]
        if op.get_type_name() != "BatchNormInference" or not all(
            source.get_node().get_type_name() == "Constant" for source in sources[1:]
        ):
            continue
        x, *constants = sources
        gamma, beta, mean, variance = (one.get_node().data.astype(float) for one in constants)
        factor = gamma / np.sqrt(variance + op.get_attributes()["epsilon"])
        shape = (-1, *[1] * (len(x.get_partial_shape()) - 2))
        factor, shift = (
            array.reshape(shape).astype(constants[0].get_node().data.dtype)
            for array in (factor, beta - mean * factor)
        )
        product = opset8.multiply(x, factor, name=f"{op.get_friendly_name()}/product")
        total = opset8.add(product, shift, name=op.get_friendly_name())
        total.output(0).set_names(op.output(0).get_names())
        op.output(0).replace(total.output(0))


def _runtime_steps(model: Any) -> list[Step]:
    """The steps of a compiled model in order; each gives what is said to be done in it."""
    steps = []
    for node in model.get_ordered_ops():
        info = {key: value.astype(str) for key, value in node.get_rt_info().items()}
        parts = [_PARTS.sub("", part) for part in info["originalLayersNames"].split(",")]
        name, kind = node.get_friendly_name(), info["layerType"]
        named = not info["primitiveType"].startswith("unknown")
        idle = kind in _ENDS or (kind in _VIEWS and not named)
        steps.append((int(info["execOrder"]), Step(name, kind, (), tuple(parts), idle)))
    return [step for _, step in sorted(steps, key=lambda entry: entry[0])]


@cache
def shared_core() -> Any:
    """Give this process's ``openvino.Core``, kept to its end."""
    # Each core gives signal handlers a stack of its own and takes it away with itself. When several
    # end in another order than the last first, the stack left in use is one that is gone, and the
    # next signal (Ctrl-C) ends the process with a segmentation fault. (Seen with OpenVINO 2026.4.)
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


def _steps(text: str) -> list[Step]:
    try:
        return [
            Step(name, kind, tuple(inputs), tuple(outputs), idle, twin)
            for name, kind, inputs, outputs, idle, twin in json.loads(text)
        ]
    except (ValueError, TypeError) as error:
        raise EngineError("the file's information about Chainer's layers is damaged") from error
