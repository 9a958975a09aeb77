from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile import summarise
from chainer_profile.analyse.summaries import layer_memory
from chainer_profile.record.recording import Layer, MemoryUse, Recording
from tests.conftest import make_recording

OUTPUT = 16 * 32 * 32 * 4  # bytes of every output of make_recording


def use(peaks: list[int], retained: list[int] | None = None) -> MemoryUse:
    return MemoryUse(tuple(peaks), tuple(retained or [0] * len(peaks)), 1, 2, 3, None)


def recording(layers: list[Layer], peaks: list[int] | None = None) -> Recording:
    memory = None if peaks is None else use(peaks)
    return make_recording(len(layers), layers=tuple(layers), memory=memory)


def cells(table: pd.DataFrame | dict[str, Any], name: str) -> list[int | None]:
    return [None if pd.isna(value) else int(value) for value in table[name]]


def test_what_is_measured_and_what_is_known_of_the_arrays() -> None:
    layer = Layer(
        0, "/", "A", input_nbytes=300, parameter_nbytes=20, output_nbytes=64, dtype="float32"
    )
    columns = layer_memory(recording([layer], [100]))
    assert {name.removesuffix("_nbytes"): values[0] for name, values in columns.items()} == {
        **{"peak": 100, "retained": 0, "input": 300, "parameter": 20, "output": 64},
        "workspace": 36,
    }


def test_older_recordings_have_outputs_by_their_shapes() -> None:
    table = layer_memory(make_recording(2, memory=use([OUTPUT + 7, 5])))
    assert cells(table, "output_nbytes") == [OUTPUT, OUTPUT]
    assert cells(table, "workspace_nbytes") == [7, 0]


def test_a_data_type_gives_the_size_whether_numpy_knows_it_or_not() -> None:
    for dtype, nbytes in (("bfloat16", 12), ("float16", 12), ("", None), ("no type", None)):
        table = layer_memory(
            recording([Layer(0, "/", "A", output_shapes=((2, 3),), dtype=dtype)], [15])
        )
        assert cells(table, "output_nbytes") == [nbytes], dtype
        assert cells(table, "workspace_nbytes") == [nbytes and 3], dtype
        assert cells(table, "peak_nbytes") == [15], dtype


@given(
    peaks=st.lists(st.integers(0, 1 << 50), min_size=6, max_size=6),
    outputs=st.lists(st.none() | st.integers(0, 1 << 50), min_size=6, max_size=6),
    phases=st.lists(st.sampled_from(["forward", "backward", "update"]), min_size=6, max_size=6),
)
def test_the_workspace_is_the_peak_beyond_the_outputs(
    peaks: list[int], outputs: list[int | None], phases: list[str]
) -> None:
    kinds = enumerate(zip(phases, outputs, strict=True))
    layers = [Layer(at, "/", "A", phase, output_nbytes=output) for at, (phase, output) in kinds]
    made = replace(recording(layers), memory=use(peaks, [-peak for peak in peaks]))
    table = summarise(made).layers
    assert cells(table, "retained_nbytes") == [-peak for peak in peaks]
    assert cells(table, "output_nbytes") == outputs
    assert cells(table, "workspace_nbytes") == [
        max(0, peak - output) if phase == "forward" and output is not None else None
        for peak, output, phase in zip(peaks, outputs, phases, strict=True)
    ]
