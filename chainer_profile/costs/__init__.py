"""The formulas behind :mod:`chainer_profile.cost`, by family; its text says what they count."""
