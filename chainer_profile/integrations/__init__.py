"""Measures inside other programs: the Trainer's extension, blocks of code, whole programs."""
