"""What every room may use: errors, units, words, paths, files, plain statistics."""
