"""Charts, traces and stacks."""
