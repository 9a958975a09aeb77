"""A stand-in for cupti-python, beside that for CuPy."""
