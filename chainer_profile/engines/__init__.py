"""Runs a network by other engines, which implement :class:`.protocol.Engine`."""
