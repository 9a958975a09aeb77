"""Code that every package may import: errors, units, paths, files, parsing, statistics."""
