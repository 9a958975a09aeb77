"""The engines themselves: each runs the network in one way."""
