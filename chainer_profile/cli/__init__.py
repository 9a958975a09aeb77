"""The command line. :data:`COMMANDS` is the list; each command is the file of its name.

A command's file has ``run(args, context)``, which gives the exit code. :mod:`.parsers` has the
parsers, of the options of :mod:`.options`; :mod:`.main` finds the command and runs it.
"""

from __future__ import annotations

#: The command that needs no word.
PROFILE = "profile"

#: The commands, and what each does.
COMMANDS = {
    PROFILE: "profile a network layer by layer; needs no word",
    "run": "run any program that uses Chainer, and say where its time goes",
    "report": "make the reports of a run again, from its recording",
    "compare": "say what became faster or slower between runs, and what is noise",
    "ranks": "put the recordings of a training's ranks together: who waits for whom",
    "advise": "try what could make the network faster, and say what each change brings",
    "engines": "run the network under faster engines too, and compare",
    "sweep": "profile many networks, inputs and devices",
    "history": "list the runs so far",
    "summary": "show a network's layers without timing",
    "export": "write a network for a runtime",
    "train": "train a network",
    "machine": "show what this machine can do at best",
    "completion": "print a script that completes all this in a shell",
}

#: Options that ask for something in place of a run, which :mod:`.instead` answers.
INSTEAD = ("list_models", "list_engines", "report")

#: Exit codes of a gate that fails, and of outputs that are not Chainer's.
FAILED, WRONG = 3, 4
