"""Recordings that no run has made: refused in one line, or fit for a summary."""

import copy
import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile import ProfileError, summarise
from chainer_profile.record.recording import Recording
from chainer_profile.report.writers import json_report
from tests.conftest import make_recording, make_training
from tests.recordings import VALUES, of_rank, places, rewrite, whole
from tests.report.reading import on_terminal, report_md

BASES = (
    whole(make_recording(n_layers=3, n_trials=6, n_clean=5)),
    whole(make_training(4)),
    whole(make_recording(seed=3)),
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
