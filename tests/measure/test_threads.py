"""BLAS threads are chosen before the trials, used in the whole run, and restored afterwards."""

from contextlib import contextmanager

import pytest

from chainer_profile.basics import parsing
from chainer_profile.basics.errors import ProfileError
from chainer_profile.measure import environment, threads
from chainer_profile.measure.trials import _SETTLING_TRIALS
from chainer_profile.record.journal import Journal, recover
from chainer_profile.record.recording import BlasLibrary, Environment
from tests import queues
from tests.nets import Chain
from tests.queues import asked

MANY = 4
MS = 1_000_000
PROBE = ([MANY] * 4 + [1] * 4) * 10


class Blas:
    """A fake BLAS library on four cores, and its number of threads."""

    def __init__(self):
        self.threads = MANY

    @contextmanager
    def limit(self, count, user_api):
        assert user_api == "blas"
        before, self.threads = self.threads, count
        try:
            yield
        finally:
            self.threads = before

    def libraries(self):
        return (BlasLibrary("openblas", "1", self.threads),)

    def collect(self, *_):
        return Environment(physical_cores=MANY, usable_cores=MANY, blas=self.libraries())


@pytest.fixture(autouse=True)
def blas(monkeypatch):
    blas = Blas()
    for name in threads._VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "threadpool_limits", blas.limit)
    monkeypatch.setattr(environment, "collect", blas.collect)
    monkeypatch.setattr(environment, "blas_libraries", blas.libraries)
    monkeypatch.setattr(parsing, "usable_cores", lambda: MANY)
    yield blas
    assert blas.threads == MANY


class Net(Chain):
    """Takes ``one_ns`` longer with one thread and ``many_ns`` with all; records the threads."""

    def __init__(self, clock, blas, one_ns, many_ns):
        super().__init__(clock)
        self._blas, self._more_ns = blas, {1: one_ns, MANY: many_ns}
        self.ran = []

    def forward(self, x):
        self.ran.append(self._blas.threads)
        self.clock.advance(self._more_ns.get(self._blas.threads, 0))
        return super().forward(x)


def run(net, stop=lambda: "", journal=None, **changes):
    return queues.run(net, asked(**changes), memory=True, stop=stop, journal=journal)


def test_one_thread_is_used_in_all_passes_if_it_is_faster(clock, blas, tmp_path):
    net, path = Net(clock, blas, 0, 10_000), tmp_path / "journal"
    with open(path, "w+b") as file:
        recording = run(net, journal=Journal(file))
    trials = 2 + 20 + 5 + 2 + _SETTLING_TRIALS
    assert net.ran == [MANY] * 3 + PROBE + [1] * trials
    assert recording.settings.threads is None
    for same in (recording, recover(path)):
        assert same.environment.blas == (BlasLibrary("openblas", "1", 1),)
        assert same.probe_threads.tolist() == ([MANY] * 3 + [1] * 3) * 10
        assert set(same.probe_ns[same.probe_threads == 1].tolist()) == {208}
        assert set(same.probe_ns[same.probe_threads == MANY].tolist()) == {10_208}


def test_all_threads_are_used_if_they_are_clearly_faster(clock, blas):
    # All threads must gain 3 % to be preferred to one thread.
    for one_ns, many_ns, chosen in ((100, 0, MANY), (0, 0, 1), (0, -4, 1), (0, -20, MANY)):
        net = Net(clock, blas, one_ns, many_ns)
        assert run(net).environment.blas[0].threads == chosen
        assert set(net.ran[3 + len(PROBE) :]) == {chosen}, (one_ns, many_ns)

    class Disturbed(Net):  # a single slow trial does not change the choice
        def forward(self, x):
            if len(self.ran) == 3 + 4 + 1:  # a trial of one thread
                self.clock.advance(100_000)
            return super().forward(x)

    assert run(Disturbed(clock, blas, 0, 1000)).environment.blas[0].threads == 1


def test_number_of_threads_set_by_the_user_is_not_changed(clock, blas, monkeypatch):
    def threads_of_a_run(**changes):
        net = Net(clock, blas, 0, 10_000)
        recording = run(net, **changes)
        assert not len(recording.probe_ns)
        (count,) = {*net.ran, recording.environment.blas[0].threads}
        return count

    for name in threads._VARIABLES:
        with monkeypatch.context() as patch:
            patch.setenv(name, str(MANY))
            assert threads_of_a_run() == MANY
    assert [threads_of_a_run(threads=count) for count in (2, MANY)] == [2, MANY]
    with blas.limit(2, "blas"):  # the program sets it itself
        assert threads_of_a_run() == 2


@pytest.mark.parametrize(
    ("trial_ms", "trials", "probed"),
    [
        # A block is four trials, and the first does not count: 0.4 s. The fifth block ends at 2 s.
        (100, 20, ([MANY] * 3 + [1] * 3) * 2 + [MANY] * 3),
        (300, 20, [MANY, 1] * 3 + [MANY]),
        # One thread may take four times as long: more than a tenth of 25 trials, less than of 65.
        (1100, 20, []),
        (1100, 60, [MANY, 1]),
    ],
)
def test_probe_takes_two_seconds_at_most(clock, blas, trial_ms, trials, probed):
    recording = run(Net(clock, blas, trial_ms * MS, trial_ms * MS), trials=trials)
    assert recording.probe_threads.tolist() == probed
    assert recording.environment.blas[0].threads == (1 if probed else MANY)


def test_stop_and_exceptions_end_the_probe(clock, blas):
    net = Net(clock, blas, 0, 10_000)
    recording = run(net, stop=lambda: "enough" if len(net.ran) > 3 + 2 else "")
    assert (len(recording.probe_ns), recording.n_trials, recording.ended) == (2, 0, "enough")

    class Failing(Net):
        def forward(self, x):
            if len(self.ran) == 10:
                raise ValueError("broken")
            return super().forward(x)

    with pytest.raises(ProfileError, match="fails before the first trial: ValueError: broken"):
        run(Failing(clock, blas, 0, 0))
