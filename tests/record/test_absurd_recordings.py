"""Recordings that no run has made: refused in one line, or fit for a summary."""

import copy
import dataclasses
import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile import ProfileError, summarise
from chainer_profile.record.recording import Recording
from chainer_profile.report.writers import json_report
from tests.conftest import make_recording, make_training
from tests.recordings import VALUES, assert_same, of_rank, places, rewrite, whole
from tests.report.reading import on_terminal, report_md

BASES = (
    whole(make_recording(n_layers=3, n_trials=6, n_clean=5)),
    whole(make_training(4)),
    whole(make_recording(left_out=3)),
    whole(of_rank()),
)
ARRAYS = {
    "negated": lambda a: -a,
    "one below 0": lambda a: np.where(np.arange(a.size).reshape(a.shape) == 0, -5, a),
    "one huge": lambda a: np.where(np.arange(a.size).reshape(a.shape) == 0, 2**62, a),
    "the most": lambda a: np.full_like(a, 2**63 - 1),
    "zeros": np.zeros_like,
    "all the same": lambda a: np.full_like(a, 7),
    "one less": lambda a: a[:-1],
    "doubled": lambda a: np.concatenate([a, a]),
    "floats": lambda a: a * 1.5,
    "empty": lambda a: a[:0],
    "gone": lambda a: None,
}


@given(st.data())
def test_a_changed_recording_is_refused_in_one_line_or_can_be_summarised(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "absurd.npz"
    base = data.draw(st.sampled_from(BASES))
    base.save(path)
    with np.load(path) as archive:
        content = {name: archive[name] for name in archive.files}
    meta = json.loads(content.pop("meta").tobytes())
    for _ in range(data.draw(st.integers(1, 2))):
        if data.draw(st.integers(0, 2)):
            # By its field first: there are many more layers than other things.
            part = data.draw(st.sampled_from(sorted(meta.keys() - {"format", "version"})))
            below = places(meta[part]) if isinstance(meta[part], dict | list) else []
            place = data.draw(st.sampled_from([(), *below]))
            node, key = meta, part
            for step in place:
                node, key = node[key], step
            # A copy: the next change may be within it.
            node[key] = copy.deepcopy(data.draw(st.sampled_from(VALUES)))
        else:
            name = data.draw(st.sampled_from(sorted(content)))
            change = ARRAYS[data.draw(st.sampled_from(sorted(ARRAYS)))]
            if content[name] is not None:
                content[name] = change(content[name].astype(np.int64))
    rewrite(path, lambda _: meta, **content)
    try:
        summary = summarise(Recording.load(path))
        json.loads(json_report.render(summary))
        report_md(summary)
        on_terminal(summary)
    except ProfileError as error:
        assert "\n" not in str(error)  # noqa: PT017


#: What breaks a number, or a tuple of things, of any part.
BROKEN = st.sampled_from([-1, -(2**62), 2**63, 2**70, float("nan"), float("inf"), -0.5])


@st.composite
def broken(draw, part):
    """A part of a recording with one number that cannot be, or one thing more or less."""
    if isinstance(part, tuple) and part and draw(st.booleans()):
        return part[1:] if draw(st.booleans()) else (*part, part[0])
    if isinstance(part, tuple) and part:
        at = draw(st.integers(0, len(part) - 1))
        return (*part[:at], draw(broken(part[at])), *part[at + 1 :])
    if dataclasses.is_dataclass(part):
        names = [item.name for item in dataclasses.fields(part)]
        name = draw(st.sampled_from(names))
        return dataclasses.replace(part, **{name: draw(broken(getattr(part, name)))})
    return part if isinstance(part, str) else draw(BROKEN)


#: Parts whose lengths no array must fit.
OPTIONAL = ("links", "limits", "memory", "counters", "inside", "rank", "settings", "conditions")


@given(st.data())
def test_what_is_broken_is_refused_in_one_line_or_written_as_it_is(tmp_path_factory, data):
    base = data.draw(st.sampled_from(BASES))
    names = OPTIONAL
    name = data.draw(st.sampled_from(names))
    made = dataclasses.replace(base, **{name: data.draw(broken(getattr(base, name)))})
    path = tmp_path_factory.getbasetemp() / "broken.npz"
    path.unlink(missing_ok=True)
    try:
        made.save(path)
    except ProfileError as error:
        assert "\n" not in str(error)  # noqa: PT017
        assert not path.exists()
    else:
        found = Recording.load(path)
        assert_same(found, made)
        summarise(found)
