"""Update rules: formulas on numbers that count, and bytes that moved."""

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

from chainer_profile.basics.words import UPDATE
from chainer_profile.costs import registry
from chainer_profile.costs.work import ArraySpec, Work, hook_work, known_functions, update_work
from tests.costs.test_cost_harness import NumberCall, Tally, numbers, real, values

SHAPE = (2, 3)
N = 6
F32 = "float32"
Arrays = dict[str, Any]


def specs(*shapes: tuple[int, ...], dtype: str = F32) -> tuple[ArraySpec, ...]:
    return tuple(ArraySpec(shape, dtype) for shape in shapes)


# -- update rules on numbers that count

#: Optimizer, and operations an element: numbers do not see a step that is computed twice.
RULES: dict[str, tuple[Any, int]] = {
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
def test_a_formula_computes_the_update(name: str) -> None:
    optimizer, an_element = RULES[name]
    ran = update(optimizer)
    call = UpdateNumbers(ran.rule, [ran.before])
    entry = registry.find(ran.rule, UPDATE)
    assert entry is not None
    for key, value in entry.formula(call).items():
        np.testing.assert_allclose(values(value), ran.after[key], rtol=1e-9)
    assert call.tally.operations == ran.work.flops == an_element * N
    assert call.tally.repeated == []
    assert ran.work.macs == 0


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


def test_work_of_all_parameters_is_added_up() -> None:
    rule = optimizers.Adam().create_update_rule()
    assert update_work(rule, specs((5, 7), (3,))) == Work(13 * 38, 4 * 4 * 38, 3 * 4 * 38)


def test_every_rule_and_hook_of_chainer_has_a_formula() -> None:
    rules = [
        made().create_update_rule()
        for made in vars(optimizers).values()
        if isinstance(made, type) and issubclass(made, chainer.GradientMethod)
    ]
    assert len(rules) == 15
    assert all(registry.find(rule, UPDATE) for rule in rules)
    found = [cls for cls in vars(hooks).values() if isinstance(cls, type)]
    assert len(found) == 6
    assert all(registry.find(object.__new__(cls), UPDATE) for cls in found)
    classes = {type(rule) for rule in rules} | set(found)
    names = {f"{cls.__module__}.{cls.__qualname__}" for cls in classes}
    assert registry.chainer_names(UPDATE) == names | {"chainer.Link.cleargrads"}
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
