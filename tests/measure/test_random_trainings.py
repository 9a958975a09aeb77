"""profile() restores everything that random trainings change."""

import random
import warnings
from collections import Counter, deque

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer import optimizers
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import nets
from tests.measure.describing import describe, differences
from tests.measure.restoring import PHASES, Slotted, X, profile

pytestmark = pytest.mark.usefixtures("one_thread")


class CountingHook:
    """An optimizer hook with state."""

    timing = "post"

    def __init__(self, name="counting", call_for_each_param=False):
        self.name = name
        self.call_for_each_param = call_for_each_param
        self.calls, self.seen = 0, deque(maxlen=3)

    def __call__(self, rule, param=None):
        self.calls += 1
        self.seen.append(self.calls)


class ChangesEverything(chainer.Chain):
    """A link that changes state of every kind."""

    def __init__(self, inner):
        super().__init__()
        with self.init_scope():
            self.inner = inner
        self.rng = np.random.RandomState(3)
        self.counts, self.shapes, self.totals = Counter(), (), {"sum": np.zeros(6)}
        self.pair = ([], Slotted())

    def forward(self, x):
        self.first = x
        self.counts[x.shape] += 1
        self.shapes += (x.shape,)
        self.totals["sum"] += self.rng.rand(6)
        self.totals[len(self.shapes)] = random.random()
        self.pair[0].append(x)
        self.pair[1].add()
        return self.inner(x)


class Averaging(chainer.Chain):
    """A link whose forward changes weights."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.fc, self.slow = L.Linear(6, 6), L.Linear(6, 6)

    def forward(self, x):
        self.slow.W.array *= np.array(0.5, self.slow.W.dtype)
        self.slow.b.array = self.fc.b.array.copy()
        return self.fc(x) + self.slow(x)


def convolution():
    def forward(self, x):
        return F.reshape(self.conv(F.reshape(x, (-1, 1, 2, 3))), (-1, 6))

    return nets.net(forward, conv=L.Convolution2D(None, 1, 3, pad=1))


LAYERS = {
    "linear": lambda: L.Linear(6, 6),
    "lazy": lambda: L.Linear(None, 6),
    "convolution": convolution,
    "norm": lambda: L.BatchNormalization(6),
    "lstm": lambda: L.LSTM(6, 6),
    "peephole": lambda: L.StatefulPeepholeLSTM(6, 6),
    "gru": lambda: L.StatefulGRU(6, 6),
    "averaging": Averaging,
    "busy": lambda: ChangesEverything(L.Linear(6, 6)),
    "nested": lambda: ChangesEverything(
        chainer.Sequential(L.LSTM(6, 6), F.dropout, ChangesEverything(L.Linear(6)))
    ),
}
OPTIMIZERS = {
    **{name: getattr(optimizers, name) for name in ("SGD", "MomentumSGD", "NesterovAG", "RMSprop")},
    **{name: getattr(optimizers, name) for name in ("AdaDelta", "AdaGrad", "SMORMS3", "MSVAG")},
    **{name: getattr(optimizers, name) for name in ("Adam", "AMSGrad", "AdaBound")},
    "AdamW": lambda: optimizers.Adam(weight_decay_rate=0.1),
    "RMSpropGraves": optimizers.RMSpropGraves,
    "CorrectedMomentumSGD": optimizers.CorrectedMomentumSGD,
}
HOOKS = {
    "decay": lambda: chainer.optimizer_hooks.WeightDecay(1e-3),
    "clipping": lambda: chainer.optimizer_hooks.GradientClipping(1.0),
    "noise": lambda: chainer.optimizer_hooks.GradientNoise(0.1),
    "lars": lambda: chainer.optimizer_hooks.GradientLARS(),
    "counting": CountingHook,
    "counting parameters": lambda: CountingHook("of parameters", call_for_each_param=True),
}


@st.composite
def trainings(draw):
    """Strategy of functions that make a network, an optimizer and an input, always the same."""
    names = draw(st.lists(st.sampled_from(list(LAYERS)), min_size=1, max_size=4))
    shared = draw(st.booleans())
    dtype = draw(st.sampled_from([np.float32, np.float16]))
    kind = draw(st.sampled_from(list(OPTIMIZERS)))
    hooks = draw(st.sets(st.sampled_from(list(HOOKS))))
    rule_hook, fp32 = draw(st.booleans()), draw(st.booleans())
    scale = draw(st.sampled_from([None, "dynamic", 8.0]))
    calls = draw(st.integers(0, 2))
    seed = draw(st.integers(0, 99))

    def make():
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        with chainer.using_config("dtype", np.dtype(dtype)):
            links = [LAYERS[name]() for name in names]
        model = chainer.Sequential(*links, *(links[:1] if shared else []))
        optimizer = OPTIMIZERS[kind]().setup(model)
        if "eps" in vars(optimizer.hyperparam):  # the default is 0 in float16
            optimizer.hyperparam.eps = 1e-3
        if fp32:
            optimizer.use_fp32_update()
        if scale is not None:
            optimizer.loss_scaling(**{} if scale == "dynamic" else {"scale": scale})
        for name in sorted(hooks):
            optimizer.add_hook(HOOKS[name]())
        if rule_hook:
            next(iter(model.params())).update_rule.add_hook(CountingHook())
        for _ in range(calls):
            optimizer.update(lambda: F.sum(model(X.astype(dtype))))
        return model, optimizer, X.astype(dtype)

    return make


@settings(max_examples=min(60, settings.default.max_examples))
@given(
    make=trainings(),
    phase=st.sampled_from(PHASES),
    with_optimizer=st.booleans(),
    call_by=st.sampled_from(["network", "function", "method", "variable"]),
)
def test_profile_restores_any_training_bit_by_bit(make, phase, with_optimizer, call_by):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        twin, _, x = make()
        with chainer.using_config("train", phase != "forward"):
            twin(x)
        first = {path: param.array.tobytes() for path, param in twin.namedparams()}
        model, optimizer, x = make()
        lazy = {path: param for path, param in model.namedparams() if param.array is None}
        called = {"function": lambda x: model(x), "method": model.forward}.get(call_by, model)
        if called is not model and phase == "train":
            called = model
        profiled_input = chainer.Variable(x) if call_by == "variable" else x
        rules = [param.update_rule for param in model.params()]
        objects = {"model": model, "called": called, "x": profiled_input, "optimizer": optimizer}
        before = describe(lazy.values(), rules=rules, **objects)
        profile(called, profiled_input, phase, **{"optimizer": optimizer} if with_optimizer else {})
        after = describe(lazy.values(), rules=rules, **objects)
    assert not differences(before, after)
    assert [param.update_rule for param in model.params()] == rules
    for path, param in lazy.items():
        assert param.array.tobytes() == first[path]
