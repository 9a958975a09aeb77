"""Words that several floors share: the program's name, defaults, and what options take."""

#: The package's version; `pyproject.toml` reads it here.
VERSION = "0.1.0"
#: The program, in messages and advice.
PROG = "profile.py"
DEFAULT_MODEL = "resnet20"
#: Levels of the tree of links below the network.
DEFAULT_DEPTH = 2

#: What ``--phase`` takes.
PHASES = ("forward", "forward-backward", "train")
#: What ``--loss`` takes.
LOSSES = ("auto", "softmax_cross_entropy", "mean_squared_error", "output")
#: What ``--group-by`` takes.
GROUPS = ("function", "link", "block", "shape")
#: What ``--dtype`` takes.
DTYPES = ("float32", "float16", "mixed16")

#: What stands between the names of layers that are one row.
JOIN = " + "
