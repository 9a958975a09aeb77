"""What became of Chainer's layers in an engine's nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from chainer_profile.report.content.engines import OWN_STEPS, fusion_text, main_functions
from tests.engines.fake_engines import make_run, recordings


def test_the_main_function_stands_for_a_node() -> None:
    found = recordings()
    names = main_functions(found["fast"], found["chainer"])
    assert names == ["Convolution2DFunction", OWN_STEPS, "Convolution2DFunction"]
    assert main_functions(found["fast"], None) == names
    assert main_functions(found["chainer"], found["chainer"])[1] == "FixedBatchNormalization"


def test_what_an_engine_s_own_clock_adds_is_said() -> None:
    recorded, run = recordings()["fast"], make_run()
    assert recorded.trial_ns is not None
    clean_ns = np.full(20, int(np.median(recorded.trial_ns)) * 4 // 5, np.int64)
    slowed = replace(recorded, clean_ns=clean_ns, clean_start_ns=clean_ns)
    assert fusion_text(run, slowed, None).endswith("; its own clock adds 25.0 % to a trial")
    for ns in (clean_ns[:0], recorded.trial_ns * 99 // 100):
        alike = replace(recorded, clean_ns=ns, clean_start_ns=ns)
        assert "clock" not in fusion_text(run, alike, None)
