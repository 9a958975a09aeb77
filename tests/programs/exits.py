"""A training that leaves by sys.exit(3), as it did not get as far as it was to."""

import argparse
import sys

import chainer
import chainer.links as L
import numpy as np


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iteration", "-i", type=int, default=100)
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()

    rng = np.random.RandomState(0)
    model = L.Classifier(chainer.Sequential(L.Linear(50, 100), L.Linear(100, 10)))
    optimizer = chainer.optimizers.SGD().setup(model)
    for _ in range(args.iteration):
        x = rng.rand(32, 50).astype(np.float32)
        optimizer.update(model, x, rng.randint(0, 10, 32).astype(np.int32))
    if model.accuracy.array < 0.99:
        print("not good enough", file=sys.stderr)
        sys.exit(3)


if __name__ == "__main__":
    main()
