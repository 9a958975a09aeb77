"""A flat call history, folded into layers and trials."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import chainer_profile  # noqa: F401  (lets Chainer import on current NumPy)

# isort: split
import chainer
import chainer.functions as F
import chainer.links as L

from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.errors import ProfileError
from chainer_profile.record.folding import fold_call_history, shortest_period

NAMES = ("LinearFunction", "ReLU", "FixedBatchNormalization")


def history(names, first_ns=1000):
    """A history whose call i took first_ns + i nanoseconds."""
    return [(name, (first_ns + i) * 1e-9) for i, name in enumerate(names)]


def refusal(*args, **kwargs):
    with pytest.raises(ProfileError) as error:
        fold_call_history(*args, **kwargs)
    text = str(error.value)
    assert "\n" not in text
    return text


@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=12), st.integers(2, 6))
def test_a_repeated_sequence_folds_into_its_trials(word, times):
    recording = fold_call_history(history(word * times))
    period = len(recording.layers)
    assert len(word) % period == 0
    assert recording.n_trials == len(word) * times // period
    assert [layer.function for layer in recording.layers] * (len(word) // period) == word
    assert [layer.index for layer in recording.layers] == list(range(period))
    # The times keep their order: row by row they are the history.
    assert recording.self_ns.ravel().tolist() == list(range(1000, 1000 + len(word) * times))
    assert recording.settings.trials == recording.n_trials


@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=12), st.integers(1, 6))
def test_a_given_length_is_taken(word, times):
    recording = fold_call_history(history(word * times), layers_per_trial=len(word))
    assert recording.self_ns.shape == (times, len(word))
    assert [layer.function for layer in recording.layers] == word


@given(st.lists(st.sampled_from("ab"), min_size=1, max_size=16))
def test_the_period_is_the_shortest_that_fits_twice(names):
    fitting = [
        p
        for p in range(1, len(names) // 2 + 1)
        if all(names[i] == names[i - p] for i in range(p, len(names)))
    ]
    if fitting:
        assert shortest_period(names) == fitting[0]
    else:
        with pytest.raises(ProfileError, match="do not repeat"):
            shortest_period(names)


def test_the_call_i_belongs_to_layer_i_mod_l():
    recording = fold_call_history([("a", 1e-3), ("b", 2e-3), ("a", 3e-3), ("b", 4e-3)])
    assert recording.self_ns.tolist() == [[1_000_000, 2_000_000], [3_000_000, 4_000_000]]
    layers = summarise(recording).layers
    assert layers["label"].tolist() == ["0_a", "1_b"]
    assert layers["mean_s"].tolist() == pytest.approx([2e-3, 3e-3], rel=1e-12)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=20))
def test_times_are_rounded_to_the_nanosecond(times):
    recording = fold_call_history([("f", ns * 1e-9) for ns in times], layers_per_trial=1)
    assert recording.self_ns[:, 0].tolist() == times


def test_trial_times_are_not_known():
    recording = fold_call_history(history(["a", "b"] * 2))
    assert recording.trial_ns is None
    assert recording.start_ns is None
    totals = summarise(recording).totals
    assert totals.trial is None
    assert totals.layers_s is None  # times within others would count twice


# --- errors


def test_an_empty_history():
    assert refusal([]) == "the call history is empty: run the network under the hook first"
    assert "is empty" in refusal([], layers_per_trial=3)


@pytest.mark.parametrize("length", [0, -1])
def test_a_length_below_one(length):
    assert refusal(history("ab"), length) == (
        f"layers_per_trial is {length}: give a whole number from 1"
    )


@pytest.mark.parametrize("names", ["a", "ab", "abc", "aab", "abcab"])
def test_a_history_that_does_not_repeat(names):
    text = refusal(history(names))
    assert f"the {len(names)} call" in text
    assert "give layers_per_trial, or run more trials" in text


@pytest.mark.parametrize(
    ("names", "length", "text"),
    [
        ("abcabca", None, "has 7 calls: that is 2 trials of 3 and 1 call more"),
        ("abab", 3, "has 4 calls: that is 1 trial of 3 and 1 call more"),
        ("abcd", 10, "has 4 calls: that is 0 trials of 10 and 4 calls more"),
    ],
)
def test_calls_left_over(names, length, text):
    assert text in refusal(history(names), length)


def test_trials_that_differ_are_told_by_the_first_call():
    text = refusal(history("abcabXabc"), 3)
    assert text.startswith("call 5 of the history is X, and c in the first trial of 3 calls")
    assert "layers_per_trial is wrong" in text


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1e-9, 1e9, None])
def test_times_that_are_none(seconds):
    text = refusal([("a", 1e-3), ("b", 2e-3), ("a", 1e-3), ("b", seconds)])
    assert text == (
        f"call 3 of the history is b with a time of {seconds}: a time is a number of seconds, "
        "not below 0"
    )


# --- Chainer's own hook


class Net(chainer.Chain):
    """Linear, batch normalisation, ReLU, linear."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.first = L.Linear(4, 3)
            self.norm = L.BatchNormalization(3)
            self.second = L.Linear(3, 2)

    def forward(self, x):
        return self.second(F.relu(self.norm(self.first(x))))


def test_the_history_of_chainers_timer_hook_is_folded():
    net, x = Net(), np.ones((2, 4), np.float32)
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        net(x)
        with chainer.function_hooks.TimerHook() as hook:
            for _ in range(5):
                net(x)
    recording = fold_call_history(hook.call_history)
    assert [layer.function for layer in recording.layers] == [
        "LinearFunction",
        "FixedBatchNormalization",
        "ReLU",
        "LinearFunction",
    ]
    assert recording.self_ns.shape == (5, 4)
    seconds = np.array([time for _, time in hook.call_history]).reshape(5, 4)
    np.testing.assert_allclose(recording.self_ns * 1e-9, seconds, rtol=0, atol=0.51e-9)
    assert recording.self_ns.sum() * 1e-9 == pytest.approx(hook.total_time(), abs=20e-9)
    # Chainer's sums by function name are the function table, times the trials.
    functions = summarise(recording).functions
    for name, row in hook.summary().items():
        assert functions["total_s"][name] * 5 == pytest.approx(row["elapsed_time"], abs=20e-9)
        assert functions["calls"][name] * 5 == row["occurrence"]


def test_a_periodic_network_needs_the_length_of_a_trial():
    net = chainer.Sequential(L.Linear(2, 2), F.relu, L.Linear(2, 2), F.relu)
    with chainer.function_hooks.TimerHook() as hook:
        for _ in range(3):
            net(np.ones((1, 2), np.float32))
    assert fold_call_history(hook.call_history).self_ns.shape == (6, 2)
    assert fold_call_history(hook.call_history, layers_per_trial=4).self_ns.shape == (3, 4)
