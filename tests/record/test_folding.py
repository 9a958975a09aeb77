"""fold_call_history() divides a flat call history into layers and trials."""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.folding import fold_call_history
from tests.refusing import refusal


def history(names, first_ns=1000):
    """A history in which call i takes first_ns + i nanoseconds."""
    return [(name, (first_ns + i) * 1e-9) for i, name in enumerate(names)]


SEQUENCES = st.lists(st.sampled_from("abc"), min_size=1, max_size=12)


@given(SEQUENCES, st.integers(2, 6), st.integers(0, 10**12))
def test_repeated_sequence_becomes_trials(sequence, times, ns):
    # Times are rounded to the nanosecond.
    assert fold_call_history([("f", ns * 1e-9)], layers_per_trial=1).self_ns.tolist() == [[ns]]
    for length in (None, len(sequence)):
        recording = fold_call_history(history(sequence * times), layers_per_trial=length)
        period = len(recording.layers)
        assert period == length or not len(sequence) % period
        assert [layer.function for layer in recording.layers] * (
            len(sequence) // period
        ) == sequence
        assert [layer.index for layer in recording.layers] == list(range(period))
        # The times keep their order: row by row they are the history.
        assert recording.self_ns.shape == (len(sequence) * times // period, period)
        assert recording.self_ns.ravel().tolist() == [*range(1000, 1000 + len(sequence) * times)]
        assert recording.settings.trials == recording.n_trials


UNFIT = [
    ("", None, "the call history is empty: run the network under the hook first"),
    ("ab", -1, "layers_per_trial is -1: give a whole number from 1"),
    *((names, None, "or run more trials") for names in ("a", "ab", "abc", "aab", "abcab")),
    ("abcabca", None, "has 7 calls: that is 2 trials of 3 and 1 call more"),
    ("abab", 3, "has 4 calls: that is 1 trial of 3 and 1 call more"),
    # The message names the first call that differs.
    ("abcabXabc", 3, "call 5 of the history is X, and c in the first trial of 3 calls"),
]


def test_message_about_histories_without_trials():
    for names, length, text in UNFIT:
        assert text in refusal(fold_call_history, history(names), length), names
    for seconds in (float("nan"), float("inf"), -1e-9, 1e9, None):
        text = refusal(fold_call_history, [("a", 1e-3), ("b", 2e-3), ("a", 1e-3), ("b", seconds)])
        assert text.startswith(f"call 3 of the history is b with a time of {seconds}: a time is a ")


def test_history_of_timer_hook_becomes_a_recording():
    links = L.Linear(4, 3), L.BatchNormalization(3), F.relu, L.Linear(3, 2)
    net, x = chainer.Sequential(*links), np.ones((2, 4), np.float32)
    with chainer.using_config("train", False), chainer.function_hooks.TimerHook() as hook:
        for _ in range(5):
            net(x)
    recording = fold_call_history(hook.call_history)
    names = ["LinearFunction", "FixedBatchNormalization", "ReLU", "LinearFunction"]
    assert [layer.function for layer in recording.layers] == names
    seconds = np.array([time for _, time in hook.call_history]).reshape(5, 4)
    np.testing.assert_allclose(recording.self_ns * 1e-9, seconds, rtol=0, atol=0.51e-9)
    # Chainer's sums by function name are the function table, times the trials.
    summary = summarise(recording)
    assert recording.trial_ns is recording.start_ns is summary.totals.trial is None
    assert summary.totals.layers_s is None  # times within others would count twice
    functions = summary.functions
    for name, row in hook.summary().items():
        assert functions["total_s"][name] * 5 == pytest.approx(row["elapsed_time"], abs=20e-9)
        assert functions["calls"][name] * 5 == row["occurrence"]
