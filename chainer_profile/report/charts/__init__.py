"""What is in a chart, said once: :mod:`..pictures` and :mod:`..page` draw it."""
