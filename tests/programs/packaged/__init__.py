"""A package with a training, for python -m."""
