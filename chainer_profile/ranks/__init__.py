"""Recordings of a training's ranks put together: what is slow where, and who waits for whom."""
