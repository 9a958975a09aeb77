"""Chainer wants to import it."""
