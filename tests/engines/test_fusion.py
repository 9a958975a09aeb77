"""Optimised and executed nodes are matched with the original graph by name."""

from chainer_profile.engines.onnx.fusion import Step, match_names, match_steps


def steps(text):
    """Parse steps: name, kind, inputs and outputs, separated by semicolons."""
    parts = [step.split() for step in text.split("; ")]
    return [Step(a, kind, tuple(x.split(",")), tuple(y.split(","))) for a, kind, x, y in parts]


def chain(kinds):
    """Make successive steps. The input is ``x``, and each output is named like its step."""
    names = ["x", *(f"{index}{kind}" for index, kind in enumerate(kinds.split()))]
    return [
        Step(name, kind, (names[index],), (name,))
        for index, (kind, name) in enumerate(zip(kinds.split(), names[1:], strict=True))
    ]


def test_optimised_steps_are_matched_with_original_steps():
    """Outputs may have other names, and constants may be gone."""
    branches = steps("0Conv Conv x 0Conv; right Conv x right; sum Add 0Conv,right sum")
    for original, optimised, expected in (
        # A missing step belongs to the step before it, and a sum to its last branch.
        (chain("Conv Relu"), "0Conv Conv x other", [[0, 1]]),
        (branches, "0Conv Conv x 0Conv; right Conv x right", [[0], [1, 2]]),
        (branches, "right Conv x right; 0Conv Conv x 0Conv", [[1], [0, 2]]),
        # No step is in two nodes.
        (
            [*chain("Exp"), *steps("a Add 0Exp a; b Add 0Exp b")],
            "1 Add x a; 2 Add x b",
            [[0, 1], [2]],
        ),
    ):
        assert match_steps(original, steps(optimised)) == expected, optimised
    summed = steps("sum Add input,0Exp sum")
    assert match_steps([*chain("Exp"), *summed], summed, ["0Exp"]) == [[1]]


def test_executed_nodes_are_matched_with_steps():
    """ONNX Runtime changes the names of the nodes that it executes."""
    for original, ran, expected in (
        # With another layout of images: a missing step belongs to the node before it, and changes
        # of layout have no step.
        (
            chain("FusedConv BatchNormalization Mul MaxPool Add Relu Gemm"),
            "ReorderInput 0FusedConv_nchwc 1BatchNormalization_bn_nchwc 2Mul_mul_nchwc_token_3 "
            "3MaxPool ReorderOutput 6Gemm",
            [[], [0], [1], [2], [3, 4, 5], [], [6]],
        ),
        # Nodes that were fused after the graph was written.
        (
            chain("Gemm Relu Gemm Mul"),
            "fused|0Gemm 2Gemm 3Mul/QuickGeluFusion/",
            [[0, 1], [2], [3]],
        ),
        # The name of a layer may look like a name of ONNX Runtime.
        (steps("0_Conv@/my_bn Conv x 0_Conv@/my_bn"), "0_Conv@/my_bn_nchwc", [[0]]),
    ):
        names = [name.replace("|", " ") for name in ran.split()]
        assert match_names(original, names) == expected, ran
