"""The journal: added records come back, whatever happens to the file."""

import errno
import os
import warnings
from dataclasses import fields, replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.basics.errors import ProfileError
from chainer_profile.record.journal import (
    CLEAN,
    HELD,
    KILLED,
    PROBE,
    PROFILED,
    WARMUP,
    Header,
    Journal,
    JournalError,
    Rows,
    Trial,
    recover,
)
from chainer_profile.record.recording import (
    COMPLETE,
    Conditions,
    Environment,
    Layer,
    LinkCalls,
    Rank,
    Recording,
    Settings,
)
from tests.recordings import assert_same, of_rank
from tests.refusing import refusal

MAGIC = b"chainer-profile journal 2\n"
#: Arrays with a value for each trial of a kind, and the axis of the others.
OF_TRIALS = ("trials", "held trials", "unprofiled trials", "warm-ups", "probes")
AXES = {item.name: item.metadata["axes"] for item in fields(Recording) if item.metadata}
#: Samples of profiled trials.
SAMPLES = [name for name, (axis, *_) in AXES.items() if axis == "trials"]
SAMPLES = [name for name in SAMPLES if name not in ("trial_ns", "start_ns")]


@st.composite
def runs(draw):
    """Any number of trials of each kind, of rows, phases and collectives."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    least, most = draw(st.sampled_from([(1, 99), (-(2**63), 2**63 - 1)]))
    row = st.tuples(*map(st.sampled_from, ("ab", "fg", ("forward", "communication"))))
    layers = tuple(
        Layer(at, *key, calls=draw(st.integers(1, 3)))
        for at, key in enumerate(draw(st.lists(row, max_size=6)))
    )
    phases = draw(st.sampled_from([(), ("forward",), ("forward", "backward")]))
    sizes = {axis: draw(st.integers(0, 3)) for axis in OF_TRIALS}
    sizes |= {"layers": len(layers), "phases": len(phases)}
    sizes["trials with CPU time"] = draw(st.integers(0, sizes["unprofiled trials"]))
    n_moves = sum(layer.phase == "communication" for layer in layers)
    sizes["rows of communication"] = n_moves
    absent = {"calls", *({"iteration"} if draw(st.booleans()) else ())}
    for names, are_there in (
        (("host_ns", "gap_ns", "launch_ns", "span_ns"), draw(st.booleans())),
        (("held_ns", "held_span_ns"), sizes["held trials"]),
        (("arrived_ns", "left_ns"), n_moves),
        (("framework_ns",), phases),
        (("clean_cpu_ns",), sizes["trials with CPU time"]),
    ):
        absent |= set() if are_there else set(names)
    return Recording(
        layers=layers,
        phases=phases,
        links=(LinkCalls("/", draw(st.text()), 2, 3),),
        settings=Settings(model="net", seed=3, input_shape=(1, 2)),
        environment=Environment(processor="A processor"),
        rank=draw(st.sampled_from([None, Rank(1, 2, "host")])),
        ended=KILLED,
        **{
            name: rng.integers(least, most, [sizes[axis] for axis in axes])
            for name, axes in AXES.items()
            if name not in absent
        },
    )


def trial(kind, start_ns, wall_ns, **samples):
    return Trial(
        *(kind, int(start_ns), int(wall_ns)),
        {name: np.array(values, "<i8").tobytes() for name, values in samples.items()},
    )


def records_of(run):
    """What a journal gets of a run."""
    on_device, iterates = run.on_device, run.iteration is not None
    yield Header(run.settings, run.environment, on_device, iterates, run.rank)
    yield Rows(run.layers, run.phases, run.links, run.settings)
    samples = {name: getattr(run, name) for name in SAMPLES if getattr(run, name) is not None}
    for at, times in enumerate(zip(run.start_ns, run.trial_ns, strict=True)):
        yield trial(PROFILED, *times, **{name: values[at] for name, values in samples.items()})
    cpu_ns = [] if run.clean_cpu_ns is None else run.clean_cpu_ns
    for at, times in enumerate(zip(run.clean_start_ns, run.clean_ns, strict=True)):
        yield trial(CLEAN, *times, **({"cpu_ns": cpu_ns[at]} if at < len(cpu_ns) else {}))
    for wall_ns in run.warmup_ns:
        yield trial(WARMUP, 0, wall_ns)
    for wall_ns, threads in zip(run.probe_ns, run.probe_threads, strict=True):
        yield trial(PROBE, 0, wall_ns, threads=threads)
    if run.held_ns is not None:
        for wall_ns, self_ns in zip(run.held_span_ns, run.held_ns, strict=True):
            yield trial(HELD, 0, wall_ns, self_ns=self_ns)


def bytes_of(*records):
    """Records by the format's description."""
    texts = map(msgspec.msgpack.encode, records)
    return b"".join(len(text).to_bytes(8, "little") + text for text in texts)


def recorded(*records):
    """The recording of a journal with these records."""
    journal = Journal()
    journal.add(*records)
    return journal.recording(Conditions(), KILLED)


#: A training of a rank on a GPU.
RUN = replace(
    of_rank(ended=KILLED, limits=None, memory=None, counters=None, inside=None),
    **{"conditions": Conditions(), "calls": None},
)
RECORDS = list(records_of(RUN))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "recording.journal"


@pytest.fixture
def file(path):
    with open(path, "w+b") as opened:
        yield opened


# --- there and back


@given(run=runs(), n_groups=st.integers(1, 13), lost=st.integers(0, 4000))
def test_added_records_come_back(run, n_groups, lost, tmp_path_factory):
    path, records = tmp_path_factory.getbasetemp() / "any.journal", list(records_of(run))
    with open(path, "w+b") as file:
        for journal in (Journal(), Journal(file)):
            for group in np.array_split(np.arange(len(records)), n_groups):
                journal.add(*(records[i] for i in group))
            again = journal.recording(Conditions(1.0), COMPLETE)
            assert_same(again, replace(run, conditions=Conditions(1.0), ended=COMPLETE))
    content = path.read_bytes()
    assert content == MAGIC + bytes_of(*records)
    assert_same(recover(path), run)

    # Cut anywhere.
    size = max(0, len(content) - lost)
    path.write_bytes(content[:size])
    ends = len(MAGIC) + np.cumsum([len(bytes_of(record)) for record in records])
    whole = records[: int(np.searchsorted(ends, size, side="right"))]
    assert_same(recover(path), recorded(*whole))


# --- a file that was damaged, or is not ours

#: The same as types of JSON, and bytes.
BARE = [msgspec.msgpack.decode(msgspec.msgpack.encode(record)) for record in RECORDS]


def test_damaged_headers_and_other_files_are_refused_in_one_line(path, tmp_path):
    others = (b"another", b"PK\x03\x04" + bytes(50), b"chainer-profile journal 11\n")
    for content in others:
        path.write_bytes(content)
        assert refusal(recover, path) == f"{path} is not a chainer-profile journal", content
    path.write_bytes(b"chainer-profile journal\n30\n{}")
    assert refusal(recover, path).startswith(f"{path} is of an older version of this program: ")
    header, rows, first, *_ = BARE
    damaged = [
        *((header | {"environment": 3},), (3,), (rows, header), (first,)),
        # Samples that are too many, too few, and no integers; a kind that is none; a large number.
        (header, first),
        *((header, rows, first | {"samples": {"launch_ns": b"x" * n}}) for n in (0, 1)),
        *((header, rows, first | change) for change in ({"kind": "x"}, {"wall_ns": 2**63})),
    ]
    for records in damaged:
        path.write_bytes(MAGIC + bytes_of(*records))
        assert refusal(recover, path).startswith(f"{path} is damaged: "), records
    deep = b"\x91" * 100_000
    path.write_bytes(MAGIC + len(deep).to_bytes(8, "little") + deep)
    assert refusal(recover, path).startswith(f"{path} is damaged: ")
    for place in (tmp_path, tmp_path / "none", tmp_path / "none" / "none"):
        assert "cannot be read" in refusal(recover, place)


def changed_bytes(draw):
    content = bytearray(MAGIC + bytes_of(*RECORDS))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(content)))
        taken = draw(st.sampled_from([0, 1, 40, len(content)]))
        content[at : at + taken] = draw(st.binary(max_size=1) | st.just(bytes(8)))
    return bytes(content)


@given(data=st.data())
def test_a_changed_journal_is_refused_in_one_line_or_can_be_kept(data, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "changed.journal"
    path.write_bytes(changed_bytes(data.draw))
    again = path.with_suffix(".npz")
    try:
        with warnings.catch_warnings(record=True):
            recover(path).save(again)
        Recording.load(again)
    except ProfileError as error:
        assert "\n" not in str(error)  # noqa: PT017


# --- a disk that fills up

FULL = OSError(errno.ENOSPC, "No space left on device")


def fill(monkeypatch, space, at_once):
    """Let files take so many bytes, at most so many at once, and then be full."""
    write, left = os.write, [space]

    def write_some(fd, data):
        size = min(len(data), left[0], at_once)
        if not size:
            raise FULL
        left[0] -= size
        return write(fd, data[:size])

    monkeypatch.setattr(os, "write", write_some)


@pytest.mark.parametrize(("space", "at_once"), [(0, 7), (1, 7), (700, 7), (1500, 1 << 30)])
def test_a_full_disk_loses_no_record(path, file, monkeypatch, space, at_once):
    fill(monkeypatch, space, at_once)
    journal, errors = Journal(file), []
    for record in RECORDS:
        try:
            journal.add(record)
        except JournalError as problem:
            errors.append(str(problem))
    assert errors == [FULL.strerror]
    assert_same(journal.recording(Conditions(), KILLED), RUN)
    ends = len(MAGIC) + np.cumsum([len(bytes_of(record)) for record in RECORDS])
    written = int(np.searchsorted(ends, space, side="right"))
    assert_same(recover(path), recorded(*RECORDS[:written]))


def test_a_file_of_the_program_s_that_has_the_journal_s_number_is_left_alone(path, file, tmp_path):
    *first, second, third = RECORDS
    journal = Journal(file)
    journal.add(*first)
    mine = tmp_path / "mine"
    with open(mine, "w+b") as other:
        kept = os.dup(file.fileno())
        os.dup2(other.fileno(), file.fileno())  # as after os.closerange and an open()
        with pytest.raises(JournalError, match="another file now has its descriptor"):
            journal.add(second)
        journal.add(third)
        assert_same(journal.recording(Conditions(), KILLED), RUN)
        os.dup2(kept, file.fileno())
        os.close(kept)
    assert mine.read_bytes() == b""
    assert_same(recover(path), recorded(*first))


# --- rows by link


def test_calls_and_work_of_rows_by_link_are_means():
    """Rows that come later are zero in earlier iterations."""
    a, b = Layer(0, "/a", "f", flops=10), Layer(1, "/b", "g", calls=2, flops=7)
    recording = recorded(
        Header(Settings(), Environment()),
        Rows((a,)),
        trial(PROFILED, 100, 50, self_ns=[30], calls=[2]),
        Rows((b,)),
        trial(PROFILED, 300, 90, self_ns=[20, 40], calls=[1, 4]),
    )
    assert recording.by_link
    assert [row.calls for row in recording.layers] == [1.5, 2]
    assert [(row.flops, row.work_is_about) for row in recording.layers] == [(15, True), (7, False)]


@given(runs())
def test_trials_of_single_calls_become_rows_by_link(run):
    """As if rows had been by link from the begin, but without held trials."""

    def grouped(rows, table, ufunc=np.add):
        """Columns of the same link and function combined, of a table with these rows."""
        names = [(row.path, row.function, row.phase) for row in rows]
        columns = [
            ufunc.reduce(table[:, [name == key for name in names]], axis=1)
            for key in dict.fromkeys(names)
        ]
        return np.stack(columns, axis=1) if columns else table

    moves = [row for row in run.layers if row.phase == "communication"]
    names = dict.fromkeys((row.path, row.function, row.phase) for row in run.layers)
    layers = tuple(Layer(at, *name) for at, name in enumerate(names))
    single = np.tile(np.array([row.calls for row in run.layers], int), (run.n_trials, 1))
    calls = grouped(run.layers, single)
    changes = {"calls": calls, "held_ns": None, "held_span_ns": None, "phases": ("update",)}
    changes["framework_ns"] = np.zeros((run.n_trials, 1), int)
    for name in ("self_ns", "host_ns", "gap_ns"):
        if (table := getattr(run, name)) is not None:
            changes[name] = grouped(run.layers, table)
    if moves:
        changes["arrived_ns"] = grouped(moves, run.arrived_ns, np.minimum)
        changes["left_ns"] = grouped(moves, run.left_ns, np.maximum)
    means = calls[0].tolist() if run.n_trials else [1] * len(layers)
    changes["layers"] = tuple(map(lambda row, mean: replace(row, calls=mean), layers, means))
    run = replace(run, phases=("update",), framework_ns=changes["framework_ns"])
    anew = Rows(layers, ("update",), run.links, run.settings, anew=True)
    assert_same(recorded(*records_of(run), anew), replace(run, **changes))
