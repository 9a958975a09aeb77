"""What an optimizer does to parameters: its update rules and its hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from chainer_profile.costs.call import ArraySpec, Specs, Work, is_a


class UpdateCall:
    """A rule's work on its parameter, or a hook's on one or on all, as a user's formula sees it.

    Attributes:
        function: The update rule or hook.
        params: Shapes and types of its parameters; a hook that is called once for all has several.
            Gradients are like their parameters.
        inputs: The parameters, then their gradients; ``outputs`` are the parameters.
    """

    def __init__(self, function: Any, params: Specs) -> None:
        self.function = function
        self.params = self.grads = self.outputs = params
        self.inputs = (*params, *params)

    @property
    def p(self) -> ArraySpec:
        """The parameter."""
        return self.params[0]

    @property
    def g(self) -> ArraySpec:
        """Its gradient."""
        return self.grads[0]


class Update(NamedTuple):
    """What a rule or hook does.

    Attributes:
        each: Operations for each element.
        states: Arrays of the rule's state, which it reads and writes.
        once: Operations for all elements together.
        reads_param: Whether it reads the parameter.
    """

    each: int
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
    """What noise of the user's takes is not known."""
    from_chainer = str(getattr(call.function.noise_func, "__module__", "")).startswith("chainer.")
    return Update(2, reads_param=False) if from_chainer else None


Formula = Callable[[UpdateCall], "Update | Work | int | None"]
#: Of Chainer's rules and hooks, by the name of the class: what they do, or a function that says so.
RULES: dict[str, Update | Formula] = {
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
}
HOOKS: dict[str, Update | Formula] = {
    "WeightDecay": Update(2),
    "Lasso": Update(3),
    "GradientLARS": Update(7, once=5),
    "GradientClipping": Update(3, once=2, reads_param=False),
    "GradientHardClipping": _hard_clipping,
    "GradientNoise": _noise,
}


def work(
    functions: Sequence[tuple[Any, Update | Formula]],
    params: Specs,
    *,
    scaled: bool = False,
    copied: bool = False,
) -> Work | None:
    """Work of rules and hooks that take the same parameters one after the other.

    ``scaled`` says that gradients are divided first, by the scale of the loss; ``copied`` that the
    rule works on a copy of the parameter in float32, which it keeps. None if one is not known.
    """
    size, nbytes = sum(p.size for p in params), sum(p.nbytes for p in params)
    kept = 4 * size if copied else nbytes
    flops, states, known = size if scaled else 0, 0, Work(0, 0, 0)
    reads = {"gradient"} if scaled else set()
    writes = {"gradient"} if scaled else set()
    for function, found in functions:
        what = found if isinstance(found, Update) else found(UpdateCall(function, params))
        if what is None:
            return None
        if isinstance(what, Work):
            known += what
            continue
        if not isinstance(what, Update):
            what = Update(0, once=int(what))
        flops += size * what.each + what.once
        states += what.states
        reads |= {"gradient", "param"} if what.reads_param else {"gradient"}
        writes.add("param" if is_a(type(function), "chainer.optimizer.UpdateRule") else "gradient")
    if copied:
        writes.discard("gradient")  # that of the copy, which is temporary
    read = states * kept + nbytes * ("gradient" in reads) + kept * ("param" in reads)
    written = states * kept + nbytes * ("gradient" in writes)
    if "param" in writes:
        written += kept + (nbytes if copied else 0)
    return known + Work(flops, read, written)
