"""The names of what a trial can run, of its losses, and of what rows are grouped by."""

#: What ``--phase`` takes.
PHASES = ("forward", "forward-backward", "train")
#: What ``--loss`` takes.
LOSSES = ("auto", "softmax_cross_entropy", "mean_squared_error", "output")
#: What ``--group-by`` takes.
GROUPS = ("function", "link", "block", "shape")
