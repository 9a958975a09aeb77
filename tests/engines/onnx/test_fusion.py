"""What an optimiser made of a graph, told by the names of its tensors."""

from __future__ import annotations

from chainer_profile.engines.onnx.fusion import Step, blocked_by, done_by


def chain(*kinds: str) -> list[Step]:
    """Steps one after the other: ``x`` goes in, each gives a tensor of its name."""
    names = ["x", *(f"{place}{kind}" for place, kind in enumerate(kinds))]
    return [
        Step(name, kind, (names[place],), (name,), idle=kind in ("Identity", "Reshape"))
        for place, (kind, name) in enumerate(zip(kinds, names[1:], strict=True))
    ]


def test_what_stays_is_itself() -> None:
    steps = chain("Conv", "Relu")
    assert done_by(steps, steps) == [[0], [1]]


def test_what_lies_between_inputs_and_outputs() -> None:
    steps = chain("Conv", "BatchNormalization", "Relu", "Pad", "Conv")
    fused = [
        Step("a", "FusedConv", ("x", "W"), ("2Relu",)),
        Step("b", "Conv", ("2Relu",), ("4Conv",)),
    ]
    assert done_by(steps, fused) == [[0, 1, 2], [3, 4]]


def test_what_comes_last_belongs_to_the_step_before() -> None:
    steps = chain("Conv", "Relu")
    assert done_by(steps, [Step("0Conv", "Conv", ("x",), ("other",))]) == [[0, 1]]


def test_a_sum_belongs_to_the_last_of_its_branches() -> None:
    steps = [
        *chain("Conv"),
        Step("right", "Conv", ("x",), ("right",)),
        Step("sum", "Add", ("0Conv", "right"), ("sum",)),
    ]
    for order, expected in (((0, 1), [[0], [1, 2]]), ((1, 0), [[1], [0, 2]])):
        fused = [Step(steps[at].name, "Conv", ("x",), steps[at].outputs) for at in order]
        assert done_by(steps, fused) == expected


def test_views_that_were_dropped_are_gone() -> None:
    steps = chain("Conv", "Identity", "Reshape", "Relu")
    assert done_by(steps, [steps[0], Step("r", "Relu", ("0Conv",), ("3Relu",))]) == [[0], [3]]
    assert done_by(
        steps, [steps[0], Step("v", "Reshape", ("0Conv",), ("2Reshape",)), steps[3]]
    ) == [
        [0],
        [2],
        [3],
    ]


def test_what_became_a_constant_is_gone() -> None:
    steps = [*chain("Exp"), Step("sum", "Add", ("input", "0Exp"), ("sum",))]
    assert done_by(steps, steps[1:], ["0Exp"]) == [[1]]


def test_what_is_computed_once_for_two() -> None:
    for kept in (0, 1):
        steps = [
            Step("a", "Conv", ("x",), ("a",)),
            Step("b", "Conv", ("x",), ("b",), twin=0),
            Step("relu", "Relu", ("a",), ("relu",)),
            Step("tanh", "Tanh", ("b",), ("tanh",)),
        ]
        fused = [
            steps[kept],
            Step("relu", "Relu", steps[kept].outputs, ("relu",)),
            Step("tanh", "Tanh", steps[kept].outputs, ("tanh",)),
        ]
        assert done_by(steps, fused) == [[0, 1], [2], [3]]
        # Both are there: each is its own.
        assert done_by(steps, steps) == [[0], [1], [2], [3]]


def test_nothing_is_done_twice() -> None:
    steps = [
        *chain("Exp"),
        Step("a", "Add", ("0Exp",), ("a",)),
        Step("b", "Add", ("0Exp",), ("b",)),
    ]
    fused = [Step("1", "Add", ("x",), ("a",)), Step("2", "Add", ("x",), ("b",))]
    assert done_by(steps, fused) == [[0, 1], [2]]


def test_the_layout_of_images() -> None:
    steps = chain("FusedConv", "BatchNormalization", "Mul", "MaxPool", "Add", "Relu", "Gemm")
    ran = [
        "ReorderInput",
        "0FusedConv_nchwc",
        "1BatchNormalization_bn_nchwc",
        "2Mul_mul_nchwc_token_3",
        "3MaxPool",
        "ReorderOutput",
        "6Gemm",
    ]
    # What has no step of its own belongs to the one before; changes of layout to none.
    assert blocked_by(steps, ran) == [[], [0], [1], [2], [3, 4, 5], [], [6]]


def test_what_was_fused_after_the_graph_was_written() -> None:
    steps = chain("Gemm", "Relu", "Gemm", "Mul")
    ran = ["fused 0Gemm", "2Gemm", "3Mul/QuickGeluFusion/"]
    assert blocked_by(steps, ran) == [[0, 1], [2], [3]]


def test_a_layer_may_have_a_name_like_onnx_runtimes() -> None:
    steps = [Step("0_Conv@/my_bn", "Conv", ("x",), ("0_Conv@/my_bn",))]
    assert blocked_by(steps, ["0_Conv@/my_bn_nchwc"]) == [[0]]
