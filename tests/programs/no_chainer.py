"""A program that imports Chainer and calls none of its functions."""

import argparse
import os

import chainer
import numpy as np


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    x = np.random.RandomState(0).rand(300, 300)
    for _ in range(20):
        x = x @ x / np.abs(x).max()
    np.save(os.path.join(args.out, "x.npy"), x)
    print("Chainer {}, {}".format(chainer.__version__, x.shape))


if __name__ == "__main__":
    main()
