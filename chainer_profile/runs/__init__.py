"""Runs in folders: writing one, finding those that are there, and sweeps of many."""
