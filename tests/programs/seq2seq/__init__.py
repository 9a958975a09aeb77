"""Translation by NStepLSTM: a package, for python -m, whose data ends with an error."""
