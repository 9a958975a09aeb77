"""Any network, through every door: each row of a trial has the time of its calls and no other."""

import gc
import tempfile
import warnings
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import chainer
import chainer.functions as F
import numpy as np
import pytest
from chainer import training
from chainer.function_hooks import TimerHook
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile import LayerProfile, LayerTimerHook, fold_call_history, profiling
from chainer_profile.cli.notebook import Cell, FirstRun
from chainer_profile.measure import runner
from chainer_profile.measure.steps import ForwardStep
from chainer_profile.record.recording import Settings
from chainer_profile.runs.folder import load_run
from tests.ledger import drawn
from tests.ledger.drawn import EXAMPLES, Fn, build, loss_of, nothing_left, programs, slow_chainer

N_TRIALS = 12
PHASES = st.sampled_from(["forward", "forward-backward", "train"])
#: Rows that a ledger does not see.
OTHERS = ("Sum", "SerialIterator")


def run(step, ledger, **kwargs):
    asked = Settings(trials=N_TRIALS, warmups=1, clean_trials=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a memory pass of a network of many kinds
        return runner.run(step, asked, clock=ledger, choose_threads=False, **kwargs)


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module", autouse=True)
def _quick():
    """Plots and properties of the machine have tests of their own."""
    from chainer_profile.integrations import trainer
    from chainer_profile.measure import environment, live, trials
    from chainer_profile.record.recording import Environment

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "write_reports", lambda *_: None)
        for module in (live, trials):  # it adds up gradients
            patch.setattr(module, "cost_of_a_call", lambda now_ns: 0.0)
        patch.setattr(environment, "collect", lambda *_: Environment(numpy="1"))
        yield


# -- checks


def framework(recording, at):
    if recording.phases:
        times = recording.framework_ns[at].tolist()
        return {("", "", of): ns for of, ns in zip(recording.phases, times, strict=True)}
    return {drawn.FORWARD: int(recording.trial_ns[at] - recording.self_ns[at].sum())}


def seen(counts, recording):
    """The part of a trial that a door sees: without phases the forward pass alone."""
    return Counter({of: n for of, n in counts.items() if recording.phases or of[2] == "forward"})


def check(recording, ledger, behind_ns=0):
    """Every trial is one of the ledger's, and that one in all it has.

    Trials that call the same functions may call more or fewer links: their mean is told.
    """
    starts, layers = recording.start_ns.tolist(), recording.layers
    assert len(set(starts)) == recording.n_trials
    called = Counter()
    for at, trial in enumerate(map(ledger.trials.__getitem__, starts)):
        spent = seen(trial.spent, recording)
        if recording.by_link:
            times, spent = drawn.by_row(layers, recording.self_ns[at]), drawn.of_rows(spent)
            calls = drawn.by_row(layers, recording.calls[at])
            calls = {of: n for of, n in calls.items() if n and of[1] not in OTHERS}
            assert calls == seen(trial.calls, recording)
        else:
            rows, times = drawn.by_call(layers, recording.self_ns[at])
            assert rows == trial.rows
        times.update(framework(recording, at))
        assert min(times.values()) >= 0
        assert times.total() == spent.total() == recording.trial_ns[at] - behind_ns
        assert +times == +spent
        called += trial.links
    calls = {link.path: round(link.calls * recording.n_trials) for link in recording.links}
    assert +Counter(calls) == called


# -- the doors


@EXAMPLES
@given(program=programs(), phase=PHASES, memory=st.booleans(), lazy=st.booleans())
def test_profile(program, phase, memory, lazy):
    model, ledger = build(program)
    step = drawn.step_of(phase, model, ledger)
    with nothing_left(model), slow_chainer(ledger), chainer.using_config("lazy_grad_sum", lazy):
        recording = run(step, ledger, memory=memory)
    assert recording.n_trials == N_TRIALS
    assert bool(recording.phases) is (phase != "forward")
    check(recording, ledger)


@EXAMPLES
@given(program=programs(), memory=st.booleans())
def test_cell(program, memory):
    model, ledger = build(program, drawn.Ledger(prefix="/model"))
    names = {"model": model, "x": np.zeros((1, 1), np.float32)}
    code = compile("y = model(x)", "cell", "exec")
    with nothing_left(model):
        FirstRun(code, names)
        recording = run(Cell(code, names), ledger, memory=memory, by_link=True)
    assert recording.n_trials == N_TRIALS
    assert recording.by_link
    assert (recording.memory is not None) is memory
    check(recording, ledger)


def drive(model, ledger, between):
    """Trials with other code between them."""
    for n in range(N_TRIALS):
        y = model(np.zeros((1, 1), np.float32))
        ledger.advance(100)
        for kind in between[n % len(between)] if between else ():
            if kind == "backward":
                y.grad = np.ones_like(y.array)
                y.backward()
            else:
                spec = Fn((7, 8, 9), (Fn((2, 3, 4)),), old_style=kind == "old function")
                trial, ledger.trial = ledger.trial, drawn.Trial()
                drawn.call(ledger, spec, np.zeros((1, 1), np.float32))
                ledger.trial = trial
            ledger.advance(10)


between = st.lists(
    st.lists(st.sampled_from(["backward", "function", "old function"]), max_size=2, unique=True),
    max_size=3,
)


@EXAMPLES
@given(program=programs(), between=between, two=st.booleans())
def test_layer_timer_hook(program, between, two):
    model, ledger = build(program)
    hooks = [LayerTimerHook(ledger) for _ in range(1 + two)]
    with nothing_left(model):
        with ExitStack() as stack:
            for hook in hooks:
                stack.enter_context(hook)
            drive(model, ledger, between)
        gc.collect()
    for hook in hooks:
        recording = hook.recording(model)
        assert recording.n_trials == N_TRIALS
        check(recording, ledger)


@EXAMPLES
@given(program=programs(raising=False, deep=False), between=between, first=st.booleans())
def test_histories(program, between, first):
    model, ledger = build(program)
    timer, hook = TimerHook(), LayerTimerHook(ledger)
    with pytest.MonkeyPatch.context() as patch, nothing_left(model), ExitStack() as stack:
        patch.setattr(chainer.function_hooks.timer, "_get_time", ledger.now_ns)
        for timing_hook in (hook, timer) if first else (timer, hook):
            stack.enter_context(timing_hook)
        drive(model, ledger, between)
    assert [name for name, _ in hook.call_history] == [name for name, _ in timer.call_history]
    assert [s for _, s in hook.call_history] == [ns / 1e9 for _, ns in timer.call_history]
    assert hook.total_time() == timer.total_time() / 1e9
    own = [(name, s) for name, s in hook.self_history if name.endswith("Work")]
    assert own == [(name, ns / 1e9) for name, ns in ledger.ended]
    folded = fold_call_history(hook, len(hook.self_history))
    assert folded.self_ns.tolist() == [[round(s * 1e9) for _, s in hook.self_history]]


class Updater(training.updaters.StandardUpdater):
    def update_core(self):
        self.get_iterator("main").next()
        optimizer, x = self.get_optimizer("main"), np.zeros((1, 1), np.float32)
        optimizer.update(lambda: self.loss(optimizer.target(x)))
        self.ledger.advance(100)


@EXAMPLES
@given(program=programs(), two=st.booleans(), memory=st.booleans())
def test_layer_profile(program, two, memory):
    model, ledger = build(program)
    iterator = chainer.iterators.SerialIterator(np.zeros((4, 1), np.float32), 2)
    with (
        nothing_left(model),
        slow_chainer(ledger),
        tempfile.TemporaryDirectory() as out,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        updater = Updater(iterator, drawn.Optimizer(ledger, model))
        updater.ledger, updater.loss = ledger, loss_of(ledger)
        before = dict(vars(updater))
        trainer = training.Trainer(updater, (N_TRIALS + 4, "iteration"), out=out)
        for n in range(1 + two):
            more = {"clock": ledger, "memory": memory, "machine": False}
            trainer.extend(LayerProfile(f"profile{n}", **more))
        trainer.run()
        assert set(vars(updater)) == set(before)
        for n in range(1 + two):
            recording = load_run(Path(out, f"profile{n}"))
            assert recording.by_link
            check(recording, ledger, behind_ns=100)
            assert recording.n_trials == N_TRIALS + 4 - 2 * memory  # two are the memory pass's
            assert (recording.memory is not None) is memory


@EXAMPLES
@given(program=programs(), memory=st.booleans())
def test_profiling(program, memory):
    model, ledger = build(program, drawn.Ledger(prefix="/model"))
    optimizer, loss = drawn.Optimizer(ledger, model), loss_of(ledger)
    block = profiling(memory=memory, clock=ledger)
    with nothing_left(model), slow_chainer(ledger):
        for _ in range(N_TRIALS):
            with block:
                optimizer.update(lambda: loss(model(np.zeros((1, 1), np.float32))))
    recording = block.recording()
    assert recording.by_link
    assert recording.n_trials == N_TRIALS - 2 * memory  # two are the memory pass's
    assert (recording.memory is not None) is memory
    check(recording, ledger)


# -- exceptions


def busy(clock, deep, raises):
    """Calls another one in itself, so deep, and the innermost may raise."""
    inner = [busy(clock, deep - 1, raises)] if deep else []
    return drawn.Busy(clock, 5, raises="forward" if raises and not deep else "", inner=inner)


def test_a_trial_that_raises_within_calls_is_not_kept(clock):
    """Five begins take the place of four begins and ends: nothing is kept of that trial."""

    def does(self, x, n):
        with suppress(drawn.WorkError):
            busy(clock, 3 + (n == 6), n == 6).apply((x,))

    identity = chainer.Sequential(lambda x: F.identity(x))
    step = ForwardStep(drawn.doing(does, a=identity), (np.zeros((1, 1), np.float32),))
    recording = run(step, clock, memory=False)
    assert recording.by_link
    assert recording.conditions.unlike_trials == 1
    assert [(layer.path, layer.function) for layer in recording.layers] == [("/", "Busy")]
    assert recording.self_ns[:, 0].tolist() == [20] * 12
    assert recording.calls[:, 0].tolist() == [4] * 12
    assert recording.warmup_ns.tolist() == [20]
