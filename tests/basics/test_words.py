"""Commands in advice, with the option --try."""

from chainer_profile.basics.words import export_command_of, same_command_with_try

#: Arguments after ``--try`` by command; None for commands that do not have the option.
COMMANDS = {
    "python profile.py run train.py -o result --epoch 1": "train.py -o result --epoch 1",
    "chainer-profile run -o a --force -q train.py": "-q train.py",
    "chainer-profile run --out=a --format json -m a.b --out c": "--format json -m a.b --out c",
    "python -m chainer_profile run 'my file.py'": "'my file.py'",
    **dict.fromkeys(("chainer-profile run --try train.py", "chainer-profile -b 2", ""), None),
}


def test_try_option_is_added_to_a_run_command():
    for command, arguments in COMMANDS.items():
        expected = "" if arguments is None else f"python profile.py run --try {arguments}"
        assert same_command_with_try(command) == expected


#: Commands, and the arguments with which their network is exported.
EXPORTED = {
    "python profile.py --trials 9 -q": "",
    "python profile.py -m resnet18 -b32 --why": "--model resnet18 --batchsize 32",
    "chainer-profile engines -b 2 --batchsize=4 --engines chainer": "--batchsize 4",
    "python -m chainer_profile --model 'my nets.py:A' --model-args '1, n=2' --weights w.npz": (
        "--model 'my nets.py:A' --model-args '1, n=2' --weights w.npz"
    ),
    "chainer-profile --input-shape 3x8 -n 5 --input-shape t=one:int32:9 --seed 1 --out -": (
        "--seed 1 --input-shape 3x8 --input-shape t=one:int32:9"
    ),
    "chainer-profile --model-args=-1 -i x.npy --classes 5": (
        "--model-args=-1 --classes 5 --input x.npy"
    ),
    "": "",
}


def test_export_command_has_the_network_and_input_of_a_command():
    for command, words in EXPORTED.items():
        assert export_command_of(command) == f"python profile.py export net.onnx {words}".rstrip()
    other = export_command_of("python profile.py export net.onnx -m a -b 2", 8)
    assert other == "python profile.py export net.onnx --model a --batchsize 8"
