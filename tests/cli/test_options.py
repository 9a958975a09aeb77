"""The table of options: each is taken by a command, and settings are filled from it by name."""

from chainer_profile.cli.options import settings_of
from chainer_profile.cli.parsers import parser_of
from chainer_profile.record.recording import Settings

#: What a run of these words asks for; the rest is as a run without any.
ASKED = {
    "--dtype float16": {"dtype": "float16"},
    "--fast": {"fast": "numpy"},
    "--fast torch": {"fast": "torch"},
    "--keep-memory": {"keep_memory": True},
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
    args = parser_of("profile").parse_args(["-b", "6", "--gpu", "1"])
    found = settings_of(args, model="tiny", batchsize=4, device="cpu")
    assert (found.model, found.batchsize, found.device) == ("tiny", 4, "cpu")
