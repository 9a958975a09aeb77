"""What an optimizer does to parameters: its update rules and its hooks.

A formula is a function of an :class:`UpdateCall`, written down as Chainer's ``update_core_cpu`` or
the hook's NumPy code has it. It returns the arrays that are changed, by name: ``param``, ``grad``,
or the name of an array of the rule's state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chainer_profile.basics.words import UPDATE
from chainer_profile.costs.counting import Array, ArraySpec, Call, Work
from chainer_profile.costs.registry import find, is_rule, update

#: What a formula changes: an array by name, or for all parameters of a hook one each.
Changes = Mapping[str, Array | Sequence[Array]]

PARAM = "param"
GRAD = "grad"
_NOTHING = Work(0, 0, 0)


class UpdateCall(Call):
    """An update rule's work on its parameter, or a hook's on one or on all parameters.

    Attributes:
        function: The update rule or hook; ``f`` is the same.
        inputs: Shapes and types of the parameters, then of their gradients.
        outputs: Those of the parameters.
        p: The parameter, to count with.
        g: Its gradient.
        params: All of them, for a hook that is called once for all parameters.
        grads: Their gradients.
    """

    def __init__(self, function: Any, params: tuple[ArraySpec, ...], copied: bool = False) -> None:
        """Begin to count.

        Args:
            function: The update rule or hook.
            params: Its parameters; gradients are like them.
            copied: Whether the rule works on a copy of the parameter in float32, which it keeps.
        """
        kept = tuple(ArraySpec(spec.shape, "float32") for spec in params) if copied else params
        super().__init__(function, (*kept, *params), kept)
        self._n = len(params)
        self._copied_to = params if copied else ()
        self._before = {PARAM: self.x[: self._n], GRAD: self.x[self._n :]}
        self._now = dict(self._before)

    @property
    def params(self) -> tuple[Array, ...]:
        """The parameters."""
        return self._now[PARAM]

    @property
    def grads(self) -> tuple[Array, ...]:
        """Their gradients."""
        return self._now[GRAD]

    @property
    def p(self) -> Array:
        """The parameter."""
        return self.params[0]

    @property
    def g(self) -> Array:
        """Its gradient."""
        return self.grads[0]

    def state(self, name: str) -> Array:
        """An array of the rule's state: like the parameter, as ``init_state`` makes it."""
        if name not in self._now:
            self._before[name] = self._now[name] = (self.given(self.outputs[0]),)
        return self._now[name][0]

    def change(self, changes: Changes) -> None:
        """Note that arrays have got these values; later formulas of the call take them."""
        for name, value in changes.items():
            if name not in self._before:
                self.state(name)
            arrays = (value,) if isinstance(value, Array) else tuple(value)
            self.take(*arrays)
            self._now[name] = arrays

    def change_plainly(self, flops: int) -> None:
        """So many operations; parameters and gradients are read, and one of the two written.

        That is what a formula that returns a number means: a rule writes its parameter, a hook
        the gradients.
        """
        self.flops += flops
        self.take(*self.params, *self.grads)
        name = PARAM if is_rule(type(self.function)) else GRAD
        self.change({name: [self.new(array.shape) for array in self._now[name]]})

    def total(self) -> Work:
        """What it came to: each array was read once at most, and each that changed written once."""
        changed = [name for name in self._now if self._now[name] is not self._before[name]]
        if self._copied_to and GRAD in changed:
            changed.remove(GRAD)  # that of the copy, which is temporary
        for name in changed:
            for array in self._before[name]:
                self.updates(array)
        if PARAM in changed:
            self._more_written += sum(spec.nbytes for spec in self._copied_to)
        return self.work(())


def work(
    functions: Sequence[Any],
    params: tuple[ArraySpec, ...],
    *,
    copied: bool = False,
    scaled: bool = False,
) -> Work | None:
    """Work of rules and hooks that take the same parameters one after the other.

    Args:
        functions: Update rules or hooks.
        params: Their parameters.
        copied: See :class:`UpdateCall`.
        scaled: Whether the gradients are divided first, by the scale of the loss.

    Returns:
        Work | None: None if one of them has no formula.
    """
    call = UpdateCall(None, params, copied)
    more = _NOTHING
    if scaled:
        call.change({GRAD: [g / 1.0 for g in call.grads]})
    try:
        for function in functions:
            entry = find(function, UPDATE)
            call.function = function
            result = None if entry is None else entry.formula(call)
            if result is None:
                return None
            if isinstance(result, Work):
                more += result
            elif isinstance(result, int):
                call.change_plainly(result)
            else:
                call.change(result)
    finally:
        call.function = None
    return call.total() + more


def rule_work(rule: Any, param: ArraySpec, scaled: bool) -> Work | None:
    """Work of an update rule on a parameter, with the rule's own hooks."""
    hookable = getattr(rule, "_hookable", None)
    before, after = (
        tuple(getattr(hookable, f"_{when}_update_hooks", {}).values()) for when in ("pre", "post")
    )
    copied = bool(getattr(rule, "_use_fp32_update", False)) and param.dtype == "float16"
    return work((*before, rule, *after), (param,), copied=copied, scaled=scaled)


# -- clearing gradients


@update("Link.cleargrads")
def cleargrads(call: UpdateCall) -> Changes:
    """No operation and no bytes: gradients are let go of, and no zeros are written."""
    return {}


# -- update rules: operations an element


@update("optimizers.sgd.SGDRule")
def sgd(c: UpdateCall) -> Changes:
    """Computes p - lr g: 2 operations an element."""
    return {PARAM: c.p - c.g * c.f.hyperparam.lr}


@update("optimizers.momentum_sgd.MomentumSGDRule")
def momentum_sgd(c: UpdateCall) -> Changes:
    """Computes v = momentum v - lr g; p + v: 4 operations an element."""
    hp = c.f.hyperparam
    v = c.state("v") * hp.momentum - c.g * hp.lr
    return {PARAM: c.p + v, "v": v}


@update("optimizers.corrected_momentum_sgd.CorrectedMomentumSGDRule")
def corrected_momentum_sgd(c: UpdateCall) -> Changes:
    """Computes v = momentum v - g; p + lr v: 4 operations an element."""
    hp = c.f.hyperparam
    v = c.state("v") * hp.momentum - c.g
    return {PARAM: c.p + v * hp.lr, "v": v}


@update("optimizers.nesterov_ag.NesterovAGRule")
def nesterov_ag(c: UpdateCall) -> Changes:
    """With b = momentum: v = b v - lr g; p + b^2 v - (1 + b) lr g: 7 operations an element."""
    lr, momentum = c.f.hyperparam.lr, c.f.hyperparam.momentum
    v = c.state("v") * momentum - c.g * lr
    return {PARAM: c.p + v * (momentum * momentum) - c.g * ((1 + momentum) * lr), "v": v}


@update("optimizers.ada_grad.AdaGradRule")
def ada_grad(c: UpdateCall) -> Changes:
    """Computes h = h + g^2; p - lr g / (sqrt(h) + eps): 7 operations an element."""
    hp = c.f.hyperparam
    h = c.state("h") + c.g * c.g
    return {PARAM: c.p - c.g * hp.lr / (c.sqrt(h) + hp.eps), "h": h}


@update("optimizers.ada_delta.AdaDeltaRule")
def ada_delta(c: UpdateCall) -> Changes:
    """Averages of g^2 and dx^2: 4 operations an element each; dx 5, p - dx 1."""
    rho, eps = c.f.hyperparam.rho, c.f.hyperparam.eps
    msdx = c.state("msdx")
    msg = c.state("msg") * rho + c.g * (1 - rho) * c.g
    dx = c.sqrt((msdx + eps) / (msg + eps)) * c.g
    return {PARAM: c.p - dx, "msg": msg, "msdx": msdx * rho + dx * (1 - rho) * dx}


@update("optimizers.rmsprop.RMSpropRule")
def rmsprop(c: UpdateCall) -> Changes:
    """Average of g^2 4; p - lr g / (sqrt(ms) + eps) 5 operations an element."""
    hp = c.f.hyperparam
    ms = c.state("ms") * hp.alpha + c.g * (1 - hp.alpha) * c.g
    root = c.sqrt(ms + hp.eps) if hp.eps_inside_sqrt else c.sqrt(ms) + hp.eps
    return {PARAM: c.p - c.g * hp.lr / root, "ms": ms}


@update("optimizers.rmsprop_graves.RMSpropGravesRule")
def rmsprop_graves(c: UpdateCall) -> Changes:
    """Averages of g and g^2 6; delta 8; p + delta 1 operation an element.

    Delta is momentum delta - lr g / sqrt(n - g^2 + eps). (1 - alpha) g is a step of both averages.
    """
    hp = c.f.hyperparam
    part = c.g * (1 - hp.alpha)
    n = c.state("n") * hp.alpha + part * c.g
    g = c.state("g") * hp.alpha + part
    delta = c.state("delta") * hp.momentum - c.g * hp.lr / c.sqrt(n - g * g + hp.eps)
    return {PARAM: c.p + delta, "n": n, "g": g, "delta": delta}


@update("optimizers.smorms3.SMORMS3Rule")
def smorms3(c: UpdateCall) -> Changes:
    """Averages of g and g^2 9 with their weights; x 3; memory 3; p 6 operations an element.

    1 - r and r g are steps of both averages.
    """
    lr, eps = c.f.hyperparam.lr, c.f.hyperparam.eps
    mem = c.state("mem")
    r = 1 / (mem + 1)
    rest = 1 - r
    part = r * c.g
    g = rest * c.state("g") + part
    g2 = rest * c.state("g2") + part * c.g
    x = g * g / (g2 + eps)
    p = c.p - c.g * c.minimum(x, lr) / (c.sqrt(g2) + eps)
    return {PARAM: p, "mem": mem * (1 - x) + 1, "g": g, "g2": g2}


@update("optimizers.adam.AdamRule")
def adam(c: UpdateCall) -> Changes:
    """Averages m 3 and v 4, step = alpha / (sqrt(v) + eps) 3, p - eta step m 3, an element.

    With a weight decay 1 more (p is scaled), with amsgrad 1 (maximum of v), with adabound 2 (the
    step is clipped). AdamW, AMSGrad, AdaBound and AMSBound have the same rule.
    """
    hp = c.f.hyperparam
    begun = c.f.t > 0  # before its first update it knows no rate, which is a number of the call
    m = c.state("m") + (c.g - c.state("m")) * (1 - hp.beta1)
    v = c.state("v") + (c.g * c.g - c.state("v")) * (1 - hp.beta2)
    changes = {"m": m, "v": v}
    largest = v
    if hp.amsgrad:
        changes["vhat"] = largest = c.maximum(c.state("vhat"), v)
    step = (c.f.alpha_t if begun else 0.0) / (c.sqrt(largest) + hp.eps)
    if hp.adabound:
        lower, upper = c.f.bounds if begun else (0.0, 0.0)
        step = c.minimum(c.maximum(step, lower), upper)
    kept = 1.0 - hp.eta * hp.weight_decay_rate
    changes[PARAM] = (c.p if kept == 1 else c.p * kept) - step * m * hp.eta
    return changes


@update("optimizers.msvag.MSVAGRule")
def msvag(c: UpdateCall) -> Changes:
    """Averages m 3 and v 4, both corrected 2, the variance 3, factor 6, p 6, an element.

    The factor is clipped (2) and looked through for NaN (1). The weight decay is always added.
    """
    hp = c.f.hyperparam
    beta, power = hp.beta, c.f.beta_power
    rho = (1.0 - beta) ** 2 * (1.0 - power**2) / ((1.0 - power) ** 2 * (1.0 - beta**2))
    rho = min(rho, 0.9999)
    m = c.state("m") + (c.g - c.state("m")) * (1 - beta)
    v = c.state("v") + (c.g * c.g - c.state("v")) * (1 - beta)
    mt, vt = m / (1 - power), v / (1 - power)
    mt2 = mt**2
    s = (vt - mt2) / (1 - rho)
    factor = c.minimum(c.maximum(mt2 / (mt2 + s * rho), 0), 1)
    factor = c.where(c.apply("isnan", factor), 0, factor)
    p = c.p - (mt * hp.lr * factor + c.p * hp.weight_decay_rate) * hp.eta
    return {PARAM: p, "m": m, "v": v}


# -- hooks


@update("optimizer_hooks.weight_decay.WeightDecay")
def weight_decay(c: UpdateCall) -> Changes:
    """Computes g + rate p: 2 operations an element."""
    return {GRAD: c.g + c.p * c.f.rate}


@update("optimizer_hooks.lasso.Lasso")
def lasso(c: UpdateCall) -> Changes:
    """Computes g + rate sign(p): 3 operations an element."""
    return {GRAD: c.g + c.sign(c.p) * c.f.rate}


@update("optimizer_hooks.gradient_hard_clipping.GradientHardClipping")
def gradient_hard_clipping(c: UpdateCall) -> Changes:
    """A comparison an element for each bound that is given."""
    g = c.g
    if c.f.lower_bound is not None:
        g = c.maximum(g, c.f.lower_bound)
    if c.f.upper_bound is not None:
        g = c.minimum(g, c.f.upper_bound)
    return {GRAD: g}


@update("optimizer_hooks.gradient_noise.GradientNoise")
def gradient_noise(c: UpdateCall) -> Changes | None:
    """Draws a number, adds it to g: 2 operations an element; unknown with a noise of the user's."""
    noise = c.f.noise_func
    name = f"{getattr(noise, '__module__', '')}.{getattr(noise, '__name__', '')}"
    if name != "chainer.optimizer_hooks.gradient_noise.exponential_decay_noise":
        return None
    return {GRAD: c.g + c.random("noise", c.g.shape)}


@update("optimizer_hooks.gradient_clipping.GradientClipping")
def gradient_clipping(c: UpdateCall) -> Changes:
    """Sum of squares of all gradients 2, g times rate 1 operation an element; 2 for all.

    The products of gradients with themselves are sums of squares here, and no multiply-adds of a
    matrix product. What they come to decides whether gradients are scaled; that is counted.
    """
    squares = [(g * g).sum() for g in c.grads]
    total = squares[0]
    for square in squares[1:]:
        total = total + square
    rate = c.f.threshold / c.sqrt(total)
    rate = c.minimum(rate, 1)
    return {GRAD: [g * rate for g in c.grads]}


@update("optimizer_hooks.gradient_lars.GradientLARS")
def gradient_lars(c: UpdateCall) -> Changes:
    """Norms of p and g 2 each, (g + decay p) rate 3 operations an element; 5 for the rate."""
    f = c.f
    p_norm, g_norm = (c.sqrt((array * array).sum()) for array in (c.p, c.g))
    rate = p_norm / (g_norm + f.eps + p_norm * f.weight_decay)
    rate = c.where(p_norm > f.threshold, rate, 1)
    return {GRAD: (c.g + c.p * f.weight_decay) * rate}
