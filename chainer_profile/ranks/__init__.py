"""Recordings of a training's ranks, merged: slow layers, slow ranks, and waiting."""
