"""Commands that are named in advice."""

from chainer_profile.basics.words import same_command_with_try

#: Commands, and what they run; None where nothing is to be tried.
COMMANDS = {
    "python profile.py run train.py -o result --epoch 1": "train.py -o result --epoch 1",
    "chainer-profile run -o a --force -q train.py": "-q train.py",
    "chainer-profile run --out=a --format json -m a.b --out c": "--format json -m a.b --out c",
    "python -m chainer_profile run 'my file.py'": "'my file.py'",
    **dict.fromkeys(("chainer-profile run --try train.py", "chainer-profile -b 2", ""), None),
}


def test_the_same_command_that_tries():
    for command, words in COMMANDS.items():
        expected = "" if words is None else f"python profile.py run --try {words}"
        assert same_command_with_try(command) == expected
