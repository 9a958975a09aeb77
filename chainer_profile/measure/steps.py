"""The step that a trial runs: a forward pass, forward and backward, or a training step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import chainer
import chainer.functions as F
import numpy as np

from chainer_profile.basics.checks import short_repr
from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.words import LOSSES, PHASES
from chainer_profile.measure import wrappers
from chainer_profile.measure.arguments import FunctionLink, arrays_in
from chainer_profile.measure.step import Step
from chainer_profile.measure.step_session import StepError, StepSession, learned

# The same values as in train.py. The learning rate of a profile is 0: the arithmetic is the same,
# but every trial starts with the same weights.
MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4

Keywords = Mapping[str, Any]
NO_KEYWORDS: Keywords = MappingProxyType({})


@dataclass
class Loss:
    """A loss function; ``function`` maps a network's output to the loss.

    ``name`` is the function's name, or ``auto`` until the first output is known.
    """

    name: str
    function: Callable[[Any], Any]


class _Step:
    """A network with its arguments, and the configuration of Chainer for a trial.

    ``inputs`` are the arrays in the arguments.
    """

    _train_mode = with_graph = True
    #: A call of the network is not the forward phase: in a training step, that is the call of the
    #: loss function, and a forward pass has no phases.
    network_is_phase = False

    def __init__(self, model: Any, args: tuple[Any, ...], keywords: Keywords) -> None:
        self.roots: Sequence[tuple[str, Any]] = (("", model),)
        self.model = model
        self.inputs = arrays_in((args, keywords))
        self._args, self._kwargs = args, keywords

    @contextmanager
    def configured(self) -> Iterator[None]:
        """Set Chainer's configuration for trials within the context."""
        with (
            chainer.using_config("train", self._train_mode),
            chainer.using_config("enable_backprop", self.with_graph),
        ):
            yield


class ForwardStep(_Step):
    """A forward pass without a graph, in test mode or train mode."""

    def __init__(
        self,
        model: Any,
        args: tuple[Any, ...],
        train_mode: bool = False,
        keywords: Keywords = NO_KEYWORDS,
    ) -> None:
        super().__init__(model, args, keywords)
        self._train_mode = train_mode
        self.with_graph = False  # see learn_first

    def __call__(self) -> Any:
        """Run the network and return its output."""
        return self.model(*self._args, **self._kwargs)


class BackwardStep(_Step):
    """Forward, loss and backward, in train mode."""

    def __init__(self, model: Any, args: tuple[Any, ...], loss: Loss, keywords: Keywords) -> None:
        super().__init__(model, args, keywords)
        self.loss = loss

    def lossfun(self, *inputs: Any, **keywords: Any) -> Any:
        """The network's loss, a scalar variable."""
        return self.loss.function(self.model(*inputs, **keywords))

    def __call__(self) -> None:
        # The loss function is the forward phase, as in an optimizer's update.
        loss = wrappers.call_loss(self.lossfun, *self._args, **self._kwargs)
        self.model.cleargrads()
        loss.backward()


class TrainStep(BackwardStep):
    """A training step as Chainer's updaters make it: forward, loss, backward, update.

    The default optimizer is momentum SGD with weight decay and learning rate 0.

    Raises:
        UsageError: The model is a function, or the optimizer is set up for another network.
    """

    def __init__(
        self,
        model: Any,
        args: tuple[Any, ...],
        loss: Loss,
        optimizer: Any,
        keywords: Keywords,
    ) -> None:
        super().__init__(model, args, loss, keywords)
        if isinstance(model, FunctionLink):
            raise UsageError(
                "a function has no parameters to update: give a chainer.Link, or use the phase "
                "forward-backward"
            )
        if optimizer is None:
            optimizer = chainer.optimizers.MomentumSGD(lr=0.0, momentum=MOMENTUM)
            optimizer.setup(model)
            optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(WEIGHT_DECAY))
            if chainer.config.dtype is chainer.mixed16:
                optimizer.use_fp32_update()
        if getattr(optimizer, "target", None) is not model:
            raise UsageError(
                "the optimizer is not set up for this network: call optimizer.setup(model) first"
            )
        self.optimizer = optimizer

    def __call__(self) -> None:
        wrappers.call_update(self.optimizer, self.lossfun, *self._args, **self._kwargs)


def check_optimizer(optimizer: Any) -> None:
    """Raise a UsageError for an object that is neither an optimizer nor None.

    :class:`TrainStep` checks that the optimizer is set up for the network.
    """
    # The optimizers of ChainerMN have no common base class.
    if optimizer is not None and (isinstance(optimizer, type) or not hasattr(optimizer, "target")):
        raise UsageError(
            f"the optimizer is not set up for this network: {short_repr(optimizer)} is not an "
            "optimizer; give one of chainer.optimizers"
        )


#: A step of any of the three classes.
AnyStep = ForwardStep | BackwardStep


def make_step(
    phase: str,
    model: Any,
    args: tuple[Any, ...],
    *,
    train_mode: bool = False,
    loss: str | Callable[[Any], Any] = "auto",
    optimizer: Any = None,
    seed: int | None = 0,
    keywords: Keywords = NO_KEYWORDS,
) -> AnyStep:
    """Make the step for a phase.

    ``args`` and ``keywords`` are the network's arguments. A ``loss`` given by name is chosen at the
    first output. ``seed`` makes its random labels.

    Raises:
        UsageError: The phase, the loss or the optimizer is invalid.
    """
    if phase not in PHASES:
        raise UsageError(f"unknown phase {phase!r}: choose {', '.join(PHASES)}")
    if phase == "forward":
        return ForwardStep(model, args, train_mode, keywords)
    if callable(loss):
        chosen = Loss(getattr(loss, "__name__", type(loss).__name__), loss)
    else:
        chosen = _loss_by_name(loss, seed)
    if phase == "forward-backward":
        return BackwardStep(model, args, chosen, keywords)
    return TrainStep(model, args, chosen, optimizer, keywords)


def learn_first(step: Step) -> StepSession:
    """Run a step once, within its configuration, and return a session that knows its calls.

    If a forward pass fails without a graph but works with one, the step makes the graph from then
    on. This is the case if the network calls ``chainer.grad`` or ``backward``.
    """
    try:
        return learned(step)
    except StepError:
        # Try again without the graph, because some networks fail only in their first call.
        if not isinstance(step, ForwardStep) or not _works(step, True) or _works(step, False):
            raise
        # The end of the step's configuration restores enable_backprop.
        step.with_graph = chainer.config.enable_backprop = True
    return learned(step)


def _works(step: Step, graph: bool) -> bool:
    """Whether a step runs without an exception, with or without a graph."""
    with chainer.using_config("enable_backprop", graph):
        try:
            learned(step)
        except StepError:
            return False
    return True


def _loss_by_name(name: str, seed: int | None) -> Loss:
    """Make a loss that :func:`choose_loss` chooses when the network returns its first output."""
    if name not in LOSSES:
        raise UsageError(f"unknown loss {name!r}: choose {', '.join(LOSSES)}")

    def choose(output: Any) -> Any:
        chosen = choose_loss(name, output, seed)
        loss.name, loss.function = chosen.name, chosen.function
        return loss.function(output)

    loss = Loss(name, choose)
    return loss


def choose_loss(name: str, output: Any, seed: int | None = 0) -> Loss:
    """Choose a loss for a network's output, with random labels or targets.

    ``auto`` uses a scalar output as the loss itself, and softmax cross-entropy for an output whose
    second axis is the classes: ``(batch, classes)`` or ``(batch, classes, H, W)``.

    Raises:
        ProfileError: The output has no such loss.
    """
    array = getattr(output, "array", output)
    shape, kind = getattr(array, "shape", None), getattr(getattr(array, "dtype", None), "kind", "")
    if shape is None or kind != "f":
        raise ProfileError(
            f"no loss can be computed from the network's output, a {type(output).__name__}: let "
            "its forward return the loss (a scalar Variable), or one Variable of floats"
        )
    size = int(np.prod(shape))
    if name == "auto":
        name = "output" if size == 1 else "softmax_cross_entropy"
    if name == "output":
        if size != 1:
            raise ProfileError(f"the network's output has shape {shape}, but a loss is one number")
        return Loss(name, lambda y: y)
    rng = np.random.default_rng(seed)
    device = chainer.backend.get_device_from_array(array)
    if name == "mean_squared_error":
        target = device.send(rng.standard_normal(shape).astype(array.dtype))
        return Loss(name, lambda y: F.mean_squared_error(y, target))
    if len(shape) < 2:
        raise ProfileError(
            f"the network's output has shape {shape}, but softmax_cross_entropy needs (batch, "
            "classes): choose another loss, such as mean_squared_error"
        )
    labels = rng.integers(0, shape[1], (shape[0], *shape[2:])).astype(np.int32)
    labels = device.send(labels)
    return Loss(name, lambda y: F.softmax_cross_entropy(y, labels))
