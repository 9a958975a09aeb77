"""Optimizer hooks on numbers that count; formulas of users for rules and hooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import chainer
import numpy as np
import pytest
from chainer import optimizer_hooks as hooks
from chainer import optimizers

from chainer_profile.basics.words import UPDATE
from chainer_profile.costs import registry
from chainer_profile.costs.work import (
    ArraySpec,
    UpdateCall,
    Work,
    hook_work,
    known_functions,
    register_cost,
    update_work,
)
from tests.costs.test_cost_harness import values
from tests.costs.test_cost_update import SHAPE, N, UpdateNumbers, parameter, specs

#: Hook, operations for all elements, and whether it reads the parameter.
HOOKS: dict[str, tuple[Any, int, bool]] = {
    "weight_decay": (hooks.WeightDecay(0.1), 2 * N, True),
    "lasso": (hooks.Lasso(0.1), 3 * N, True),
    "hard_clipping": (hooks.GradientHardClipping(-0.5, 0.5), 2 * N, False),
    "hard_clipping_low": (hooks.GradientHardClipping(-0.5, None), N, False),
    "noise": (hooks.GradientNoise(1.0), 2 * N, False),
    # Two norms: squares, N - 1 sums and a root; 5 for the rate.
    "lars": (hooks.GradientLARS(weight_decay=0.1), 2 * 2 * N + 5 + 3 * N, True),
    "lars_plain": (hooks.GradientLARS(), 2 * 2 * N + 5 + 3 * N, True),
}


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_of_each_parameter(name: str) -> None:
    hook, flops, takes_param = HOOKS[name]
    param, rule = parameter(), optimizers.SGD().create_update_rule()
    before = {"param": param.array.copy(), "grad": param.grad.copy()}
    np.random.seed(5)  # noqa: NPY002
    hook(rule, param)
    work = hook_work(hook, (ArraySpec.of(param),))
    assert work == Work(flops, (2 if takes_param else 1) * 8 * N, 8 * N)

    call = UpdateNumbers(hook, [before])
    entry = registry.find(hook, UPDATE)
    assert entry is not None
    np.testing.assert_allclose(values(entry.formula(call)["grad"]), param.grad, rtol=1e-9)
    assert call.tally.operations == flops
    assert call.tally.repeated == []
    # Twice for two parameters.
    assert hook_work(hook, (ArraySpec.of(param),) * 2) == work + work


def test_clipping_takes_all_gradients_at_once() -> None:
    link = chainer.Link()
    with link.init_scope():
        link.a, link.b = parameter(), parameter(shape=(4,))
    optimizer, hook = optimizers.SGD().setup(link), hooks.GradientClipping(0.5)
    before = [{"param": p.array.copy(), "grad": p.grad.copy()} for p in (link.a, link.b)]
    hook(optimizer)
    work = hook_work(hook, tuple(ArraySpec.of(p) for p in (link.a, link.b)))
    assert work == Work(3 * 10 + 2, 80, 80)

    call = UpdateNumbers(hook, before)
    entry = registry.find(hook, UPDATE)
    assert entry is not None
    for array, param in zip(entry.formula(call)["grad"], (link.a, link.b), strict=True):
        np.testing.assert_allclose(values(array), param.grad, rtol=1e-9)
    assert call.tally.operations == 3 * 10 + 2


def test_noise_of_the_users_is_not_known() -> None:
    hook = hooks.GradientNoise(1.0, lambda xp, shape, dtype, hook, opt: xp.zeros(shape, dtype))
    assert hook_work(hook, specs(SHAPE)) is None


# -- formulas of users


class MyRule(chainer.UpdateRule):
    pass


class MyHook:
    call_for_each_param = True

    def __call__(self, rule: Any, param: Any) -> None:
        pass


class Everything:
    """A hook that is called once."""


@pytest.fixture(autouse=True)
def _no_formula_stays() -> Iterator[None]:
    yield
    for cls in (MyRule, MyHook, Everything):
        registry.forget(cls)


def test_a_rule_and_a_hook_without_a_formula_have_no_work() -> None:
    assert update_work(MyRule(), specs(SHAPE)) is None
    assert hook_work(MyHook(), specs(SHAPE)) is None
    assert hook_work(lambda optimizer: None, specs(SHAPE)) is None


def test_a_formula_that_returns_a_number() -> None:
    @register_cost(MyRule)
    def rule(call: UpdateCall) -> int:
        """Five operations an element."""
        assert isinstance(call.function, MyRule)
        return 5 * call.p.size

    @register_cost(MyHook)
    def hook(call: UpdateCall) -> int:
        """One operation an element."""
        return call.inputs[1].size

    assert update_work(MyRule(), specs(SHAPE)) == Work(5 * N, 48, 24)
    assert hook_work(MyHook(), specs(SHAPE, (2,))) == Work(N + 2, 64, 32)
    assert known_functions()["MyRule"] == ("user", "Five operations an element")
    both = MyRule()
    both.add_hook(MyHook(), name="mine")
    assert update_work(both, specs(SHAPE)) == Work(6 * N, 48, 48)


def test_formulas_that_return_work_and_arrays() -> None:
    @register_cost(MyRule)
    def rule(call: UpdateCall) -> dict[str, Any]:
        """With a state that is read, and one that is written alone."""
        return {"param": call.p - call.g * call.state("rate"), "last": call.g * 2}

    @register_cost(Everything)
    def hook(call: UpdateCall) -> Work:
        """Known by itself."""
        return Work(len(call.params), 3, 4)

    assert update_work(MyRule(), specs(SHAPE)) == Work(3 * N, 3 * 24, 2 * 24)
    assert hook_work(Everything(), specs(SHAPE, (2,))) == Work(2, 3, 4)


def test_a_rule_has_no_backward() -> None:
    with pytest.raises(ValueError, match="MyRule is no function: it has no backward"):
        register_cost(MyRule, backward=True)
