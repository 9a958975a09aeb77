"""From a recording to a summary, by pure functions: no Chainer, no GPU, no files."""
