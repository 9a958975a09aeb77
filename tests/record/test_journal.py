"""Records of a journal are recovered, whatever happens to the file."""

import errno
import os
import struct
import warnings
import zlib
from dataclasses import fields, replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.basics.errors import ProfileError
from chainer_profile.record import journal as kinds
from chainer_profile.record.journal import Header, Journal, JournalError, Rows, Trial, recover
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
from tests.recordings import assert_same, rank_recording
from tests.refusing import refusal

MAGIC = b"chainer-profile journal 3\n"
AXES = {item.name: item.metadata["axes"] for item in fields(Recording) if item.metadata}
#: Samples of profiled trials.
SAMPLES = {name for name, (axis, *_) in AXES.items() if axis == "trials"} - {"trial_ns", "start_ns"}


@st.composite
def runs(draw):
    """Strategy of recordings with any numbers of trials, rows, phases and collectives."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    minimum, maximum = draw(st.sampled_from([(1, 99), (-(2**63), 2**63 - 1)]))
    row = st.tuples(*map(st.sampled_from, ("ab", "fg", ("forward", "communication"))))
    layers = tuple(Layer(index, *key) for index, key in enumerate(draw(st.lists(row, max_size=6))))
    phases = draw(st.sampled_from([(), ("forward",), ("forward", "backward")]))
    n_moves = sum(layer.phase == "communication" for layer in layers)
    sizes = {axis: draw(st.integers(0, 3)) for axes in AXES.values() for axis in axes}
    sizes |= {"layers": len(layers), "phases": len(phases), "rows of communication": n_moves}
    sizes["trials with CPU time"] = min(sizes["trials with CPU time"], sizes["unprofiled trials"])
    present = {
        "host_ns gap_ns launch_ns span_ns": draw(st.booleans()),
        "held_ns held_span_ns": sizes["held trials"],
        "arrived_ns left_ns": n_moves,
        "framework_ns": phases,
        "clean_cpu_ns": sizes["trials with CPU time"],
        "iteration": draw(st.booleans()),
        "calls": False,
    }
    absent = {
        name for names, is_present in present.items() if not is_present for name in names.split()
    }
    return Recording(
        layers=layers,
        phases=phases,
        links=(LinkCalls("/", draw(st.text()), 2, 3),),
        settings=Settings(model="net", seed=3, input_shape=(1, 2)),
        environment=Environment(processor="A processor"),
        rank=draw(st.sampled_from([None, Rank(1, 2, "host")])),
        ended=kinds.KILLED,
        **{
            name: rng.integers(minimum, maximum, [sizes[axis] for axis in axes])
            for name, axes in AXES.items()
            if name not in absent
        },
    )


def trial(kind, start_ns, wall_ns, **samples):
    arrays = {name: np.array(values, "<i8").tobytes() for name, values in samples.items()}
    return Trial(kind, int(start_ns), int(wall_ns), arrays)


def records_of(run):
    """The records of a run's journal."""
    iterates = run.iteration is not None
    yield Header(run.settings, run.environment, run.on_device, iterates, run.rank)
    yield Rows(run.layers, run.phases, run.links, run.settings)
    samples = {name: getattr(run, name) for name in SAMPLES if getattr(run, name) is not None}
    for i, times in enumerate(zip(run.start_ns, run.trial_ns, strict=True)):
        own = {name: values[i] for name, values in samples.items()}
        yield trial(kinds.PROFILED, *times, **own)
    cpu_ns = [] if run.clean_cpu_ns is None else run.clean_cpu_ns
    for i, times in enumerate(zip(run.clean_start_ns, run.clean_ns, strict=True)):
        yield trial(kinds.CLEAN, *times, **({"cpu_ns": cpu_ns[i]} if i < len(cpu_ns) else {}))
    for wall_ns in run.warmup_ns:
        yield trial(kinds.WARMUP, 0, wall_ns)
    for wall_ns, threads in zip(run.probe_ns, run.probe_threads, strict=True):
        yield trial(kinds.PROBE, 0, wall_ns, threads=threads)
    if run.held_ns is not None:
        for wall_ns, self_ns in zip(run.held_span_ns, run.held_ns, strict=True):
            yield trial(kinds.HELD, 0, wall_ns, self_ns=self_ns)


def bytes_of(*records, section=0):
    """Encode records independently of the implementation."""
    content = b""
    for record in records:
        section += isinstance(record, Rows)
        text = msgspec.msgpack.encode(record)
        fields = struct.pack("<II", section, len(text))
        crc = zlib.crc32(fields + text)
        content += b"\xc1JR\n" + fields + crc.to_bytes(4, "little") + text
    return content


def ends_of(records):
    """The position of the end of each record in a journal."""
    return [len(MAGIC) + len(bytes_of(*records[: index + 1])) for index in range(len(records))]


def recorded(*records):
    """Make the recording of a journal with these records."""
    journal = Journal()
    journal.add(*records)
    return journal.recording(Conditions(), kinds.KILLED)


def before_cut(records, size):
    """The records that are complete in the first ``size`` bytes of a journal."""
    return records[: int(np.searchsorted(ends_of(records), size, side="right"))]


def assert_same_but_end(recording, run):
    """Check that recordings differ only in the end of the run."""
    assert_same(replace(recording, ended=run.ended), run)


def assert_lost(recording, nbytes):
    """Check that the end of the run reports the number of lost bytes."""
    lost = f"; {nbytes:,} byte{'s' if nbytes > 1 else ''} of its journal are damaged or cut off"
    assert recording.ended == kinds.KILLED + (lost if nbytes else "")


#: Training on a rank with a GPU.
RUN = replace(
    rank_recording(ended=kinds.KILLED, limits=None, memory=None, counters=None, inside=None),
    **{"conditions": Conditions(), "calls": None},
)
RECORDS = list(records_of(RUN))
CONTENT = MAGIC + bytes_of(*RECORDS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "recording.journal"


@pytest.fixture
def file(path):
    with open(path, "w+b") as opened:
        yield opened


@given(run=runs(), n_groups=st.integers(1, 13), lost=st.integers(0, 4000))
def test_records_before_a_cut_are_recovered(run, n_groups, lost, tmp_path_factory):
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
    size = max(0, len(content) - lost)
    path.write_bytes(content[:size])
    whole = before_cut(records, size)
    assert_same_but_end(recover(path), recorded(*whole))
    assert_lost(recover(path), max(0, size - len(MAGIC + bytes_of(*whole))))


# --- damaged files and other files


def test_damaged_headers_and_other_files_are_refused_in_one_line(path, tmp_path):
    for content in (b"another", b"PK\x03\x04" + bytes(50), b"chainer-profile journal 11\n"):
        path.write_bytes(content)
        assert refusal(recover, path) == f"{path} is not a chainer-profile journal", content
    for content in (b"chainer-profile journal\n30\n{}", b"chainer-profile journal 2\n"):
        path.write_bytes(content)
        assert refusal(recover, path).startswith(
            f"{path} was written by an older version of this program: "
        )
    # The records as plain dicts.
    header, rows, first, *_ = (
        msgspec.msgpack.decode(msgspec.msgpack.encode(record)) for record in RECORDS
    )
    deep = msgspec.Raw(b"\x91" * 100_000)
    for damaged in (
        *((header | {"environment": 3},), (3,), (rows, header), (first,)),
        # Too many or too few samples, samples that are not integers, unknown kinds, large numbers.
        (header, first),
        *((header, first | {"samples": {"launch_ns": b"x" * n}}) for n in (0, 1)),
        *((header, first | change) for change in ({"kind": "x"}, {"wall_ns": 2**63})),
        (deep,),
    ):
        path.write_bytes(MAGIC + bytes_of(*damaged))
        assert refusal(recover, path).startswith(f"{path} is damaged: "), damaged
    for unreadable in (tmp_path, tmp_path / "none", tmp_path / "none" / "none"):
        assert "cannot be read" in refusal(recover, unreadable)


def test_flipped_bit_loses_only_its_record(path):
    at = next(at for at, record in enumerate(RECORDS) if isinstance(record, Trial))
    begin, end, *_ = ends_of(RECORDS)[at - 1 :]
    others = recorded(*RECORDS[:at], *RECORDS[at + 1 :])
    for position in range(8 * begin, 8 * end, 3):
        content = bytearray(CONTENT)
        content[position // 8] ^= 1 << position % 8
        path.write_bytes(content)
        assert_same_but_end(recover(path), others)
        assert_lost(recover(path), end - begin)


def test_garbage_loses_only_the_records_that_it_replaces(path):
    ends = ends_of(RECORDS)
    for garbage in (b"\0", bytes(4096), b"\xc1JR\n", CONTENT[:70], os.urandom(3 << 20)):
        # Garbage replaces the last three records, or only the third last.
        path.write_bytes(CONTENT[: ends[-4] + 5] + garbage)
        assert_same_but_end(recover(path), recorded(*RECORDS[:-3]))
        path.write_bytes(CONTENT[: ends[-4] + 5] + garbage + CONTENT[ends[-3] :])
        assert_same_but_end(recover(path), recorded(*RECORDS[:-3], *RECORDS[-2:]))
        assert_lost(recover(path), 5 + len(garbage))


@st.composite
def growing(draw):
    """Strategy of journals with a growing number of rows: records, and times by trial and row."""
    times, paths, records = {}, [], [Header(Settings(), Environment())]
    for section in range(draw(st.integers(1, 4))):
        new = [f"/{section}{index}" for index in range(draw(st.integers(1, 3)))]
        records.append(
            Rows(tuple(Layer(len(paths) + index, name, "f") for index, name in enumerate(new)))
        )
        paths += new
        for _ in range(draw(st.integers(0, 4))):
            own = draw(st.lists(st.integers(1, 2**62), min_size=len(paths), max_size=len(paths)))
            start_ns = len(times) + 1
            ones = [1] * len(paths)
            records.append(trial(kinds.PROFILED, start_ns, own[0], self_ns=own, calls=ones))
            times[start_ns] = (own[0], dict(zip(paths, own, strict=True)))
    return records, times


FRACTIONS = st.floats(0, 1, exclude_max=True)
DAMAGE = st.one_of(
    st.tuples(st.just("flip"), FRACTIONS, st.integers(0, 7)),
    st.tuples(st.just("cut"), FRACTIONS, st.just(0)),
    st.tuples(st.just("overwrite"), FRACTIONS, st.binary(min_size=1, max_size=300)),
    st.tuples(st.just("insert"), FRACTIONS, st.binary(min_size=1, max_size=300)),
    st.tuples(st.just("append"), st.just(0.0), st.binary(min_size=1, max_size=300)),
)


def damaged(content, kind, fraction, how):
    at = int(fraction * len(content))
    if kind == "flip" and content:
        return content[:at] + bytes([content[at] ^ 1 << how]) + content[at + 1 :]
    if kind == "overwrite":
        return content[:at] + how + content[at + len(how) :]
    if kind == "insert":
        return content[:at] + how + content[at:]
    return content + how if kind == "append" else content[:at]


@given(growth=growing(), damages=st.lists(DAMAGE, min_size=1, max_size=3))
def test_trials_recovered_from_a_damaged_journal_are_correct(growth, damages, tmp_path_factory):
    """Damage may lose trials, but mixes no samples of different trials or rows."""
    path, (records, times) = tmp_path_factory.getbasetemp() / "damaged.journal", growth
    content = whole = MAGIC + bytes_of(*records)
    for damage in damages:
        content = damaged(content, *damage)
    path.write_bytes(content)
    try:
        read = recover(path)
    except ProfileError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return
    starts = read.start_ns.tolist()
    assert starts == sorted(set(starts))
    for i, start_ns in enumerate(starts):
        samples = zip(read.layers, read.self_ns[i].tolist(), strict=True)
        assert (read.trial_ns[i], {row.path: ns for row, ns in samples if ns}) == times[start_ns]
    if read.ended == kinds.KILLED:  # no damage was reported: the end of the file is missing
        assert content == whole[: len(content)]


POSITIONS = st.integers(0, len(CONTENT))
LENGTHS = st.sampled_from([0, 1, 40, len(CONTENT)])
BYTES = st.binary(max_size=1) | st.just(bytes(8))


@given(changes=st.lists(st.tuples(POSITIONS, LENGTHS, BYTES), min_size=1, max_size=3))
def test_changed_journal_is_refused_in_one_line_or_can_be_saved(changes, tmp_path_factory):
    path, content = tmp_path_factory.getbasetemp() / "changed.journal", bytearray(CONTENT)
    for at, length, instead in changes:
        content[at : at + length] = instead
    path.write_bytes(content)
    try:
        with warnings.catch_warnings(record=True):
            recover(path).save(path.with_suffix(".npz"))
        Recording.load(path.with_suffix(".npz"))
    except ProfileError as error:
        assert "\n" not in str(error)  # noqa: PT017


# --- a full disk


@pytest.mark.parametrize("refuses_whole", [False, True])
@pytest.mark.parametrize("group", [1, 3, 100])
@pytest.mark.parametrize(("free_nbytes", "at_once"), [(0, 7), (1, 7), (700, 7), (1500, 1 << 30)])
def test_full_disk_has_every_record_that_fits(
    path, file, monkeypatch, free_nbytes, at_once, group, refuses_whole
):
    write, left, errors = os.write, [len(MAGIC) + free_nbytes], []

    def write_some(fd, data):
        if refuses_whole and len(data) > left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        size = min(len(data), left[0], at_once)
        if not size:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= size
        return write(fd, data[:size])

    monkeypatch.setattr(os, "write", write_some)
    journal = Journal(file)
    for begin in range(0, len(RECORDS), group):
        try:
            journal.add(*RECORDS[begin : begin + group])
        except JournalError as problem:
            errors.append(str(problem))
    assert errors == [f"{path}: No space left on device"]
    assert_same(journal.recording(Conditions(), kinds.KILLED), RUN)
    assert_same_but_end(recover(path), recorded(*before_cut(RECORDS, len(MAGIC) + free_nbytes)))
    # Once the disk has space, trials in memory are written first.
    left[0] = 1 << 30
    journal.add(RECORDS[-1])
    assert_same(recover(path), recorded(*RECORDS, RECORDS[-1]))


def test_other_file_with_the_descriptor_of_the_journal_is_not_written(path, file, tmp_path):
    *first, second, third = RECORDS
    journal = Journal(file)
    journal.add(*first)
    other_path = tmp_path / "other"
    with open(other_path, "w+b") as other:
        journal_fd = os.dup(file.fileno())
        os.dup2(other.fileno(), file.fileno())  # as after os.closerange and an open()
        with pytest.raises(JournalError, match="another file now has its descriptor"):
            journal.add(second)
        journal.add(third)
        assert_same(journal.recording(Conditions(), kinds.KILLED), RUN)
        os.dup2(journal_fd, file.fileno())
        os.close(journal_fd)
    assert other_path.read_bytes() == b""
    assert_same(recover(path), recorded(*first))


# --- rows by link


def test_rows_by_link_have_mean_calls_and_work():
    """Rows are zero in iterations that do not have them."""
    compute, move = Layer(0, "/a", "f", flops=10), Layer(1, "/b", "g", "communication", flops=7)
    links = (LinkCalls("/", "Net", 1, 0),)
    recording = recorded(
        Header(Settings(), Environment()),
        Rows((compute,)),
        trial(kinds.PROFILED, 100, 50, self_ns=[30], calls=[2]),
        Rows((replace(move, calls=2),), links=links),
        trial(
            kinds.PROFILED, 300, 90, self_ns=[20, 40], calls=[1, 4], arrived_ns=[310], left_ns=[350]
        ),
        trial(kinds.PROFILED, 500, 50, self_ns=[35], calls=[3]),
    )
    assert recording.self_ns.tolist() == [[30, 0], [20, 40], [35, 0]]
    assert recording.arrived_ns.tolist() == [[0], [310], [0]]
    assert recording.links == links
    assert [row.calls for row in recording.layers] == [2, 4 / 3]
    assert [(row.flops, row.work_is_about) for row in recording.layers] == [(20, True), (5, True)]


def test_trials_of_single_calls_become_rows_by_link():
    """The result equals rows by link from the beginning, without held trials."""
    single = [("/a", "f", "forward"), ("/b", "g", "forward"), ("/a", "f", "forward")]
    single += [("/W", "h", "communication"), ("/V", "h", "communication")] * 2
    names = [single[number] for number in (1, 0, 4, 3)]  # rows by link have another order
    layers = [Layer(index, *name, calls=1 + (index == 0)) for index, name in enumerate(single)]
    moves = {"arrived_ns": [10, 20, 30, 40], "left_ns": [11, 21, 31, 41]}
    after = {"arrived_ns": [50, 60], "left_ns": [51, 61]}
    recording = recorded(
        Header(Settings(), Environment()),
        Rows(tuple(layers)),
        trial(kinds.PROFILED, 100, 50, self_ns=[1, 2, 3, 4, 5, 6, 7], **moves),
        trial(kinds.HELD, 0, 30, self_ns=[1] * 7),
        Rows(tuple(Layer(index, *name) for index, name in enumerate(names)), anew=True),
        trial(kinds.PROFILED, 200, 9, self_ns=[1] * 4, calls=[1] * 4, **after),
    )
    assert [(row.path, row.function, row.phase) for row in recording.layers] == names
    assert recording.self_ns.tolist() == [[2, 1 + 3, 5 + 7, 4 + 6], [1, 1, 1, 1]]
    assert recording.calls.tolist() == [[1, 2 + 1, 2, 2], [1, 1, 1, 1]]
    # A row's collective is entered by its first call and left by its last call.
    assert recording.arrived_ns.tolist() == [[20, 10], [50, 60]]
    assert recording.left_ns.tolist() == [[41, 31], [51, 61]]
    assert recording.held_ns is None
