"""The journal: added records come back, whatever happens to the file."""

import errno
import os
import warnings
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.basics.errors import ProfileError
from chainer_profile.record.journal import (
    CLEAN,
    HELD,
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
from tests.recordings import assert_same
from tests.refusing import refusal

MAGIC = b"chainer-profile journal 2\n"
ENVIRONMENT = Environment(processor="A processor", python="CPython 3.11")
KINDS = (WARMUP, PROFILED, CLEAN, PROBE, HELD)
#: The samples of a profiled trial, with their axis.
ALONG = {
    **dict.fromkeys(("self_ns", "calls", "host_ns", "gap_ns"), "rows"),
    **{"framework_ns": "phases", "arrived_ns": "moves", "left_ns": "moves"},
    **dict.fromkeys(("launch_ns", "span_ns", "iteration"), "trial"),
}
ON_DEVICE = ("host_ns", "gap_ns", "launch_ns", "span_ns")
PHASES = ("forward", "communication", "communication")


def trial(kind, start_ns, wall_ns, **samples):
    return Trial(
        *(kind, start_ns, wall_ns),
        {name: np.array(values, "<i8").tobytes() for name, values in samples.items()},
    )


def samples_of(trial):
    return {name: np.frombuffer(text, "<i8").tolist() for name, text in trial.samples.items()}


def a_trial(rng, kind, sizes, names, span=(1, 99)):
    """A trial with samples of some names, which tell it apart."""
    numbers = {
        PROFILED: {name: sizes[ALONG[name]] for name in names},
        CLEAN: {"cpu_ns": 1} if rng.random() < 0.7 else {},
        **{PROBE: {"threads": 1}, HELD: {"self_ns": sizes["rows"]}, WARMUP: {}},
    }[kind]
    samples = {name: rng.integers(*span, number) for name, number in numbers.items()}
    if "calls" in samples:
        samples["calls"] %= 9
    if "left_ns" in samples:
        samples["left_ns"] = samples["arrived_ns"] + 99
    return trial(kind, *rng.integers(0, 2**61, 2).tolist(), **samples)


def names_of(on_device, iterations=True, by_link=False):
    """The samples that a profiled trial has."""
    has = dict.fromkeys(ON_DEVICE, on_device) | {"iteration": iterations, "calls": by_link}
    return [name for name in ALONG if has.get(name, True)]


def any_records(
    kinds, seed=0, on_device=False, iterations=True, by_link=False, text="net", span=(1, 99)
):
    """A header, and records of these kinds after it."""
    rng = np.random.default_rng(seed)
    rank = Rank(1, 2, text) if seed % 2 else None
    settings = Settings(model=text, seed=3, input_shape=(1, 2), phase="train")
    records = [Header(settings, ENVIRONMENT, on_device, iterations, rank)]
    sizes = {"rows": 0, "phases": 0, "moves": 0, "trial": 1}
    for place, kind in enumerate(kinds):
        if kind != "rows":
            records.append(
                a_trial(rng, kind, sizes, names_of(on_device, iterations, by_link), span)
            )
            continue
        layers = tuple(
            Layer(i, f"/{text}{i}", "f", phase, input_shapes=((i, 2), ()), forward=i)
            for i, phase in enumerate(rng.permutation(PHASES).tolist()[place % 4 :], sizes["rows"])
        )
        phases = tuple(f"{text}{place}-{i}" for i in range((place + 1) % 3))
        links = tuple(LinkCalls(phase, "Link", 2, 3) for phase in phases)
        records.append(Rows(layers, phases, links, Settings(model=f"{text}{place}")))
        sizes["rows"] += len(layers)
        sizes["phases"] += len(phases)
        sizes["moves"] += sum(layer.phase == "communication" for layer in layers)
    return records


def some_records(count=5, on_device=False):
    """Records with trials of all kinds in turn."""
    return any_records(["rows", *(KINDS * count)[:count]], on_device=on_device)


def bytes_of(*records):
    """Records by the format's description."""
    texts = map(msgspec.msgpack.encode, records)
    return b"".join(len(text).to_bytes(8, "little") + text for text in texts)


def recorded(*records):
    """The recording of a journal with these records."""
    journal = Journal()
    journal.add(*records)
    return journal.recording(Conditions(), "killed before its end")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "recording.journal"


@pytest.fixture
def file(path):
    with open(path, "w+b") as opened:
        yield opened


# --- there and back


RECORDS = st.builds(
    any_records,
    st.lists(st.sampled_from((*KINDS, "rows")), max_size=12),
    *(st.integers(0, 2**32), st.booleans(), st.booleans(), st.booleans(), st.text()),
    st.sampled_from([(1, 99), (-(2**63), 2**63 - 1)]),
)


def assert_holds(recording, header, *records):
    """Check that a recording has a journal's records, with zeros for rows that came later."""
    of = {
        kind: [record for record in records if getattr(record, "kind", "") == kind]
        for kind in KINDS
    }
    rows = [record for record in records if isinstance(record, Rows)]
    layers = sum((record.layers for record in rows), ())
    phases = sum((record.phases for record in rows), ())
    moves = [layer for layer in layers if layer.phase == "communication"]
    sizes = {"rows": len(layers), "phases": len(phases), "moves": len(moves), "trial": 1}

    def table(kind, name, size=1):
        rows_of_trials = [samples[name] for samples in map(samples_of, of[kind]) if name in samples]
        return [values + [0] * (size - len(values)) for values in rows_of_trials]

    def times_of(kind, name="wall_ns"):
        return [getattr(record, name) for record in of[kind]]

    for name, along in ALONG.items():
        samples, size = getattr(recording, name), sizes[along]
        has = {"calls": any("calls" in record.samples for record in of[PROFILED])}
        has |= dict.fromkeys(ON_DEVICE, header.on_device) | {"iteration": header.iterations}
        assert (samples is not None) is has.get(name, name == "self_ns" or size > 0), name
        if samples is not None:
            shape = (len(of[PROFILED]), size)
            assert samples.shape == (shape if along != "trial" else shape[:1])
            assert samples.reshape(shape).tolist() == table(PROFILED, name, size)
    if recording.calls is not None:
        means = [column.mean() if column.any() else 1 for column in recording.calls.T]
        layers = tuple(map(lambda layer, mean: replace(layer, calls=mean), layers, means))
    assert (recording.layers, recording.phases) == (layers, phases)
    assert recording.links == next((record.links for record in rows[::-1] if record.links), ())
    assert recording.settings == (rows[-1] if rows else header).settings
    assert (recording.environment, recording.rank) == (header.environment, header.rank)
    assert recording.trial_ns.tolist() == times_of(PROFILED)
    assert recording.start_ns.tolist() == times_of(PROFILED, "start_ns")
    assert recording.clean_ns.tolist() == times_of(CLEAN)
    assert recording.clean_start_ns.tolist() == times_of(CLEAN, "start_ns")
    assert recording.warmup_ns.tolist() == times_of(WARMUP)
    assert recording.probe_ns.tolist() == times_of(PROBE)
    assert recording.probe_threads[:, None].tolist() == table(PROBE, "threads")
    for samples, expected in (
        (recording.clean_cpu_ns, [ns for [ns] in table(CLEAN, "cpu_ns")]),
        (recording.held_ns, table(HELD, "self_ns", len(layers))),
        (recording.held_span_ns, times_of(HELD)),
    ):
        assert (None if samples is None else samples.tolist()) == (expected or None)


@given(records=RECORDS, n_groups=st.integers(1, 13), lost=st.integers(0, 4000))
def test_added_records_come_back(records, n_groups, lost, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "any.journal"
    with open(path, "w+b") as file:
        for journal in (Journal(), Journal(file)):
            for group in np.array_split(np.arange(len(records)), n_groups):
                journal.add(*(records[i] for i in group))
            recording = journal.recording(Conditions(1.0), COMPLETE)
            assert (recording.conditions, recording.ended) == (Conditions(1.0), COMPLETE)
            assert_holds(recording, *records)
    content = path.read_bytes()
    assert content == MAGIC + bytes_of(*records)
    killed = recover(path)
    assert (killed.conditions, killed.ended) == (Conditions(), "killed before its end")
    assert_holds(killed, *records)

    # Cut anywhere.
    size = max(0, len(content) - lost)
    path.write_bytes(content[:size])
    ends = len(MAGIC) + np.cumsum([len(bytes_of(record)) for record in records])
    whole = records[: int(np.searchsorted(ends, size, side="right"))]
    assert_same(recover(path), recorded(*whole))


# --- a file that was damaged, or is not ours

JOURNAL = some_records(10, on_device=True)
#: The same as types of JSON, and bytes.
BARE = [msgspec.msgpack.decode(msgspec.msgpack.encode(record)) for record in JOURNAL]


def test_damaged_headers_and_other_files_are_refused_in_one_line(path, tmp_path):
    others = (b"another", b"PK\x03\x04" + bytes(50), b"chainer-profile journal 11\n")
    for content in others:
        path.write_bytes(content)
        assert refusal(recover, path) == f"{path} is not a chainer-profile journal", content
    path.write_bytes(b"chainer-profile journal\n30\n{}")
    assert refusal(recover, path).startswith(f"{path} is of an older version of this program: ")
    header, rows, *trials = BARE
    damaged = [
        *((header | {"environment": 3},), (3,), (rows, header), (trials[0],)),
        # Samples that are too many, too few, and no integers; a kind that is none; a large number.
        (header, trials[1]),
        *((header, rows, trials[1] | {"samples": {"launch_ns": b"x" * n}}) for n in (0, 1)),
        *((header, rows, trials[0] | change) for change in ({"kind": "x"}, {"wall_ns": 2**63})),
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
    content = bytearray(MAGIC + bytes_of(*JOURNAL))
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


def fill(monkeypatch, space, at_once=1 << 30, error=FULL):
    """Let files take so many bytes, at most so many at once, and then have an error."""
    write, left = os.write, [space]

    def write_some(fd, data):
        size = min(len(data), left[0], at_once)
        if not size:
            raise error
        left[0] -= size
        return write(fd, data[:size])

    monkeypatch.setattr(os, "write", write_some)


@pytest.mark.parametrize(
    ("space", "at_once", "on_device", "error"),
    [
        (0, 7, True, OSError(errno.EIO, "Input/output error")),
        *((1, 7, False, FULL), (700, 7, True, FULL), (9_000, 7, False, FULL)),
        (5_000, 1 << 30, True, FULL),
    ],
)
def test_a_full_disk_loses_no_record(path, file, monkeypatch, space, at_once, on_device, error):
    fill(monkeypatch, space, at_once, error)
    records, journal, errors = some_records(200, on_device), Journal(file), []
    for record in records:
        try:
            journal.add(record)
        except JournalError as problem:
            errors.append(str(problem))
    assert errors == [error.strerror]
    assert_holds(journal.recording(Conditions(), ""), *records)
    ends = len(MAGIC) + np.cumsum([len(bytes_of(record)) for record in records])
    assert ends[-1] > space
    written = int(np.searchsorted(ends, space, side="right"))
    assert_same(recover(path), recorded(*records[:written]))


def test_a_file_of_the_program_s_that_has_the_journal_s_number_is_left_alone(path, file, tmp_path):
    *first, second, third = some_records(3)
    journal = Journal(file)
    journal.add(*first)
    mine = tmp_path / "mine"
    with open(mine, "w+b") as other:
        kept = os.dup(file.fileno())
        os.dup2(other.fileno(), file.fileno())  # as after os.closerange and an open()
        with pytest.raises(JournalError, match="another file now has its descriptor"):
            journal.add(second)
        journal.add(third)
        assert_holds(journal.recording(Conditions(), ""), *first, second, third)
        os.dup2(kept, file.fileno())
        os.close(kept)
    assert mine.read_bytes() == b""
    assert_same(recover(path), recorded(*first))


# --- memory


# --- rows by link


def test_calls_and_work_of_rows_by_link_are_means():
    """Rows that come later are zero in earlier iterations."""
    a, b = Layer(0, "/a", "f", flops=10), Layer(1, "/b", "g", calls=2, flops=7)
    recording = recorded(
        Header(Settings(), ENVIRONMENT),
        Rows((a,)),
        trial(PROFILED, 100, 50, self_ns=[30], calls=[2]),
        Rows((b,)),
        trial(PROFILED, 300, 90, self_ns=[20, 40], calls=[1, 4]),
    )
    assert recording.by_link
    assert [row.calls for row in recording.layers] == [1.5, 2]
    assert [(row.flops, row.work_is_about) for row in recording.layers] == [(15, True), (7, False)]


ROWS = st.tuples(*(st.sampled_from(of) for of in ("ab", "fg", PHASES[:2])))


@given(
    single=st.lists(ROWS, max_size=8),
    later=st.lists(ROWS, max_size=2),
    on_device=st.booleans(),
    seed=st.integers(0, 99),
)
def test_trials_of_single_calls_become_rows_by_link(single, later, on_device, seed):
    """As if rows had been by link from the begin, but without held trials."""
    rng = np.random.default_rng(seed)
    by_link = list(dict.fromkeys(single + later))
    counts = rng.integers(1, 4, len(single)).tolist()
    moves, moved = ([row for row in rows if row[2] == PHASES[1]] for rows in (single, by_link))
    sizes = {"rows": len(single), "phases": 1, "moves": len(moves), "trial": 1}
    before = [a_trial(rng, PROFILED, sizes, names_of(on_device)) for _ in range(3)]
    sizes = {"rows": len(by_link), "phases": 2, "moves": len(moved), "trial": 1}
    after = a_trial(rng, PROFILED, sizes, names_of(on_device, by_link=True))
    expected = []
    for trial_before in before:
        values = samples_of(trial_before) | {"calls": counts}
        for name, samples in values.items():
            if ALONG[name] in ("rows", "moves"):
                of = {"arrived_ns": min, "left_ns": max}.get(name, sum)
                rows, row_keys = (moves, moved) if ALONG[name] == "moves" else (single, by_link)
                pairs = list(zip(rows, samples, strict=True))
                groups = [[ns for row, ns in pairs if row == key] for key in row_keys]
                values[name] = [of(group) if group else 0 for group in groups]
        expected.append(trial(PROFILED, trial_before.start_ns, trial_before.wall_ns, **values))
    calls = tuple(
        Layer(i, *row, calls=n) for i, (row, n) in enumerate(zip(single, counts, strict=True))
    )
    held = trial(HELD, 0, 1, self_ns=range(len(single)))
    layers = tuple(Layer(i, *row) for i, row in enumerate(by_link))
    anew, header = Rows(layers, ("forward", "update")), Header(Settings(), ENVIRONMENT, on_device)
    written = Rows(calls, ("forward",)), *before, held, msgspec.structs.replace(anew, anew=True)
    assert_same(recorded(header, *written, after), recorded(header, anew, *expected, after))
