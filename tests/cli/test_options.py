"""The table of options: each is taken by a command, and settings are filled from it by name."""

import numpy as np

from chainer_profile.basics.parsing import Parser, input_shape
from chainer_profile.cli.asked import read_input
from chainer_profile.cli.options import OPTIONS, settings_of, take
from chainer_profile.cli.parsers import parser_of, parsers
from chainer_profile.networks.loading import find_model
from chainer_profile.record.recording import Settings
from models.registry import REGISTRY


def test_every_option_of_the_table_is_taken_and_says_what_it_does():
    taken = {
        word
        for parser in parsers().values()
        for action in parser._actions
        for word in action.option_strings
    }
    for shown, told in OPTIONS.items():
        words = [word.partition(" ")[0] for word in shown.split(", ")]
        assert taken.issuperset(words)
        assert told["help"]


def test_a_command_says_otherwise_what_it_needs():
    parser = Parser(prog="x")
    take(parser, "trials seed", default=7)
    take(parser, "device", short=False)
    assert vars(parser.parse_args([])) == {"trials": 7, "seed": 7}
    assert vars(parser.parse_args(["-n", "3", "--device", "@cupy:1"])) == {
        "trials": 3,
        "seed": 7,
        "gpu": 1,
    }
    assert "-d" not in parser._option_string_actions
    assert parser_of("profile").parse_args([]).trials == 1000


#: What a run of these words asks for; the rest is as a run without any.
ASKED = {
    "--phase train": {"phase": "train"},
    "--train-mode": {"train_mode": True},
    "--trials 3": {"trials": 3},
    "--until-ci 1": {"until_ci": 0.01},
    "--dtype float16": {"dtype": "float16"},
    "--fast": {"fast": "numpy"},
    "--fast torch": {"fast": "torch"},
    "--keep-memory": {"keep_memory": True},
    "-b 6": {"batchsize": 6},
    "-g 1": {"device": "gpu:1"},
    "-d @cupy:2": {"device": "gpu:2"},
    # Their words name what is to be found, or what a step is made of.
    "--model other --input random --input-shape 3 --loss output": {},
    # No settings of a recording.
    "--why --no-memory --no-machine --counters --layer-frames": {},
    "--tf32 -g 1": {"device": "gpu:1"},
}


def test_settings_have_what_the_options_of_their_names_say():
    usual = Settings(trials=1000, warmups=50, seed=0)
    for words, asked in ASKED.items():
        args = parser_of("profile").parse_args(words.split())
        assert settings_of(args) == Settings(**{**vars(usual), **asked}), words
    # What was found comes before what was asked for.
    args = parser_of("profile").parse_args(["-b", "6", "--trials", "3", "--gpu", "1"])
    found = settings_of(args, model="tiny", batchsize=4, device="cpu")
    assert (found.model, found.batchsize, found.device, found.trials) == ("tiny", 4, "cpu", 3)


def test_the_input_and_the_budget_are_as_asked():
    def parsed(*words):
        return parser_of("engines").parse_args(words)

    source = find_model("resnet20", REGISTRY, None)
    first, again = (
        read_input(parsed("-b", "2", "--input-size", "8x6", "--seed", seed), source).array
        for seed in ("0", "3")
    )
    assert first.shape == again.shape == (2, 3, 8, 6)
    assert not np.array_equal(first, again)
    assert input_shape(parsed(), (4,)) == (4,)
    assert input_shape(parsed("--input-shape", "5"), (4,)) == (5,)
    for text, seconds in {"3m": 180, "90s": 90, "1.5": 1.5}.items():
        assert parser_of("advise").parse_args(["--budget", text]).budget == seconds
