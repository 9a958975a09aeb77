"""What an optimiser made of a graph, by names alone: what the engines' contract does not see."""

from chainer_profile.engines.onnx.fusion import Step, match_names, match_steps


def steps(text):
    """Steps in words: name, kind, inputs and outputs."""
    parts = [step.split() for step in text.split("; ")]
    return [Step(a, kind, tuple(x.split(",")), tuple(y.split(","))) for a, kind, x, y in parts]


def chain(kinds):
    """Steps one after the other: ``x`` goes in, each gives a tensor of its name."""
    names = ["x", *(f"{place}{kind}" for place, kind in enumerate(kinds.split()))]
    return [
        Step(name, kind, (names[place],), (name,))
        for place, (kind, name) in enumerate(zip(kinds.split(), names[1:], strict=True))
    ]


def test_which_steps_an_optimised_one_does():
    """Where outputs have other names, or constants are gone."""
    branches = steps("0Conv Conv x 0Conv; right Conv x right; sum Add 0Conv,right sum")
    for original, made, expected in (
        # What comes last belongs to the step before; a sum to the last of its branches.
        (chain("Conv Relu"), "0Conv Conv x other", [[0, 1]]),
        (branches, "0Conv Conv x 0Conv; right Conv x right", [[0], [1, 2]]),
        (branches, "right Conv x right; 0Conv Conv x 0Conv", [[1], [0, 2]]),
        # Nothing is done twice.
        (
            [*chain("Exp"), *steps("a Add 0Exp a; b Add 0Exp b")],
            "1 Add x a; 2 Add x b",
            [[0, 1], [2]],
        ),
    ):
        assert match_steps(original, steps(made)) == expected, made
    summed = steps("sum Add input,0Exp sum")
    assert match_steps([*chain("Exp"), *summed], summed, ["0Exp"]) == [[1]]


def test_which_steps_one_that_ran_does():
    """The same of the names of what ONNX Runtime ran."""
    for original, ran, expected in (
        # The layout of images: what has no step of its own belongs to the one before; changes of
        # layout to none.
        (
            chain("FusedConv BatchNormalization Mul MaxPool Add Relu Gemm"),
            "ReorderInput 0FusedConv_nchwc 1BatchNormalization_bn_nchwc 2Mul_mul_nchwc_token_3 "
            "3MaxPool ReorderOutput 6Gemm",
            [[], [0], [1], [2], [3, 4, 5], [], [6]],
        ),
        # What was fused after the graph was written.
        (
            chain("Gemm Relu Gemm Mul"),
            "fused|0Gemm 2Gemm 3Mul/QuickGeluFusion/",
            [[0, 1], [2], [3]],
        ),
        # A layer may have a name like ONNX Runtime's.
        (steps("0_Conv@/my_bn Conv x 0_Conv@/my_bn"), "0_Conv@/my_bn_nchwc", [[0]]),
    ):
        names = [name.replace("|", " ") for name in ran.split()]
        assert match_names(original, names) == expected, ran
