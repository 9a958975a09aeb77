"""Work of an optimizer on parameters: its update rules and its hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from chainer_profile.basics.words import UPDATE
from chainer_profile.costs.call import ArraySpec, Specs, Work
from chainer_profile.costs.work import find, is_a


class UpdateCall(NamedTuple):
    """The call of a rule for its parameter, or of a hook for some or all, as a formula sees it."""

    function: Any
    #: Shape and type of the parameter and of its gradient; of the first parameter for a hook that
    #: is called once for all.
    p: ArraySpec
    g: ArraySpec
    #: The same of all parameters, and of their gradients.
    params: Specs
    grads: Specs


class Update(NamedTuple):
    """Operations and memory traffic of a rule or hook."""

    #: Operations for each element, and for all elements together.
    each: int
    #: Arrays of the rule's state, which it reads and writes.
    states: int = 0
    once: int = 0
    reads_param: bool = True


def _adam(call: UpdateCall) -> Update:
    """Adam, AdamW, AMSGrad, AdaBound and AMSBound have the same rule."""
    hp = call.function.hyperparam
    decays = hp.eta * hp.weight_decay_rate != 0
    return Update(13 + decays + hp.amsgrad + 2 * hp.adabound, 3 if hp.amsgrad else 2)


def _hard_clipping(call: UpdateCall) -> Update:
    bounds = (call.function.lower_bound, call.function.upper_bound)
    return Update(sum(bound is not None for bound in bounds), reads_param=False)


def _noise(call: UpdateCall) -> Update | None:
    """The user's own noise functions have no formula."""
    from_chainer = str(getattr(call.function.noise_func, "__module__", "")).startswith("chainer.")
    return Update(2, reads_param=False) if from_chainer else None


#: Chainer's rules and hooks by the name of the class, with their work or a function that gives it.
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
    """Work of a rule and its own hooks on parameters with gradients; None if unknown."""
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
    # Gradients are divided first, by the scale of the loss.
    if scaled:
        works += [Work(p.size, p.nbytes, p.nbytes) for p in params]
    return _total(works)


def hook_work(hook: Any, params: Specs) -> Work | None:
    """Work of an optimizer's hook on these parameters, which have gradients; None if unknown."""
    if getattr(hook, "call_for_each_param", False):
        return _total(_work(hook, (p,)) for p in params)
    return _work(hook, params) if params else _NOTHING


def _work(function: Any, params: Specs, copied: bool = False) -> Work | None:
    """Work of a rule, which writes parameters, or of a hook, which writes gradients."""
    update = find(UPDATE, type(function), UPDATES)
    if callable(update):
        update = update(UpdateCall(function, params[0], params[0], params, params))
    if update is None or isinstance(update, Work):
        return update
    if not isinstance(update, Update):
        update = Update(0, once=int(update))
    size, nbytes = sum(p.size for p in params), sum(p.nbytes for p in params)
    # A rule may work on a copy of the parameter in float32, which it keeps.
    kept = 4 * size if copied else nbytes
    states, written = update.states * kept, nbytes
    if copied and is_a(type(function), "chainer.optimizer.UpdateRule"):
        written += kept
    read = nbytes + states + (kept if update.reads_param else 0)
    return Work(size * update.each + update.once, read, states + written)


def _total(works: Iterable[Work | None]) -> Work | None:
    """The sum; None if any work is unknown."""
    every = list(works)
    counted = [work for work in every if work is not None]
    return sum(counted, _NOTHING) if len(counted) == len(every) else None
