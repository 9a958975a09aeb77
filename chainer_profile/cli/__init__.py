"""The command line. :data:`COMMANDS` is the list; each command is the file of its name.

A command's file has ``run(args, context)``, which gives the exit code. :mod:`.parsers` has the
parsers, of the options of :mod:`.options`; :mod:`.main` finds the command and runs it.
"""

from __future__ import annotations

#: The command that needs no word.
PROFILE = "profile"

#: The commands, and what each does.
COMMANDS = {
    PROFILE: "profile a network layer by layer (the default)",
    "run": "run any Chainer program and show where its time goes",
    "report": "make a run's reports again from its recording",
    "compare": "show what became faster or slower between runs, and what is noise",
    "ranks": "merge the recordings of a training's ranks: who waits for whom",
    "advise": "try changes that could make the network faster, and measure the gain of each",
    "engines": "run the network under faster engines and compare",
    "sweep": "profile many networks, inputs and devices",
    "summary": "show a network's layers without timing",
    "export": "export a network to ONNX",
    "train": "train a network",
    "machine": "measure this machine's limits",
}

#: Options that ask for something in place of a run, which :mod:`.instead` answers.
INSTEAD = ("list_models", "list_engines", "report")

#: Exit codes of a gate that fails, and of outputs that are not Chainer's.
FAILED, WRONG = 3, 4
