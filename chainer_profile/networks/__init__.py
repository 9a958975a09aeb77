"""Finding and building a network, its input and its weights."""
