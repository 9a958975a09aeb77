"""Recordings compared with recordings: changes, and noise."""
