"""Blocks of reports, from results."""
