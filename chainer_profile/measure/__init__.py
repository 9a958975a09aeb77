"""From a network to a recording: clocks, hooks and the passes of a run."""
