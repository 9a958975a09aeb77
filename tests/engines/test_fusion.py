"""What an optimiser made of a graph, told by the names of its tensors."""

from chainer_profile.engines.onnx.fusion import Step, blocked_by, done_by


def steps(text):
    """Steps in words: name, kind, inputs and outputs."""
    parts = [step.split() for step in text.split("; ")]
    return [Step(a, kind, tuple(x.split(",")), tuple(y.split(","))) for a, kind, x, y in parts]


def chain(kinds):
    """Steps one after the other: ``x`` goes in, each gives a tensor of its name."""
    names = ["x", *(f"{place}{kind}" for place, kind in enumerate(kinds.split()))]
    return [
        Step(name, kind, (names[place],), (name,), idle=kind in ("Identity", "Reshape"))
        for place, (kind, name) in enumerate(zip(kinds.split(), names[1:], strict=True))
    ]


BRANCHES = steps("0Conv Conv x 0Conv; right Conv x right; sum Add 0Conv,right sum")
VIEWS = chain("Conv Identity Reshape Relu")
TWINS = steps("a Conv x a; b Conv x b; relu Relu a relu; tanh Tanh b tanh")
TWINS[1] = Step("b", "Conv", ("x",), ("b",), twin=0)
#: Original steps, what an optimiser made of them, and which of them each of these does.
DONE = [
    (chain("Conv Relu"), "0Conv Conv x 0Conv; 1Relu Relu 0Conv 1Relu", [[0], [1]]),
    # What lies between inputs and outputs.
    (
        chain("Conv BatchNormalization Relu Pad Conv"),
        "a FusedConv x,W 2Relu; b Conv 2Relu 4Conv",
        [[0, 1, 2], [3, 4]],
    ),
    # What comes last belongs to the step before.
    (chain("Conv Relu"), "0Conv Conv x other", [[0, 1]]),
    # A sum belongs to the last of its branches.
    (BRANCHES, "0Conv Conv x 0Conv; right Conv x right", [[0], [1, 2]]),
    (BRANCHES, "right Conv x right; 0Conv Conv x 0Conv", [[1], [0, 2]]),
    # Views that were dropped are gone.
    (VIEWS, "0Conv Conv x 0Conv; r Relu 0Conv 3Relu", [[0], [3]]),
    (VIEWS, "0Conv Conv x 0Conv; v Reshape 0Conv 2Reshape; 3Relu Relu v 3Relu", [[0], [2], [3]]),
    # What is computed once for two, or for each.
    (TWINS, "a Conv x a; relu Relu a relu; tanh Tanh a tanh", [[0, 1], [2], [3]]),
    (TWINS, "b Conv x b; relu Relu b relu; tanh Tanh b tanh", [[0, 1], [2], [3]]),
    (
        TWINS,
        "a Conv x a; b Conv x b; relu Relu a relu; tanh Tanh b tanh",
        [[0], [1], [2], [3]],
    ),
    # Nothing is done twice.
    (
        [*chain("Exp"), *steps("a Add 0Exp a; b Add 0Exp b")],
        "1 Add x a; 2 Add x b",
        [[0, 1], [2]],
    ),
]


def test_which_steps_an_optimised_one_does():
    found = [(original, made, done_by(original, steps(made))) for original, made, _ in DONE]
    assert found == DONE
    summed = steps("sum Add input,0Exp sum")  # of a constant, which is gone
    assert done_by([*chain("Exp"), *summed], summed, ["0Exp"]) == [[1]]


#: The same of the names of what ONNX Runtime ran.
RAN = [
    # The layout of images: what has no step of its own belongs to the one before; changes of
    # layout to none.
    (
        chain("FusedConv BatchNormalization Mul MaxPool Add Relu Gemm"),
        "ReorderInput 0FusedConv_nchwc 1BatchNormalization_bn_nchwc 2Mul_mul_nchwc_token_3 "
        "3MaxPool ReorderOutput 6Gemm",
        [[], [0], [1], [2], [3, 4, 5], [], [6]],
    ),
    # What was fused after the graph was written.
    (chain("Gemm Relu Gemm Mul"), "fused|0Gemm 2Gemm 3Mul/QuickGeluFusion/", [[0, 1], [2], [3]]),
    # A layer may have a name like ONNX Runtime's.
    (steps("0_Conv@/my_bn Conv x 0_Conv@/my_bn"), "0_Conv@/my_bn_nchwc", [[0]]),
]


def test_which_steps_one_that_ran_does():
    for original, ran, expected in RAN:
        names = [name.replace("|", " ") for name in ran.split()]
        assert blocked_by(original, names) == expected, ran
