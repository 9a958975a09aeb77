from __future__ import annotations

import pytest

from chainer_profile.record.recording import Settings
from chainer_profile.report.content.method import has_rate_of_zero

OURS = "python profile.py --phase train"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Settings(phase="train", optimizer="MomentumSGD", command=OURS), True),
        (Settings(phase="train", optimizer="Adam", command=OURS), False),
        (Settings(phase="forward-backward", command=OURS), False),
        (Settings(phase="train", optimizer="MomentumSGD"), False),
        # A training of one's own, whose extension recorded its command.
        (Settings(phase="train", optimizer="MomentumSGD", command="python train.py"), False),
        (
            Settings(phase="train", optimizer="MomentumSGD", command="python t.py x profile.py"),
            False,
        ),
    ],
)
def test_the_rate_of_zero_is_that_of_our_own_optimizer(settings: Settings, expected: bool) -> None:
    assert has_rate_of_zero(settings) == expected
