"""The command line. :data:`COMMANDS` is the list; each command is the module of its name.

A command's module has ``run(args, context)``, which returns the exit code. Its module in
:mod:`.arguments` adds its arguments to a parser; :mod:`.main` finds the command and runs it.
"""

from __future__ import annotations

#: The command that needs no word.
PROFILE = "profile"

#: The commands, and what each does.
COMMANDS = {
    PROFILE: "profile a network layer by layer (the default)",
    "run": "run any Chainer program and show where its time goes",
    "report": "make a run's reports again; merge those of a training's ranks",
    "compare": "show what became faster or slower between runs, and what is noise",
    "advise": "try changes that could make the network faster; measure their gains",
    "engines": "run the network under faster engines and compare",
    "sweep": "profile many networks, inputs and devices",
    "summary": "show a network's layers without timing",
    "export": "export a network to ONNX",
    "train": "train a network",
}

#: Options that ask for something else than a run, and the modules that answer.
INSTEAD = {"list_models": "listing", "list_engines": "listing", "machine": "machine"}

#: Exit codes of a gate that fails, and of outputs that are not Chainer's.
FAILED, WRONG = 3, 4
