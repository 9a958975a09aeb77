"""Iterations are found in the sequence of a program's outermost operations."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.measure.patterns import Unit, UnitKind
from chainer_profile.measure.segments import Segment, Segmenter, SegmentKind

ITERATOR, TEST_ITERATOR, CONVERTER, TEACHER, FEATURES = 90, 91, 92, 93, 94
LETTERS = {
    "L": Unit(UnitKind.LOAD, ITERATOR),
    "l": Unit(UnitKind.LOAD, TEST_ITERATOR),
    "v": Unit(UnitKind.CONVERT, CONVERTER),
    "C": Unit(UnitKind.CLEARGRADS),
    "N": Unit(UnitKind.CALL, 1, 0),  # the network that is trained
    "B": Unit(UnitKind.BACKWARD),
    "D": Unit(UnitKind.UPDATE, 10, 0),
    "G": Unit(UnitKind.UPDATE, 11, 0),
    "E": Unit(UnitKind.UPDATE, 12, 0),
    "M": Unit(UnitKind.CALL, 2, 1),  # the network of another training
    "H": Unit(UnitKind.UPDATE, 13, 1),
    "t": Unit(UnitKind.TEST, 1, 0),  # the network that is trained, in test mode
    "T": Unit(UnitKind.TEST, TEACHER),
    "f": Unit(UnitKind.CALL, FEATURES),  # a network without an optimizer
    "I": Unit(UnitKind.ITERATION, 20, 1),
    "X": Unit(UnitKind.BACKWARD, raised=True),
    "z": Unit(UnitKind.TEST, 1, 0, raised=True),
    "x": Unit(UnitKind.LOAD, ITERATOR, raised=True),
    "y": Unit(UnitKind.LOAD, TEST_ITERATOR, raised=True),  # the end of the data
}


def segments_of(units, segmenter, read_every):
    """Add units by their letters, and decide after every few of them and at the end."""
    segments = []
    for index, letter in enumerate(units, 1):
        segmenter.add(LETTERS[letter])
        if index % read_every == 0:
            segments += segmenter.decide()
    return segments + segmenter.decide(is_last=True)


def bracketed(units, optimizers="D", read_every=1):
    """Find segments; return the units with ``[..]`` around iterations, ``<..>`` if interrupted."""
    segmenter = Segmenter()
    for optimizer in optimizers:
        segmenter.set_up(0, LETTERS[optimizer].owner)
    if "H" in units:
        segmenter.set_up(1, LETTERS["H"].owner)
    segments = segments_of(units, segmenter, read_every)
    assert [segment.begin for segment in segments] == [
        0,
        *(segment.end for segment in segments[:-1]),
    ][: len(segments)]
    brackets = {SegmentKind.ITERATION: "[]", SegmentKind.INTERRUPTED: "<>"}
    text = ""
    for segment in segments:
        begin, end = brackets.get(segment.kind, ("", ""))
        text += begin + units[segment.begin : segment.end] + end
    return text


LOOPS = {
    "one optimizer": ("D", "[CNBD][CNBD][CNBD]"),
    "forward before cleargrads": ("D", "[NCBD][NCBD]"),
    "gradients are cleared after the update": ("D", "[NBDC][NBDC][NBDC]"),
    "gradients of two networks are cleared after the updates": ("DG", "[NBDGCC][NBDGCC][NBDGCC]"),
    "an update with a loss function": ("D", "[D][D][D]"),
    "from load to load": ("D", "[LvNBD][LvNBD][LvNBD]"),
    "several updates for each load": ("D", "[LNBDNBD][LNBDNBD][LNBDNBD]"),
    "gradients of several loads": ("D", "[LNBLNBD][LNBLNBD][LNBLNBD]"),
    "all data loaded at once": ("D", "[LNBD]" + "[NBD]" * 40),
    "an update for every second load": ("D", "[LNLNBD][LNLNBD][LNLNBD]"),
    "two loads for each update": ("D", "[LvLvNBD][LvLvNBD][LvLvNBD]"),
    "another number of gradients in the last iteration": ("D", "[NBNBNBD][NBNBNBD][NBD]"),
    "two iterators": ("D", "[LlNBD][LlNBD][LlNBD]"),
    "two iterators in changing order": ("D", "[LlNBD][lLNBD][LlNBD][lLNBD]"),
    "two iterators and an exception": ("D", "[LlNBDNBD]<LlNX>[LlNBDNBD]"),
    "two iterators, each with a conversion": ("D", "[lvLvNBD][lvLvNBD]v[lvLvNBD]"),
    "two loads of another iterator": ("D", "[llLNBD][llLNBD][llLNBD][llLNBD]"),
    "truncated backpropagation": ("D", "[NNNCBD][NNNCBD]"),
    "a batch before the loop": ("D", "L[LNBD][LNBD][LNBD]"),
    "two optimizers": ("DG", "[NBDNBG][NBDNBG][NBDNBG]"),
    "two optimizers with loss functions": ("DG", "[DG][DG][DG]"),
    "two optimizers and a load": ("DG", "[LNBDNBG][LNBDNBG][LNBDNBG]"),
    "critic steps": ("DG", "[DDDG][DDDG][DDDG]"),
    "critic steps with a load each": ("DG", "[LDLDLDG][LDLDLDG][LDLDLDG]"),
    "three optimizers": ("DGE", "[DGE][DGE][DGE]"),
    "two updates of each": ("DG", "[NBDNBDNBGNBG][NBDNBDNBGNBG]"),
    "critic steps after the generator's": ("DG", "[NBDNBGNBG][NBDNBGNBG][NBDNBGNBG]"),
    "critic steps after it, with a load each": ("DG", "[LDLGLG][LDLGLG][LDLGLG]"),
    "critic steps before and after it": ("DG", "[DGD][DGD][DGD]"),
    "fewer critic steps later": ("DG", "[DGGGG][DGGGG][DGG][DGG]"),
    "a critic step for each load": ("DG", "[LDGLDLDLD][LDGLDLDLD]"),
    "one iteration that ends with critic steps": ("DG", "[DGG]"),
    "a break before the last critic step": ("DG", "[DGG][DGG]<DG>"),
    "actor and critic with one loss": ("DG", "[NBDG][NBDG][NBDG]"),
    "trainings that follow one another": ("DG", "[NBD][NBD][NBD][NBG][NBG][NBG]"),
    "trainings in alternating epochs": ("DG", ("[LNBD]" * 12 + "[LNBG]" * 12) * 2),
    "an optimizer that never updates": ("DG", "[NBD][NBD][NBD]"),
    "a teacher after the student": ("D", "[NTCBD][NTCBD]"),
    "a teacher before the student": ("D", "[LTNBD][LTNBD][LTNBD]"),
    "features of another network": ("D", "[fNBD][fNBD]"),
    "evaluation between": ("D", "[NBD][NBD]ttt[NBD][NBD]ttt"),
    "evaluation with loads between": ("D", "[LNBD][LNBD]ltlty[LNBD][LNBD]ltlty"),
    "evaluation of a load-driven epoch": ("D", "[LNBD][LNBD]ltlty[LNBD]"),
    "evaluation in training mode": ("D", "[LNBD][LNBD]lNlNly[LNBD][LNBD]"),
    "evaluation before iterations": ("D", "ltlt[LNBD][LNBD]ltlt[LNBD][LNBD]ltlt[LNBD]"),
    "evaluation of a batch before iterations": ("D", "lt[LNBD][LNBD]lt[LNBD][LNBD]lt[LNBD]"),
    "evaluation of a batch before cycles": ("DG", "lt[LDLG]lt[LDLG]lt[LDLG]lt[LDLG]"),
    "evaluation of a batch, and no other loads": ("D", "lt[NBD][NBD]lt[NBD][NBD]lt[NBD]"),
    "pseudo-labels": ("D", "[LtNBD][LtNBD][LtNBD][LtNBD]"),
    "own targets in test mode": ("DG", "[LtNBDLtNBG][LtNBDLtNBG][LtNBDLtNBG]"),
    "acting": ("D", "vtvtvt[NBD]vtvt[NBD]vtvtvt[NBD]vt"),
    "acting after a normaliser": ("D", "vftvft[NBD]vftvftvft[NBD]vft"),
    "a break after the load": ("D", "[LNBD][LNBD][LNBD]L"),
    "a break after the call": ("D", "[LNBD][LNBD][LNBD]<LN>"),
    "a break within a cycle": ("DG", "[NBDNBG][NBDNBG]<NBD>"),
    "an exception that the program catches": ("D", "[NBD][NBD]<NX>[NBD]"),
    "an exception in a cycle": ("DG", "[NBDNBG][NBDNBG]<NBDNX>[NBDNBG][NBDNBG]"),
    "an exception in a cycle with loads": ("DG", "[LDG][LDG]<LDX>[LDG][LDG]"),
    "an exception in the first cycle": ("DG", "<NBDNX>[NBDNBG][NBDNBG][NBDNBG]"),
    "an exception in the second of three": (
        "DG",
        "[NBDNBGNBG]<NBDNX>[NBDNBGNBG][NBDNBGNBG]",
    ),
    "a repeated step": ("DDG", "[NBDNBDNBG][NBDNXNBDNBG][NBDNBDNBG]"),
    "a repeated step in the first cycle, with loads": ("DG", "[LNBDLNXNBG][LNBDLNBG]"),
    "a repeated second step of two for a load": ("D", "[LNBDNXNBD][LNBDNBD]"),
    "a repeated first step": ("DG", "[NBDNBG]<NX>[NBDNBG][NBDNBG]"),
    "a repeated last step": ("DG", "[DGG][DGXG][DGG][DGG]"),
    "an exception in an evaluation": ("D", "[LNBD][LNBD]ltlz[LNBD]"),
    "the end of the data within a cycle": ("DG", "[LDLDLG][LDLDLG][LDxLDLG][LDLDLG]"),
    "a Trainer after a cycle that was not completed": ("DG", "[NBDNBG][NBDNBG]<NBD>III"),
    "the end of the data": ("D", "[LNBD][LNBD][LNBD]x"),
    "another training in alternate iterations": ("D", "[NBD][MBH][NBD][MBH][NBD][MBH]"),
    "another training with the same data": ("D", "[LNBD][LMBH][LNBD][LMBH][LNBD][LMBH]"),
    "another training after a cycle that was not completed": (
        "DG",
        "[NBDNBG][NBDNBG]<NBD>[MBH][MBH][MBH][MBH][MBH]",
    ),
    "a Trainer after a batch": ("", "LIII"),
    "no training": ("", "NtNt"),
}


@pytest.mark.parametrize("read_every", [1, 3, 1000])
@pytest.mark.parametrize("name", LOOPS)
def test_iterations_of_a_loop(name, read_every):
    optimizers, expected = LOOPS[name]
    units = "".join(letter for letter in expected if letter not in "[]<>")
    assert bracketed(units, optimizers, read_every).replace("[I]", "I") == expected


@dataclass
class RandomLoop:
    """A random loop: its units and its true segments."""

    optimizers: str
    units: list = field(default_factory=list)
    iterations: list = field(default_factory=list)
    interrupted: tuple | None = None


@st.composite
def loops(draw):
    """Strategy of loops with one to three optimizers, and perhaps a teacher or evaluation."""
    optimizers = draw(st.sampled_from(["D", "DG", "DGE"]))
    cycle = optimizers
    if len(optimizers) > 1:  # several critic steps
        cycle = optimizers[0] * draw(st.integers(1, 4)) + optimizers[1:]
    loads = draw(st.sampled_from(["", "L", "Lv"]))
    step = draw(st.sampled_from(["NB", "NCB", "NTB", "fNB", "NNB", "B", ""]))
    test = draw(st.sampled_from(["", "t", "tt", "ltlty"]))
    loop = RandomLoop(optimizers)
    for number in range(n := draw(st.integers(2, 6))):
        begin = len(loop.units)
        iteration = loads + "".join(step + optimizer for optimizer in cycle)
        n_units = len(iteration)
        if number == n - 1:
            minimum = len(loads) + (1 if "f" not in step[:1] else 2)
            n_units = draw(st.integers(minimum, len(iteration)))
        loop.units += iteration[:n_units]
        if n_units == len(iteration):
            loop.iterations.append((begin, len(loop.units)))
        else:
            loop.interrupted = begin, len(loop.units)
        if number < n - 1 and draw(st.booleans()):
            loop.units += test
    return loop


@given(loops(), st.integers(1, 30))
def test_iterations_of_a_random_loop_equal_its_body(loop, read_every):
    segmenter = Segmenter()
    for optimizer in loop.optimizers:
        segmenter.set_up(0, LETTERS[optimizer].owner)
    segments = segments_of(loop.units, segmenter, read_every)
    iterations = [(s.begin, s.end) for s in segments if s.kind is SegmentKind.ITERATION]
    assert iterations == loop.iterations, "".join(loop.units)
    covered = [index for segment in segments for index in range(segment.begin, segment.end)]
    assert covered == [*range(len(loop.units))]


def test_number_of_undecided_units_is_limited():
    segmenter = Segmenter(max_undecided=10)
    segmenter.set_up(0, 10)
    segmenter.set_up(0, 11)  # never updates
    iterations = 0
    for _ in range(100):
        for letter in "NBD":
            segmenter.add(LETTERS[letter])
            segments = segmenter.decide()
            iterations += sum(segment.kind is SegmentKind.ITERATION for segment in segments)
            assert len(segmenter.units) <= 10
    assert iterations > 90


def test_successive_trainings_have_their_own_iterations():
    segmenter = Segmenter()
    segmenter.set_up(0, 10)
    other = [Unit(UnitKind.CALL, 2, 1), Unit(UnitKind.BACKWARD), Unit(UnitKind.UPDATE, 13, 1)]
    for unit in (LETTERS[letter] for letter in "NBDNBDN"):
        segmenter.add(unit)
    segments = segmenter.decide(is_last=True)
    segmenter.set_up(1, 13)
    for unit in other * 3:
        segmenter.add(unit)
    segments += segmenter.decide(is_last=True)
    kinds = [(segment.kind, segment.training) for segment in segments]
    iteration = SegmentKind.ITERATION
    assert kinds == [
        *[(iteration, 0)] * 2,
        (SegmentKind.INTERRUPTED, 0),
        *[(iteration, 1)] * 3,
    ]


def test_positions_of_segments_count_all_units():
    segmenter = Segmenter()
    segmenter.add(LETTERS["I"])
    assert segmenter.decide() == [Segment(SegmentKind.ITERATION, 0, 1, 1)]
    segmenter.add(LETTERS["I"])
    assert segmenter.decide() == [Segment(SegmentKind.ITERATION, 1, 2, 1)]


@given(
    st.lists(st.sampled_from(["f", "t", "fB", "fCB", "tBB", "L"]), max_size=12), st.integers(1, 9)
)
def test_backwards_belong_to_the_call_before_them_if_there_is_no_training(parts, read_every):
    segments = segments_of("".join(parts), Segmenter(), read_every)
    calls = [s.end - s.begin for s in segments if s.kind is SegmentKind.CALL]
    assert calls == [len(part) for part in parts if part != "L"]
    assert sum(s.end - s.begin for s in segments) == len("".join(parts))
