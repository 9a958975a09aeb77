"""Work of update rules and hooks: exact operations, and bytes of arrays used or changed."""

import chainer
from chainer import optimizer_hooks as hooks
from chainer import optimizers

from chainer_profile.costs.update import UPDATES, hook_work, update_work
from chainer_profile.costs.work import ArraySpec, Work
from tests.costs.cases import CountingArray, real, to_counting

SHAPE = (2, 3)
N = 6
F32 = "float32"


def specs(*shapes, dtype=F32):
    return tuple(ArraySpec(shape, dtype) for shape in shapes)


#: Optimizers, and their operations per element.
RULES = {
    "sgd": (optimizers.SGD(0.1), 2),
    "momentum": (optimizers.MomentumSGD(0.1), 4),
    "corrected_momentum": (optimizers.CorrectedMomentumSGD(0.1), 4),
    "nesterov": (optimizers.NesterovAG(0.1), 7),
    "ada_grad": (optimizers.AdaGrad(0.1), 7),
    "ada_delta": (optimizers.AdaDelta(), 14),
    "rmsprop": (optimizers.RMSprop(), 9),
    "rmsprop_inside": (optimizers.RMSprop(eps_inside_sqrt=True), 9),
    "rmsprop_graves": (optimizers.RMSpropGraves(), 15),
    "smorms3": (optimizers.SMORMS3(), 21),
    "msvag": (optimizers.MSVAG(), 24),
    "msvag_decay": (optimizers.MSVAG(weight_decay_rate=0.1), 24),
    "adam": (optimizers.Adam(), 13),
    "adam_decay": (optimizers.Adam(weight_decay_rate=0.1), 14),
    "adam_w": (optimizers.AdamW(weight_decay_rate=0.1, eta=0.5), 14),
    "amsgrad": (optimizers.AMSGrad(), 14),
    "ada_bound": (optimizers.AdaBound(), 15),
    "ams_bound": (optimizers.AMSBound(), 16),
}


#: Rules whose code does a step twice, multiplies by a mask, or clips: the count would differ.
NOT_COUNTABLE = ("rmsprop_graves", "smorms3", "msvag", "msvag_decay", "ada_bound", "ams_bound")


def updated(optimizer, array):
    """Update a parameter once; return it, and its work as known before the update."""
    param = chainer.Parameter(array)
    param.update_rule = optimizer.create_update_rule()
    work = update_work(param.update_rule, (ArraySpec.of(param),))
    param.grad = real(*SHAPE).astype(array.dtype).view(type(array))
    param.update()
    return param, work


def test_work_of_each_update_rule(subtests):
    """A second update has the exact operations. It reads all arrays, and writes changed ones."""
    for name, (optimizer, flops_per_element) in RULES.items():
        with subtests.test(name):
            param, work = updated(optimizer, real(*SHAPE).astype(F32))
            arrays = {"param": param.array, **param.update_rule.state}
            before = {key: array.copy() for key, array in arrays.items()}
            param.update()
            after = {"param": param.array, **param.update_rule.state}
            changed = [key for key in before if (before[key] != after[key]).any()]
            if name in ("amsgrad", "ams_bound"):
                changed = [*before]  # the maximum may not change
            nbytes = N * 4
            assert work == Work(
                flops_per_element * N, (1 + len(before)) * nbytes, len(changed) * nbytes
            )
            assert work == update_work(param.update_rule, (ArraySpec.of(param),))
            if name not in NOT_COUNTABLE:
                param, _ = updated(optimizer, to_counting(real(*SHAPE)))
                CountingArray.flops = 0
                param.update()
                assert CountingArray.flops == flops_per_element * N


def test_every_rule_and_hook_has_a_formula():
    rules = [
        optimizer().create_update_rule()
        for optimizer in vars(optimizers).values()
        if isinstance(optimizer, type) and issubclass(optimizer, chainer.GradientMethod)
    ]
    assert len(rules) == 15
    names = {type(rule).__name__ for rule in rules}
    names |= {name for name, kind in vars(hooks).items() if isinstance(kind, type)}
    assert names == UPDATES.keys()


def test_work_with_loss_scale_float32_copies_and_hooks_of_a_rule():
    rule = optimizers.SGD().create_update_rule()
    # Gradients are divided in place by the loss scale before the rule reads them.
    assert update_work(rule, specs(SHAPE), scaled=True) == Work(3 * N, 24 + 48, 24 + 24)
    # With a float32 copy, the rule reads the copy, v and a gradient of 2 bytes. It writes the copy,
    # v and the parameter.
    rule = optimizers.MomentumSGD().create_update_rule()
    plain = update_work(rule, specs(SHAPE, dtype="float16"))
    rule.use_fp32_update()
    assert plain == Work(4 * N, N * 6, N * 4)
    assert update_work(rule, specs(SHAPE, dtype="float16")) == Work(4 * N, N * 10, N * 10)
    assert update_work(rule, specs(SHAPE)) == Work(4 * N, N * 12, N * 8)
    # Hooks of the rule add their work.
    rule = optimizers.MomentumSGD().create_update_rule()
    rule.add_hook(hooks.WeightDecay(0.1))
    rule.add_hook(hooks.Lasso(0.1), timing="post")
    nbytes = (2 + 3 + 2) * 24, (1 + 2 + 1) * 24
    assert update_work(rule, specs(SHAPE)) == Work((2 + 4 + 3) * N, *nbytes)
    rule.add_hook(lambda rule, param: None, name="mine")
    assert update_work(rule, specs(SHAPE)) is None
    # The work of all parameters adds up.
    rule = optimizers.Adam().create_update_rule()
    assert update_work(rule, specs((5, 7), (3,))) == Work(13 * 38, 4 * 4 * 38, 3 * 4 * 38)
    assert update_work(rule, ()) == update_work(rule, specs((0, 3))) == Work(0, 0, 0)
    assert hook_work(hooks.GradientClipping(1), ()) == Work(0, 0, 0)


#: Hooks, operations for all elements, and whether the hook reads the parameter.
HOOKS = (
    (hooks.WeightDecay(0.1), 2 * N, True),
    (hooks.Lasso(0.1), 3 * N, True),
    (hooks.GradientHardClipping(-0.5, 0.5), 2 * N, False),
    (hooks.GradientHardClipping(-0.5, None), N, False),
    (hooks.GradientNoise(1.0), 2 * N, False),
    # Two norms of N squares, N - 1 sums and a root; 5 operations for the rate.
    (hooks.GradientLARS(weight_decay=0.1), 2 * 2 * N + 5 + 3 * N, True),
)


def test_work_of_each_hook():
    for hook, flops, takes_param in HOOKS:
        work = hook_work(hook, specs(SHAPE, dtype="float64"))
        assert work == Work(flops, (2 if takes_param else 1) * 8 * N, 8 * N), hook
        assert hook_work(hook, specs(SHAPE, SHAPE, dtype="float64")) == work + work, hook
    # A square, an addition and a product for each element of all gradients; a root, a quotient and
    # a minimum.
    assert hook_work(hooks.GradientClipping(0.5), specs(SHAPE, (4,))) == Work(32, 40, 40)
    noise = hooks.GradientNoise(1.0, lambda xp, shape, dtype, hook, opt: xp.zeros(shape, dtype))
    assert hook_work(noise, specs(SHAPE)) is None
