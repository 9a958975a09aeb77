"""The names of what a trial can run, its losses and data types, and what rows are grouped by."""

#: What ``--phase`` takes.
PHASES = ("forward", "forward-backward", "train")
#: What ``--loss`` takes.
LOSSES = ("auto", "softmax_cross_entropy", "mean_squared_error", "output")
#: What ``--group-by`` takes.
GROUPS = ("function", "link", "block", "shape")
#: What ``--dtype`` takes.
DTYPES = ("float32", "float16", "mixed16")
