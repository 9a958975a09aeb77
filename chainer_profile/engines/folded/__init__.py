"""``optimize(model)``: a network that runs its own plan, without Chainer's functions."""
