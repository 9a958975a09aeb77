"""Operations and bytes of an optimizer's update rules and hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from chainer_profile.basics.words import UPDATE
from chainer_profile.costs.call import ArraySpec, Specs, Work
from chainer_profile.costs.work import find, is_a


class UpdateCall(NamedTuple):
    """The argument of a formula: a call of an update rule or of a hook."""

    function: Any  #: The rule or hook.
    p: ArraySpec  #: The parameter; the first one if a hook is called once for all parameters.
    g: ArraySpec  #: Its gradient.
    params: Specs  #: All parameters of the call.
    grads: Specs  #: Their gradients.


class Update(NamedTuple):
    """Operations and memory traffic of a rule or hook."""

    each: int  #: Operations per element.
    states: int = 0  #: Number of state arrays, which the rule reads and writes.
    once: int = 0  #: Additional operations per call.
    reads_param: bool = True


def _adam(call: UpdateCall) -> Update:
    """Count the rule of Adam, AdamW, AMSGrad, AdaBound and AMSBound."""
    hp = call.function.hyperparam
    decays = hp.eta * hp.weight_decay_rate != 0
    return Update(13 + decays + hp.amsgrad + 2 * hp.adabound, 3 if hp.amsgrad else 2)


def _hard_clipping(call: UpdateCall) -> Update:
    bounds = (call.function.lower_bound, call.function.upper_bound)
    return Update(sum(bound is not None for bound in bounds), reads_param=False)


def _noise(call: UpdateCall) -> Update | None:
    """Count Chainer's noise functions; functions of the user have no formula."""
    from_chainer = str(getattr(call.function.noise_func, "__module__", "")).startswith("chainer.")
    return Update(2, reads_param=False) if from_chainer else None


#: For each class of Chainer's rules and hooks, its work or a function that computes it.
UPDATES: dict[str, Update | Callable[[UpdateCall], Update | None]] = {
    "SGDRule": Update(2),
    "MomentumSGDRule": Update(4, 1),
    "CorrectedMomentumSGDRule": Update(4, 1),
    "NesterovAGRule": Update(7, 1),
    "AdaGradRule": Update(7, 1),
    "AdaDeltaRule": Update(14, 2),
    "RMSpropRule": Update(9, 1),
    "RMSpropGravesRule": Update(15, 3),
    "SMORMS3Rule": Update(21, 3),
    "MSVAGRule": Update(24, 2),
    "AdamRule": _adam,
    "WeightDecay": Update(2),
    "Lasso": Update(3),
    "GradientLARS": Update(7, once=5),
    "GradientClipping": Update(3, once=2, reads_param=False),
    "GradientHardClipping": _hard_clipping,
    "GradientNoise": _noise,
}
_NOTHING = Work(0, 0, 0)


def update_work(rule: Any, params: Specs, *, scaled: bool = False) -> Work | None:
    """Work of a rule and its hooks on parameters with gradients; None if unknown.

    ``scaled`` adds the division of the gradients by the loss scale.
    """
    hookable = getattr(rule, "_hookable", None)
    steps = [
        *getattr(hookable, "_pre_update_hooks", {}).values(),
        *getattr(hookable, "_post_update_hooks", {}).values(),
        rule,
    ]
    in_float32 = bool(getattr(rule, "_use_fp32_update", False))
    works = [
        _work(step, (p,), in_float32 and p.dtype == "float16") for p in params for step in steps
    ]
    if scaled:
        works += [Work(p.size, p.nbytes, p.nbytes) for p in params]
    return _total(works)


def hook_work(hook: Any, params: Specs) -> Work | None:
    """Work of an optimizer's hook on parameters with gradients; None if unknown."""
    if getattr(hook, "call_for_each_param", False):
        return _total(_work(hook, (p,)) for p in params)
    return _work(hook, params) if params else _NOTHING


def _work(function: Any, params: Specs, with_copy: bool = False) -> Work | None:
    """Work of a rule, which writes parameters, or of a hook, which writes gradients.

    ``with_copy`` counts a rule that updates a float32 copy of a float16 parameter.
    """
    update = find(UPDATE, type(function), UPDATES)
    if callable(update):
        update = update(UpdateCall(function, params[0], params[0], params, params))
    if update is None or isinstance(update, Work):
        return update
    if not isinstance(update, Update):
        update = Update(0, once=int(update))
    size, nbytes = sum(p.size for p in params), sum(p.nbytes for p in params)
    copy_nbytes = 4 * size if with_copy else nbytes
    states, written = update.states * copy_nbytes, nbytes
    if with_copy and is_a(type(function), "chainer.optimizer.UpdateRule"):
        written += copy_nbytes
    read = nbytes + states + (copy_nbytes if update.reads_param else 0)
    return Work(size * update.each + update.once, read, states + written)


def _total(works: Iterable[Work | None]) -> Work | None:
    """The sum of works; None if one of them is unknown."""
    every = list(works)
    counted = [work for work in every if work is not None]
    return sum(counted, _NOTHING) if len(counted) == len(every) else None
