"""The formulas behind :mod:`chainer_profile.costs.work`, by family; its text says what they count."""
