"""Results of a race: what follows from them, and their file."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from chainer_profile.basics.errors import ProfileError
from chainer_profile.engines.results import (
    RESULTS,
    OutputDifference,
    main_layer,
    read_json,
    recorded,
    round_medians,
    speedup,
    write_json,
)
from chainer_profile.record.recording import Conditions
from tests.engines.fake_engines import MISSING, WRONG, layers, make_run, recordings, result


def test_a_run_is_the_same_when_read_again(tmp_path: Path) -> None:
    odd = result("odd", 10, differences=(OutputDifference(math.inf, 0.0, 2),), note="as is")
    run = make_run(MISSING, odd, WRONG, other_cpu=0.5, ended="interrupted by SIGINT")
    path, made = tmp_path / RESULTS, recordings()
    conditions = Conditions(other_cpu=0.5)
    made["chainer"] = replace(made["chainer"], conditions=conditions)
    for known in (made, {}, {"fast": made["fast"]}):
        path.write_text(write_json(run, known))
        again = recorded(read_json(path), known)
        assert write_json(again, {}) == write_json(run, {})
        assert again.settings == run.settings
        assert again.environment == run.environment
        for before, after in zip(run.engines, again.engines, strict=True):
            np.testing.assert_array_equal(before.clean_ns, after.clean_ns)
            assert after.clean_ns.dtype == np.int64
            assert before.differences == after.differences
            assert speedup(after, again.engines[0]) == speedup(before, run.engines[0])
    json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is no chainer-profile engines"),
        ("[]", "is no chainer-profile engines"),
        ('{"format": "other", "version": 1}', "is no chainer-profile engines"),
        ('{"format": "chainer-profile engines", "version": 99}', "reads up to 2: update"),
        ('{"format": "chainer-profile engines", "version": 1}', "damaged"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / RESULTS
    path.write_text(content)
    with pytest.raises(ProfileError, match=message):
        read_json(path)


def test_damaged_times_are_refused(tmp_path: Path) -> None:
    content = json.loads(write_json(make_run(), {}))
    content["engines"][0]["clean_ns"] = "1 b"
    path = tmp_path / RESULTS
    path.write_text(json.dumps(content))
    with pytest.raises(ProfileError, match="damaged"):
        read_json(path)


def test_a_missing_file_is_said_with_its_folder(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"holds no run of engines \(no engines.json\)"):
        read_json(tmp_path / RESULTS)


def test_a_speed_up_is_the_median_of_ratios_by_round() -> None:
    slow, fast = result("a", 1000), result("b", 100)
    found = speedup(fast, slow)
    assert found is not None
    assert (found.factor, found.low, found.high) == (10.0, 10.0, 10.0)
    back = speedup(slow, fast)
    assert back is not None
    assert back.factor == pytest.approx(0.1)


def test_what_slows_a_round_slows_both_and_changes_nothing() -> None:
    slow, fast = result("a", 1000), result("b", 100)
    drift = np.where(np.arange(60) < 20, 5, 1)
    drifting = [result(e.name, 1, clean_ns=e.clean_ns * drift) for e in (slow, fast)]
    assert speedup(drifting[1], drifting[0]) == speedup(fast, slow)


def test_only_rounds_of_both_count() -> None:
    slow = result("a", 1000)
    short = result("b", 100, clean_ns=slow.clean_ns[:6] // 4)
    found = speedup(short, slow)
    assert found is not None
    assert found.factor == pytest.approx(4.0)
    assert math.isnan(found.low)  # three rounds
    assert len(round_medians(short)) == 3


def test_wrong_and_failed_engines_have_no_speed_up() -> None:
    chainer = result("chainer", 1000)
    for other in (WRONG, MISSING, result("late", 10, error="after 3 trials: it broke")):
        assert speedup(other, chainer) is None
        assert speedup(chainer, other) is None


def test_an_engine_is_wrong_beyond_the_tolerance_on_any_input() -> None:
    assert not result("a", 1).wrong
    assert result("a", 1, tolerance=1e-7).wrong
    differences = (OutputDifference(0.0, 2.0), OutputDifference(1.0, 2.0, 1))
    late = result("a", 1, differences=differences)
    assert late.wrong
    assert late.difference == differences[1]


def test_a_run_tells_who_is_who() -> None:
    run = make_run(MISSING, WRONG)
    assert run.baseline is run.engines[0]
    assert [e.name for e in run.measured] == ["chainer", "fast", "hasty"]
    assert run.others == (MISSING,)
    assert run.wrong == (WRONG,)


def test_the_main_layer_has_the_most_operations_or_else_is_the_first() -> None:
    known = layers()
    assert main_layer((1, 2, 3), known) == 3
    assert main_layer((1, 2), known) == 1
