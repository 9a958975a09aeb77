"""Update rules and hooks: operations by hand, bytes by the arrays that there are or that change."""

import chainer
from chainer import optimizer_hooks as hooks
from chainer import optimizers

from chainer_profile.costs.update import UPDATES, hook_work, update_work
from chainer_profile.costs.work import ArraySpec, Work
from tests.costs.cases import Counting, counting, real

SHAPE = (2, 3)
N = 6
F32 = "float32"


def specs(*shapes, dtype=F32):
    return tuple(ArraySpec(shape, dtype) for shape in shapes)


#: Optimizer, and operations an element.
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


#: Rules that do a step twice, multiply by a mask, or compare with two bounds at once.
ELSE = ("rmsprop_graves", "smorms3", "msvag", "msvag_decay", "ada_bound", "ams_bound")


def updated(optimizer, array):
    """A parameter after one update, with its rule's state, and work known before it."""
    param = chainer.Parameter(array)
    param.update_rule = optimizer.create_update_rule()
    work = update_work(param.update_rule, (ArraySpec.of(param),))
    param.grad = real(*SHAPE).astype(array.dtype).view(type(array))
    param.update()
    return param, work


def test_updates(subtests):
    """Operations of the NumPy code of a second update; bytes of all arrays, and of changed ones."""
    for name, (optimizer, an_element) in RULES.items():
        with subtests.test(name):
            param, work = updated(optimizer, real(*SHAPE).astype(F32))
            arrays = {"param": param.array, **param.update_rule.state}
            before = {key: array.copy() for key, array in arrays.items()}
            param.update()
            after = {"param": param.array, **param.update_rule.state}
            changed = [key for key in before if (before[key] != after[key]).any()]
            if name in ("amsgrad", "ams_bound"):
                changed = [*before]  # the maximum may stay the same
            nbytes = N * 4
            assert work == Work(an_element * N, (1 + len(before)) * nbytes, len(changed) * nbytes)
            assert work == update_work(param.update_rule, (ArraySpec.of(param),))
            if name not in ELSE:
                param, _ = updated(optimizer, counting(real(*SHAPE)))
                Counting.flops = 0
                param.update()
                assert Counting.flops == an_element * N


def test_every_rule_and_hook_of_chainer_has_a_formula():
    rules = [
        made().create_update_rule()
        for made in vars(optimizers).values()
        if isinstance(made, type) and issubclass(made, chainer.GradientMethod)
    ]
    assert len(rules) == 15
    names = {type(rule).__name__ for rule in rules}
    names |= {name for name, kind in vars(hooks).items() if isinstance(kind, type)}
    assert names == UPDATES.keys()


def test_loss_scale_float32_copies_and_hooks_of_a_rule():
    rule = optimizers.SGD().create_update_rule()
    # Gradients are divided in place by the loss's scale, before the rule reads them.
    assert update_work(rule, specs(SHAPE), scaled=True) == Work(3 * N, 24 + 48, 24 + 24)
    # A copy in float32. Read: the copy, v and a gradient of 2 bytes; written: the copy, v and the
    # parameter.
    rule = optimizers.MomentumSGD().create_update_rule()
    plain = update_work(rule, specs(SHAPE, dtype="float16"))
    rule.use_fp32_update()
    assert plain == Work(4 * N, N * 6, N * 4)
    assert update_work(rule, specs(SHAPE, dtype="float16")) == Work(4 * N, N * 10, N * 10)
    assert update_work(rule, specs(SHAPE)) == Work(4 * N, N * 12, N * 8)
    # Hooks of the rule itself are steps of their own.
    rule = optimizers.MomentumSGD().create_update_rule()
    rule.add_hook(hooks.WeightDecay(0.1))
    rule.add_hook(hooks.Lasso(0.1), timing="post")
    nbytes = (2 + 3 + 2) * 24, (1 + 2 + 1) * 24
    assert update_work(rule, specs(SHAPE)) == Work((2 + 4 + 3) * N, *nbytes)
    rule.add_hook(lambda rule, param: None, name="mine")
    assert update_work(rule, specs(SHAPE)) is None
    # Work of all parameters is added up.
    rule = optimizers.Adam().create_update_rule()
    assert update_work(rule, specs((5, 7), (3,))) == Work(13 * 38, 4 * 4 * 38, 3 * 4 * 38)
    assert update_work(rule, ()) == update_work(rule, specs((0, 3))) == Work(0, 0, 0)
    assert hook_work(hooks.GradientClipping(1), ()) == Work(0, 0, 0)


#: Hook, operations for all elements, and whether it reads the parameter.
HOOKS = (
    (hooks.WeightDecay(0.1), 2 * N, True),
    (hooks.Lasso(0.1), 3 * N, True),
    (hooks.GradientHardClipping(-0.5, 0.5), 2 * N, False),
    (hooks.GradientHardClipping(-0.5, None), N, False),
    (hooks.GradientNoise(1.0), 2 * N, False),
    # Two norms: squares, N - 1 sums and a root; 5 for the rate.
    (hooks.GradientLARS(weight_decay=0.1), 2 * 2 * N + 5 + 3 * N, True),
)


def test_hooks():
    for hook, flops, takes_param in HOOKS:
        work = hook_work(hook, specs(SHAPE, dtype="float64"))
        assert work == Work(flops, (2 if takes_param else 1) * 8 * N, 8 * N), hook
        assert hook_work(hook, specs(SHAPE, SHAPE, dtype="float64")) == work + work, hook
    # All gradients at once: a square, an addition and a product each; a root, a quotient and the
    # lesser of that and 1.
    assert hook_work(hooks.GradientClipping(0.5), specs(SHAPE, (4,))) == Work(32, 40, 40)
    noise = hooks.GradientNoise(1.0, lambda xp, shape, dtype, hook, opt: xp.zeros(shape, dtype))
    assert hook_work(noise, specs(SHAPE)) is None
