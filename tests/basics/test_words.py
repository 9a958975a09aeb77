"""Commands in advice."""

from chainer_profile.basics.words import same_command_with_try

#: Commands, and the arguments after ``--try``; None for commands to which it cannot be added.
COMMANDS = {
    "python profile.py run train.py -o result --epoch 1": "train.py -o result --epoch 1",
    "chainer-profile run -o a --force -q train.py": "-q train.py",
    "chainer-profile run --out=a --format json -m a.b --out c": "--format json -m a.b --out c",
    "python -m chainer_profile run 'my file.py'": "'my file.py'",
    **dict.fromkeys(("chainer-profile run --try train.py", "chainer-profile -b 2", ""), None),
}


def test_try_is_added_to_a_run_of_a_program():
    for command, words in COMMANDS.items():
        expected = "" if words is None else f"python profile.py run --try {words}"
        assert same_command_with_try(command) == expected
