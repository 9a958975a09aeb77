"""Commands that are named in advice."""

import pytest

from chainer_profile.basics.words import trying_again


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("python profile.py run train.py -o result --epoch 1", "train.py -o result --epoch 1"),
        ("chainer-profile run -o a --force -q train.py", "-q train.py"),
        (
            "chainer-profile run --out=a --format json -m a.b --out c",
            "--format json -m a.b --out c",
        ),
        ("python -m chainer_profile run 'my file.py'", "'my file.py'"),
        ("chainer-profile run --try train.py", None),
        ("chainer-profile -b 2", None),
        ("python train.py", None),
        ("", None),
    ],
)
def test_the_same_command_that_tries(command, named):
    expected = "" if named is None else f"python profile.py run --try {named}"
    assert trying_again(command) == expected
