"""Recordings against recordings: what became faster or slower, and what is noise."""
