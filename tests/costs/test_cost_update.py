"""Update rules: loops in plain Python that count, and bytes that moved."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import chainer
import numpy as np
import pytest
from chainer import optimizer_hooks as hooks
from chainer import optimizers

from chainer_profile.costs import registry
from chainer_profile.costs.work import ArraySpec, Work, hook_work, known_functions, update_work
from tests.costs.test_cost_harness import Number, NumberCall, Tally, apply, numbers, real, values

SHAPE = (2, 3)
N = 6
F32 = "float32"
Arrays = dict[str, Any]


def specs(*shapes: tuple[int, ...], dtype: str = F32) -> tuple[ArraySpec, ...]:
    return tuple(ArraySpec(shape, dtype) for shape in shapes)


def root(value: Number) -> Number:
    return apply(math.sqrt, value)


# -- update rules, as Chainer's update_core_cpu has them, of one element

#: Optimizer, and its loop: takes the rule, the element's p and g and those of the state; gives the
#: new ones.
RULES: dict[str, tuple[Any, Any]] = {}


def rule_of(**named: Any) -> Any:
    def add(loop: Any) -> Any:
        RULES.update({name: (optimizer, loop) for name, optimizer in named.items()})
        return loop

    return add


@rule_of(sgd=optimizers.SGD(0.1))
def sgd(f: Any, p: Any, g: Any) -> Arrays:
    return {"param": p - f.hyperparam.lr * g}


@rule_of(momentum=optimizers.MomentumSGD(0.1))
def momentum_sgd(f: Any, p: Any, g: Any, v: Any) -> Arrays:
    v = v * f.hyperparam.momentum
    v = v - f.hyperparam.lr * g
    return {"param": p + v, "v": v}


@rule_of(corrected_momentum=optimizers.CorrectedMomentumSGD(0.1))
def corrected(f: Any, p: Any, g: Any, v: Any) -> Arrays:
    v = v * f.hyperparam.momentum
    v = v - g
    return {"param": p + f.hyperparam.lr * v, "v": v}


@rule_of(nesterov=optimizers.NesterovAG(0.1))
def nesterov(f: Any, p: Any, g: Any, v: Any) -> Arrays:
    lr, momentum = f.hyperparam.lr, f.hyperparam.momentum
    v = v * momentum
    v = v - lr * g
    p = p + momentum * momentum * v
    return {"param": p - (1 + momentum) * lr * g, "v": v}


@rule_of(ada_grad=optimizers.AdaGrad(0.1))
def ada_grad(f: Any, p: Any, g: Any, h: Any) -> Arrays:
    h = h + g * g
    return {"param": p - f.hyperparam.lr * g / (root(h) + f.hyperparam.eps), "h": h}


@rule_of(ada_delta=optimizers.AdaDelta())
def ada_delta(f: Any, p: Any, g: Any, msg: Any, msdx: Any) -> Arrays:
    rho, eps = f.hyperparam.rho, f.hyperparam.eps
    msg = msg * rho
    msg = msg + (1 - rho) * g * g
    dx = root((msdx + eps) / (msg + eps)) * g
    msdx = msdx * rho
    msdx = msdx + (1 - rho) * dx * dx
    return {"param": p - dx, "msg": msg, "msdx": msdx}


@rule_of(rmsprop=optimizers.RMSprop(), rmsprop_inside=optimizers.RMSprop(eps_inside_sqrt=True))
def rmsprop(f: Any, p: Any, g: Any, ms: Any) -> Arrays:
    hp = f.hyperparam
    ms = ms * hp.alpha
    ms = ms + (1 - hp.alpha) * g * g
    below = root(ms + hp.eps) if hp.eps_inside_sqrt else root(ms) + hp.eps
    return {"param": p - hp.lr * g / below, "ms": ms}


@rule_of(rmsprop_graves=optimizers.RMSpropGraves())
def rmsprop_graves(f: Any, p: Any, grad: Any, n: Any, g: Any, delta: Any) -> Arrays:
    hp = f.hyperparam
    n, g = n * hp.alpha, g * hp.alpha
    weighted = (1 - hp.alpha) * grad
    n, g = n + weighted * grad, g + weighted
    delta = delta * hp.momentum
    delta = delta - hp.lr * grad / root(n - g * g + hp.eps)
    return {"param": p + delta, "n": n, "g": g, "delta": delta}


@rule_of(smorms3=optimizers.SMORMS3())
def smorms3(f: Any, p: Any, grad: Any, mem: Any, g: Any, g2: Any) -> Arrays:
    hp = f.hyperparam
    r = 1 / (mem + 1)
    not_r, weighted = 1 - r, r * grad
    g = not_r * g + weighted
    g2 = not_r * g2 + weighted * grad
    x = g * g / (g2 + hp.eps)
    p = p - grad * apply(min, x, hp.lr) / (root(g2) + hp.eps)
    return {"param": p, "mem": 1 + mem * (1 - x), "g": g, "g2": g2}


@rule_of(msvag=optimizers.MSVAG(), msvag_decay=optimizers.MSVAG(weight_decay_rate=0.1))
def msvag(f: Any, p: Any, g: Any, m: Any, v: Any) -> Arrays:
    hp, power = f.hyperparam, f.beta_power
    beta = hp.beta
    rho = ((1 - beta) ** 2) * (1 - power**2) / (((1 - power) ** 2) * (1 - beta**2))
    rho = min(rho, 0.9999)
    m = m + (1 - beta) * (g - m)
    v = v + (1 - beta) * (g * g - v)
    mt = m / (1 - power)
    vt = v / (1 - power)
    mt2 = mt**2
    s = (vt - mt2) / (1 - rho)
    factor = apply(min, apply(max, mt2 / (mt2 + rho * s), 0), 1)
    assert not apply(math.isnan, factor)
    p = p - hp.eta * (hp.lr * mt * factor + hp.weight_decay_rate * p)
    return {"param": p, "m": m, "v": v}


@rule_of(
    adam=optimizers.Adam(),
    adam_decay=optimizers.Adam(weight_decay_rate=0.1),
    adam_w=optimizers.AdamW(weight_decay_rate=0.1, eta=0.5),
    amsgrad=optimizers.AMSGrad(),
    ada_bound=optimizers.AdaBound(),
    ams_bound=optimizers.AMSBound(),
)
def adam(f: Any, p: Any, g: Any, m: Any, v: Any, vhat: Any = None) -> Arrays:
    hp = f.hyperparam
    m = m + (1 - hp.beta1) * (g - m)
    v = v + (1 - hp.beta2) * (g * g - v)
    new = {"m": m, "v": v}
    largest = v
    if hp.amsgrad:
        new["vhat"] = largest = apply(max, vhat, v)
    step = f.alpha_t / (root(largest) + hp.eps)
    if hp.adabound:
        lower, upper = f.bounds
        step = apply(min, apply(max, step, lower), upper)
    kept = 1 - hp.eta * hp.weight_decay_rate
    return new | {"param": (p if kept == 1 else kept * p) - hp.eta * (step * m)}


@dataclass
class Updated:
    """An update by Chainer: the rule as it was within it, and arrays before and after."""

    rule: Any
    before: Arrays
    after: Arrays
    work: Work


def parameter(dtype: str = "float64", shape: tuple[int, ...] = SHAPE) -> Any:
    param = chainer.Parameter(real(*shape).astype(dtype))
    param.grad = real(*shape).astype(dtype)
    return param


def arrays_of(param: Any, rule: Any) -> Arrays:
    found = {"param": param.array, "grad": param.grad, **rule.state}
    return {name: array.copy() for name, array in found.items()}


def update(optimizer: Any, dtype: str = "float64") -> Updated:
    """The second update of a parameter."""
    param = parameter(dtype)
    rule = param.update_rule = optimizer.create_update_rule()
    first = update_work(rule, (ArraySpec.of(param),))
    param.update()
    param.grad = real(*SHAPE).astype(dtype)
    before, seen = arrays_of(param, rule), copy.copy(rule)
    seen.t += 1
    work = update_work(rule, (ArraySpec.of(param),))
    assert work is not None
    assert work == first  # before the first update, when there is no state, as well
    param.update()
    return Updated(seen, before, arrays_of(param, rule), work)


def drawn(shape: tuple[int, ...]) -> Any:
    np.random.seed(5)  # noqa: NPY002  (Chainer draws from this generator)
    return np.random.normal(0, 1.0, shape)  # noqa: NPY002


class UpdateNumbers(NumberCall):
    """An update call whose arrays hold numbers that count."""

    def __init__(self, f: Any, arrays: list[Arrays]) -> None:
        self.tally = Tally()
        self.function = self.f = f
        self._arrays = {n: [numbers(a[n], self.tally) for a in arrays] for n in arrays[0]}
        self.params, self.grads = self._arrays["param"], self._arrays["grad"]
        self.p, self.g = self.params[0], self.grads[0]

    def state(self, name: str) -> Any:
        return self._arrays[name][0]

    def random(self, name: str, shape: tuple[int, ...]) -> Any:
        self.tally.operations += math.prod(shape)
        return numbers(drawn(shape), self.tally)


@pytest.mark.parametrize("name", RULES)
def test_a_loop_over_elements_has_the_result_and_the_count(name: str) -> None:
    optimizer, loop = RULES[name]
    ran, tally = update(optimizer), Tally()
    for place in np.ndindex(*SHAPE):
        p, g, *state = (Number(float(a[place]), tally) for a in ran.before.values())
        new = loop(ran.rule, p, g, *state)
        for key, value in new.items():
            np.testing.assert_allclose(float(value), ran.after[key][place], rtol=1e-9)
    assert tally.operations == ran.work.flops
    assert ran.work.macs == 0


@pytest.mark.parametrize("name", RULES)
def test_a_formula_computes_the_update(name: str) -> None:
    ran = update(RULES[name][0])
    call = UpdateNumbers(ran.rule, [ran.before])
    entry = registry.find(ran.rule, registry.UPDATE)
    assert entry is not None
    for key, value in entry.formula(call).items():
        np.testing.assert_allclose(values(value), ran.after[key], rtol=1e-9)
    assert call.tally.operations == ran.work.flops


@pytest.mark.parametrize("dtype", ["float64", F32])
@pytest.mark.parametrize("name", RULES)
def test_bytes_are_those_of_what_is_there_and_of_what_changed(name: str, dtype: str) -> None:
    ran = update(RULES[name][0], dtype)
    changed = [key for key in ran.before if (ran.before[key] != ran.after[key]).any()]
    if name in ("amsgrad", "ams_bound"):
        changed = [*ran.before.keys() - {"grad"}]  # the maximum may be what it was
    nbytes = N * np.dtype(dtype).itemsize
    assert (ran.work.nbytes_read, ran.work.nbytes_written) == (
        len(ran.before) * nbytes,
        len(changed) * nbytes,
    )


@pytest.mark.parametrize(
    ("name", "flops"),
    {
        "sgd": 2,
        "momentum": 4,
        "nesterov": 7,
        "ada_grad": 7,
        "ada_delta": 14,
        "rmsprop": 9,
        "rmsprop_graves": 15,
        "smorms3": 21,
        "msvag": 24,
        "adam": 13,
        "adam_w": 14,
        "amsgrad": 14,
        "ada_bound": 15,
        "ams_bound": 16,
    }.items(),
)
def test_operations_an_element(name: str, flops: int) -> None:
    rule = RULES[name][0].create_update_rule()
    work = update_work(rule, specs((5, 7), (3,)))
    assert work is not None
    assert work.flops == flops * 38


def test_every_rule_and_hook_of_chainer_has_a_formula() -> None:
    rules = [
        made().create_update_rule()
        for made in vars(optimizers).values()
        if isinstance(made, type) and issubclass(made, chainer.GradientMethod)
    ]
    assert len(rules) == 15
    assert all(registry.find(rule, registry.UPDATE) for rule in rules)
    found = [cls for cls in vars(hooks).values() if isinstance(cls, type)]
    assert len(found) == 6
    assert all(registry.find(object.__new__(cls), registry.UPDATE) for cls in found)
    classes = {type(rule) for rule in rules} | set(found)
    names = {f"{cls.__module__}.{cls.__qualname__}" for cls in classes}
    assert registry.chainer_names(registry.UPDATE) == names | {"chainer.Link.cleargrads"}
    assert {name for name, row in known_functions().items() if row[0] == "update"} == (
        {cls.__name__ for cls in classes} | {"cleargrads"}
    )


# -- what comes with a rule


def test_the_scale_of_a_loss_is_divided_out() -> None:
    rule = optimizers.SGD().create_update_rule()
    # Gradients are divided in place.
    assert update_work(rule, specs(SHAPE), scaled=True) == Work(3 * N, 48, 48)


def test_hooks_of_the_rule_itself_share_its_arrays() -> None:
    rule = optimizers.MomentumSGD().create_update_rule()
    rule.add_hook(hooks.WeightDecay(0.1))
    rule.add_hook(hooks.Lasso(0.1), timing="post")
    assert update_work(rule, specs(SHAPE)) == Work((2 + 4 + 3) * N, 3 * 24, 3 * 24)
    rule.add_hook(lambda rule, param: None, name="mine")
    assert update_work(rule, specs(SHAPE)) is None


def test_float16_with_a_copy_in_float32() -> None:
    rule = optimizers.MomentumSGD().create_update_rule()
    plain = update_work(rule, specs(SHAPE, dtype="float16"))
    rule.use_fp32_update()
    # Read: the copy, v and a gradient of 2 bytes; written: the copy, v and the parameter.
    assert plain == Work(4 * N, N * 6, N * 4)
    assert update_work(rule, specs(SHAPE, dtype="float16")) == Work(4 * N, N * 10, N * 10)
    assert update_work(rule, specs(SHAPE)) == Work(4 * N, N * 12, N * 8)
    # The copy's gradient is a temporary array.
    assert update_work(rule, specs(SHAPE, dtype="float16"), scaled=True) == Work(
        5 * N, N * 10, N * 10
    )


def test_nothing_is_updated_without_parameters() -> None:
    assert update_work(optimizers.Adam().create_update_rule(), ()) == Work(0, 0, 0)
    assert hook_work(hooks.GradientClipping(1), ()) == Work(0, 0, 0)
    assert update_work(optimizers.Adam().create_update_rule(), specs((0, 3))) == Work(0, 0, 0)
