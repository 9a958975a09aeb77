"""Folders of runs and sweeps: writes and reads their files."""
