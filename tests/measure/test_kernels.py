"""What the GPU runs for every layer: collecting by a stand-in for CUPTI, joining by its records."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import chainer
import chainer.links as L
import pytest

from chainer_profile import ProfileError
from chainer_profile.measure import kernels
from chainer_profile.measure.kernels import TRIALS, Activities, demangled, measure_kernels
from chainer_profile.measure.learner import learn_structure
from chainer_profile.measure.steps import make_step
from chainer_profile.record.recording import Kernel
from tests.fake_cupti import BUSY, FakeCupti
from tests.nets import image
from tests.queues import (
    LAUNCH_BOUND,
    N_HELD,
    PlannedNet,
    asked,
    calls,
    device_clock,
    fails,
    kernel,
    other_calls,
    run,
)

pytestmark = pytest.mark.usefixtures("one_thread")


class TestJoin:
    """The records of cupti-python itself, which needs no driver for them."""

    @pytest.fixture
    def cupti(self) -> Any:
        return pytest.importorskip("cupti.cupti")

    @pytest.fixture
    def ran(self, cupti: Any) -> Callable[..., Any]:
        """Makes the record of a kernel, a copy or a fill."""
        kinds = cupti.ActivityKind
        classes = {
            kinds.CONCURRENT_KERNEL: "ActivityKernel",
            kinds.KERNEL: "ActivityKernel",
            kinds.MEMCPY: "ActivityMemcpy",
            kinds.MEMSET: "ActivityMemset",
            kinds.DRIVER: "ActivityAPI",
        }

        def make(
            correlation: int, ns: int = 0, name: str = "", kind: Any = None, **more: Any
        ) -> Any:
            kind = kinds.CONCURRENT_KERNEL if kind is None else kind
            # Each release of CUPTI numbers its records.
            of = classes[kind]
            newest = max(n for n in dir(cupti) if n.rstrip("0123456789") == of and n[-1] != "P")
            record = getattr(cupti, newest)()
            given = {"kind": kind, "correlation_id": correlation, "start": 1000, "end": 1000 + ns}
            for field, value in (given | ({"name": name} if name else {}) | more).items():
                setattr(record, field, value)
            return record

        return make

    @pytest.fixture
    def under(self, cupti: Any) -> Callable[..., Any]:
        """Makes the record of an external id."""

        def make(correlation: int, external: int, kind: str = "CUSTOM0") -> Any:
            record = cupti.ActivityExternalCorrelation()
            record.kind = cupti.ActivityKind.EXTERNAL_CORRELATION
            record.external_kind = getattr(cupti.ExternalCorrelationKind, kind)
            record.external_id, record.correlation_id = external, correlation
            return record

        return make

    @staticmethod
    def joined(cupti: Any, records: list[Any], rows: dict[int, int | None]) -> list[Kernel]:
        """The same in whatever order, and in how many buffers ever, they come."""
        found = set()
        for seed in range(8):
            mixed = random.Random(seed).sample(records, len(records))
            activities = Activities(cupti)
            cut = seed % (len(mixed) + 1)
            activities.add(mixed[:cut])
            activities.add(mixed[cut:])
            found.add(activities.by_layer(rows))
        (only,) = found
        return list(only)

    def test_kernels_of_a_layer_are_added_up_in_their_order(
        self, cupti: Any, ran: Any, under: Any
    ) -> None:
        records = [
            *(ran(1, 500, "im2col"), under(1, 7)),
            *(ran(2, 900, "gemm"), under(2, 7)),
            *(ran(3, 300, "relu"), under(3, 8)),
            # The next trial, under ids of its own; CUPTI's older kind of kernel record.
            *(ran(4, 700, "im2col", cupti.ActivityKind.KERNEL), under(4, 17)),
            *(ran(5, 1100, "gemm"), under(5, 17)),
        ]
        assert self.joined(cupti, records, {7: 0, 8: 1, 17: 0}) == [
            Kernel("im2col", 0, 2, 1200),
            Kernel("gemm", 0, 2, 2000),
            Kernel("relu", 1, 1, 300),
        ]

    def test_copies_and_fills(self, cupti: Any, ran: Any, under: Any) -> None:
        kinds, copies = cupti.ActivityKind, cupti.ActivityMemcpyKind
        records = [
            *(ran(1, 40, kind=kinds.MEMCPY, copy_kind=copies.HTOD), under(1, 7)),
            *(ran(2, 50, kind=kinds.MEMCPY, copy_kind=copies.DTOD), under(2, 7)),
            *(ran(3, 60, kind=kinds.MEMSET), under(3, 7)),
        ]
        assert self.joined(cupti, records, {7: 4}) == [
            Kernel("memcpy HTOD", 4, 1, 40),
            Kernel("memcpy DTOD", 4, 1, 50),
            Kernel("memset", 4, 1, 60),
        ]

    def test_a_copy_beside_the_host_is_of_the_layer_that_launched_it(
        self, cupti: Any, ran: Any, under: Any
    ) -> None:
        copy = ran(1, 0, kind=cupti.ActivityKind.MEMCPY, copy_kind=cupti.ActivityMemcpyKind.DTOH)
        copy.start, copy.end = 90_000, 99_000  # in another stream, long after
        records = [copy, under(1, 7), ran(2, 300, "relu"), under(2, 8)]
        assert self.joined(cupti, records, {7: 0, 8: 1}) == [
            Kernel("memcpy DTOH", 0, 1, 9000),
            Kernel("relu", 1, 1, 300),
        ]

    def test_what_no_layer_launched_is_last(self, cupti: Any, ran: Any, under: Any) -> None:
        # Between the layers; by another thread, or one whose external id was dropped; of a trial of
        # another kind; and under the id of another tool.
        records = [
            *(ran(1, 100, "add"), under(1, 5)),
            ran(2, 200, "add"),
            *(ran(3, 400, "add"), under(3, 99)),
            *(ran(4, 800, "add"), under(4, 6, "CUSTOM1")),
            *(ran(5, 30, "add"), under(5, 6), under(5, 123, "CUSTOM1")),
        ]
        assert self.joined(cupti, records, {5: None, 6: 2}) == [
            Kernel("add", 2, 1, 30),
            Kernel("add", None, 3, 1100),
        ]

    def test_calls_of_the_host_are_nothing(self, cupti: Any, ran: Any, under: Any) -> None:
        call = ran(1, 700, kind=cupti.ActivityKind.DRIVER)
        assert self.joined(cupti, [call, under(1, 7)], {7: 0}) == []
        assert self.joined(cupti, [], {7: 0}) == []


@pytest.fixture
def clock() -> Any:
    return device_clock()


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, clock: Any) -> Iterator[Callable[..., FakeCupti]]:
    """Puts the stand-in in the place of the package; it is to be left as it was found."""
    made: list[FakeCupti] = []

    def put(**how: Any) -> FakeCupti:
        made.append(FakeCupti(clock.device, **how))
        package = ModuleType("cupti")
        package.cupti = made[-1]  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "cupti", package)
        monkeypatch.setattr(kernels.metadata, "version", lambda name: f"of {name}")
        return made[-1]

    yield put
    assert all(one.idle for one in made)


def measured(model: Any, clock: Any, phase: str = "forward", **kwargs: Any) -> Any:
    step = make_step(phase, model, (image(),), loss="mean_squared_error")
    with step.configured():
        return measure_kernels(step, learn_structure(step), clock.device, **kwargs)


def test_a_kernel_is_of_the_innermost_window(clock: Any, install: Any) -> None:
    install()
    nested = (("kernel", 7), ("call", kernel(1, 5)), ("kernel", 7))
    plan = (("kernel", 3), *calls(kernel(1, 2), nested), ("kernel", 11))
    found = measured(PlannedNet(clock, plan), clock)
    assert (found.trials, found.dropped, found.problem) == (TRIALS, 0, "")
    assert found.method == "cupti-python of cupti-python"
    assert found.kernels == (
        Kernel("kernel_2", 0, TRIALS, 2 * TRIALS),
        Kernel("kernel_7", 1, 2 * TRIALS, 14 * TRIALS),
        Kernel("kernel_5", 2, TRIALS, 5 * TRIALS),
        Kernel("kernel_3", None, TRIALS, 3 * TRIALS),
        Kernel("kernel_11", None, TRIALS, 11 * TRIALS),
    )


def test_a_training_step(clock: Any, install: Any) -> None:
    install()
    model = chainer.Sequential(PlannedNet(clock, calls(kernel(1, 20))), L.Linear(2, 4))
    step = make_step("train", model, (image(),), loss="mean_squared_error")
    with step.configured():
        structure = learn_structure(step)
        found = measure_kernels(step, structure, clock.device)
    launched = [structure.layers[one.row].phase for one in found.kernels if one.row is not None]
    assert launched == ["forward"]


def test_a_backward_has_its_own(clock: Any, install: Any) -> None:
    install()
    model = chainer.Sequential(L.Linear(2, 4), PlannedNet(clock, calls(kernel(1, 20))))
    step = make_step("forward-backward", model, (image(),), loss="mean_squared_error")
    with step.configured():
        structure = learn_structure(step)
        found = measure_kernels(step, structure, clock.device)
    rows = [structure.layers[one.row] for one in found.kernels if one.row is not None]
    assert [(row.function, row.phase) for row in rows] == [
        ("Planned", "forward"),
        ("Planned", "backward"),
    ]


def test_trials_of_another_kind_are_left_out(clock: Any, install: Any) -> None:
    install()
    net = PlannedNet(clock, LAUNCH_BOUND, 4, other_calls(kernel(1, 7), kernel(1, 9)))
    found = measured(net, clock)
    assert found.trials == 2
    assert [(one.name, one.count) for one in found.kernels] == [
        ("kernel_30", 2),
        ("kernel_20", 2),
        ("kernel_50", 2),
    ]


def test_it_ends_when_asked_to(clock: Any, install: Any) -> None:
    install()
    assert measured(PlannedNet(clock, LAUNCH_BOUND), clock, stop=lambda: "ctrl-c").trials == 1


def test_dropped_records_are_counted(clock: Any, install: Any) -> None:
    install(dropped=2)
    found = measured(PlannedNet(clock, LAUNCH_BOUND), clock)
    assert found.dropped == 2
    assert found.kernels[-2:] == (
        Kernel("kernel_30", None, 1, 30),
        Kernel("kernel_20", None, 1, 20),
    )
    assert sum(one.count for one in found.kernels) == 3 * TRIALS


def test_a_cupti_that_counts_no_dropped_records(clock: Any, install: Any) -> None:
    install(dropped=-1)
    found = measured(PlannedNet(clock, LAUNCH_BOUND), clock)
    assert (found.dropped, len(found.kernels)) == (0, 3)


PROBLEMS = {
    "no trial made the calls of the others": lambda net: PlannedNet(
        net.clock, net.plan, 2, other_calls(kernel(1, 7))
    ),
    "CUPTI tells of no kernel": lambda net: PlannedNet(net.clock, calls((("host", 5),))),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_nothing_to_tell_of(problem: str, clock: Any, install: Any) -> None:
    install()
    with pytest.raises(ProfileError, match=f"^{problem}$"):
        measured(PROBLEMS[problem](PlannedNet(clock, LAUNCH_BOUND)), clock)


REFUSED = (
    "CUPTI refuses (cuptiError: ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)); it serves one "
    "profiler at a time, so run without nsys, ncu and others"
)


class TestRun:
    def test_it_is_the_last_pass(self, clock: Any, install: Any) -> None:
        install()
        told: list[str] = []
        recording = run(PlannedNet(clock, LAUNCH_BOUND), clock=clock, kernels=True, say=told.append)
        assert recording.kernels is not None
        assert [one.row for one in recording.kernels.kernels] == [0, 1, 2]
        assert told == []
        without = run(PlannedNet(clock, LAUNCH_BOUND), clock=clock)
        assert without.kernels is None
        assert without.self_ns.tolist() == recording.self_ns.tolist()

    def test_another_user_of_cupti_is_said_and_the_run_goes_on(
        self, clock: Any, install: Any
    ) -> None:
        install(refuses=BUSY)
        told: list[str] = []
        recording = run(PlannedNet(clock, LAUNCH_BOUND), clock=clock, kernels=True, say=told.append)
        assert told == [f"kernels are not seen below the layers: {REFUSED}"]
        assert recording.kernels is not None
        assert recording.kernels.problem == REFUSED
        assert recording.n_trials == 20

    def test_a_network_that_fails_in_it(self, clock: Any, install: Any) -> None:
        install()
        told: list[str] = []
        # After a last structure pass.
        first = 3 + 2 + 25 + N_HELD + 1 + 1
        model = PlannedNet(clock, LAUNCH_BOUND, first, fails(ValueError("no")))
        recording = run(model, asked(), clock=clock, kernels=True, say=told.append)
        assert told == ["kernels are not seen below the layers: ValueError: no"]
        assert recording.n_trials == 20

    def test_without_the_package_the_report_says_so(
        self, clock: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delitem(sys.modules, "cupti", raising=False)
        monkeypatch.setattr(sys, "meta_path", [_Nowhere, *sys.meta_path])
        model = PlannedNet(clock, LAUNCH_BOUND)
        recording = run(model, clock=clock, kernels=True, say=pytest.fail)
        assert recording.kernels is not None
        problem = "cupti-python is not installed; docs/gpu.md says which one to take"
        assert recording.kernels.problem == problem

    def test_one_that_is_broken(self, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "cupti", SimpleNamespace())  # type: ignore[arg-type]
        told: list[str] = []
        run(PlannedNet(clock, LAUNCH_BOUND), clock=clock, kernels=True, say=told.append)
        assert "ImportError: cannot import name 'cupti'" in told[0]

    def test_on_the_host_there_is_none(self) -> None:
        assert run(chainer.Sequential(L.Linear(2, 4)), kernels=True).kernels is None


class _Nowhere:
    """Finds no package of that name."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "cupti":
            raise ModuleNotFoundError("No module named 'cupti'", name="cupti")


def test_names_are_as_in_cpp() -> None:
    assert demangled("cupy_add__float32") == "cupy_add__float32"
    assert demangled("_Z5scalePfi") in ("scale(float*, int)", "_Z5scalePfi")
    assert demangled("_Znonsense") == "_Znonsense"
