"""Every entry point measures any network exactly: each row has the time of its calls."""

import gc
import tempfile
import warnings
from bisect import bisect_left
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import chainer
import numpy as np
import pytest
from chainer import training
from chainer.function_hooks import TimerHook
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile import LayerProfile, LayerTimerHook, fold_call_history
from chainer_profile.measure import runner
from chainer_profile.record.recording import Settings
from chainer_profile.runs.folder import load_run
from tests.ledger import random_programs
from tests.ledger.ledger import (
    FORWARD,
    Trial,
    framework_of,
    rows_and_times_by_owner,
    sum_by_row,
    values_by_row,
)
from tests.ledger.random_programs import EXAMPLES, Fn, X, assert_unpatched, build, programs
from tests.ledger.slow import Optimizer, loss_of, slow_chainer, step_of

N_TRIALS = 12
PHASES = st.sampled_from(["forward", "forward-backward", "train"])
#: Functions of rows that the ledger does not record.
OTHERS = ("Sum", "SerialIterator")

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module", autouse=True)
def _quick():
    """Skip plots and properties of the machine, which other tests check."""
    from chainer_profile.integrations import trainer
    from chainer_profile.measure import environment, iteration_writer, trials
    from chainer_profile.record.recording import Environment

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "write_reports", lambda *_: None)
        for module in (
            iteration_writer,
            trials,
        ):  # the cost is measured by functions that add up gradients
            patch.setattr(module, "cost_of_a_call", lambda now_ns: 0.0)
        patch.setattr(environment, "collect", lambda *_: Environment(numpy="1"))
        yield


def check(recording, ledger, after_ns=0):
    """Check that the trials of a recording have the rows, times and calls in the ledger.

    A recording without phases has only the forward pass. The recording has the mean number of
    calls of each link.
    """
    layers, phases = recording.layers, recording.phases
    begins = list(ledger.trials)  # times at which the network is called
    numbers = [bisect_left(begins, start) for start in recording.start_ns.tolist()]
    assert len(set(numbers)) == recording.n_trials
    called = Counter()

    def reported(counts):
        return Counter({key: n for key, n in counts.items() if phases or key[2] == "forward"})

    for index, trial in enumerate(ledger.trials[begins[number]] for number in numbers):
        spent, self_ns = reported(trial.spent), recording.self_ns[index]
        if recording.by_link:
            times, spent = values_by_row(layers, self_ns), sum_by_row(spent)
            calls = values_by_row(layers, recording.calls[index])
            calls = {key: n for key, n in calls.items() if n and key[1] not in OTHERS}
            assert calls == {key: n for key, n in reported(trial.calls).items() if key[1]}
        else:
            rows, times = rows_and_times_by_owner(layers, self_ns)
            assert rows == trial.rows
        if phases:
            framework_ns = recording.framework_ns[index].tolist()
            of_phases = zip(map(framework_of, phases), framework_ns, strict=True)
            times.update(dict(of_phases))
        else:
            times[FORWARD] = int(recording.trial_ns[index] - self_ns.sum())
        assert min(times.values()) >= 0
        assert times.total() == recording.trial_ns[index] - after_ns
        assert +times == +spent
        called += trial.links
    calls = {link.path: round(link.calls * recording.n_trials) for link in recording.links}
    assert +Counter(calls) == called


@EXAMPLES
@given(
    program=programs(),
    phase=PHASES,
    memory=st.booleans(),
    lazy=st.booleans(),
    by_link=st.booleans(),
)
def test_profile_rows_have_the_time_of_their_calls(program, phase, memory, lazy, by_link):
    model, ledger = build(program)
    step = step_of(phase, model, ledger)
    plan = Settings(trials=N_TRIALS, warmups=1, clean_trials=2)
    passes = {"memory": memory, "by_link": by_link, "choose_threads": False}
    with (
        assert_unpatched(model),
        slow_chainer(ledger),
        chainer.using_config("lazy_grad_sum", lazy),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter(
            "ignore"
        )  # the memory pass warns about networks that it cannot measure
        recording = runner.run(step, plan, clock=ledger, **passes)
    assert recording.n_trials == N_TRIALS
    assert recording.by_link >= by_link
    assert bool(recording.phases) is (phase != "forward")
    check(recording, ledger)


def drive(model, ledger, between):
    """Run trials, with other code between them."""
    for n in range(N_TRIALS):
        y = model(X)
        ledger.advance(100)
        for kind in between[n % len(between)] if between else ():
            if kind == "backward":
                y.grad = np.ones_like(y.array)
                y.backward()
            else:
                trial, ledger.trial = ledger.trial, Trial()
                Fn((7, 8, 9), (Fn((2, 3, 4)),), old_style=kind == "old function").do(ledger, X)
                ledger.trial = trial
            ledger.advance(10)


between = st.lists(
    st.lists(st.sampled_from(["backward", "function", "old function"]), max_size=2, unique=True),
    max_size=3,
)


@EXAMPLES
@given(program=programs(), between=between, two=st.booleans())
def test_layer_timer_hook_rows_have_the_time_of_their_calls(program, between, two):
    model, ledger = build(program)
    hooks = [LayerTimerHook(ledger) for _ in range(1 + two)]
    with assert_unpatched(model), slow_chainer(ledger, slow_lookup=not two):
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
def test_call_history_equals_that_of_timer_hook(program, between, first):
    model, ledger = build(program)
    timer, hook = TimerHook(), LayerTimerHook(ledger)
    with pytest.MonkeyPatch.context() as patch, assert_unpatched(model), ExitStack() as stack:
        patch.setattr(chainer.function_hooks.timer, "_get_time", ledger.now_ns)
        for timing_hook in (hook, timer) if first else (timer, hook):
            stack.enter_context(timing_hook)
        drive(model, ledger, between)
    assert [name for name, _ in hook.call_history] == [name for name, _ in timer.call_history]
    assert [s for _, s in hook.call_history] == [ns / 1e9 for _, ns in timer.call_history]
    assert hook.total_time() == timer.total_time() / 1e9
    self_history = [(name, s) for name, s in hook.self_history if name.endswith("Work")]
    assert self_history == [(owner[1], ns / 1e9) for owner, ns in ledger.ended]
    from_history = fold_call_history(hook, len(hook.self_history))
    assert from_history.self_ns.tolist() == [[round(s * 1e9) for _, s in hook.self_history]]


class Updater(training.updaters.StandardUpdater):
    def update_core(self):
        self.get_iterator("main").next()
        optimizer = self.get_optimizer("main")
        optimizer.update(lambda: loss_of(optimizer.ledger)(optimizer.target(X)))
        optimizer.ledger.advance(100)


@EXAMPLES
@given(program=programs(), two=st.booleans(), memory=st.booleans())
def test_layer_profile_rows_have_the_time_of_their_calls(program, two, memory):
    model, ledger = build(program)
    iterator = chainer.iterators.SerialIterator(np.zeros((4, 1), np.float32), 2)
    updater = Updater(iterator, Optimizer(ledger, model))
    before = set(vars(updater))
    with (
        tempfile.TemporaryDirectory() as out,
        assert_unpatched(model),
        slow_chainer(ledger, slow_lookup=not two),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        trainer = training.Trainer(updater, (N_TRIALS, "iteration"), out=out)
        for n in range(1 + two):
            more = {"clock": ledger, "memory": memory, "machine": False}
            trainer.extend(LayerProfile(f"profile{n}", **more))
        trainer.run()
        recordings = [load_run(Path(out, f"profile{n}")) for n in range(1 + two)]
    assert set(vars(updater)) == before
    for recording in recordings:
        assert recording.by_link
        assert recording.n_trials == N_TRIALS - 2 * memory  # the memory pass takes two
        assert (recording.memory is not None) is memory
        check(recording, ledger, after_ns=100)


def test_trial_with_exception_in_nested_calls_is_recorded():
    """The log of this trial has five begin events instead of four begin and end events."""

    def nested(deep, raises):
        inner = (nested(deep - 1, raises),) if deep else ()
        return Fn((5, 0, 0), inner, raises=raises and not deep, caught=deep != 3 + raises)

    branch = random_programs.Branch((*[(nested(3, False),)] * 3, (nested(4, True),)))
    make_network = random_programs.NetworkBody((0, 0, 0, 0, 0, 0, 3), (branch,))
    program = random_programs.Spec("NewLink", True, (), (make_network,))
    model, ledger = build((program,))
    recording = runner.run(
        *(step_of("forward", model, ledger), Settings(trials=12, warmups=1, clean_trials=2)),
        **{"clock": ledger, "memory": False, "choose_threads": False},
    )
    assert (recording.n_trials, recording.by_link) == (12, True)
    check(recording, ledger)
