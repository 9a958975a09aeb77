#!/usr/bin/env python
"""Serialization: a network and its optimizer go through npz and HDF5, and training continues."""

import argparse
import os

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import serializers


def make_model():
    model = chainer.Sequential(L.Linear(60, 40), L.BatchNormalization(40), F.relu, L.Linear(40, 5))
    return L.Classifier(model)


def train(model, optimizer, x, t, n_iter):
    for i in range(0, n_iter * 20, 20):
        optimizer.update(model, x[i % len(x) :][:20], t[i % len(x) :][:20])
    return float(model.loss.array)


def main():
    parser = argparse.ArgumentParser(description="Chainer example: serialization")
    parser.add_argument("--iteration", "-i", type=int, default=50)
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)

    np.random.seed(0)
    x = np.random.rand(400, 60).astype(np.float32)
    t = np.random.randint(0, 5, 400).astype(np.int32)
    model = make_model()
    optimizer = chainer.optimizers.Adam()
    optimizer.setup(model)
    print("loss: {:.4f}".format(train(model, optimizer, x, t, args.iteration)))

    kinds = [("npz", serializers.save_npz, serializers.load_npz)]
    if chainer.serializers.hdf5._available:
        kinds.append(("h5", serializers.save_hdf5, serializers.load_hdf5))
    for suffix, save, load in kinds:
        names = [os.path.join(args.out, name + "." + suffix) for name in ("model", "optimizer")]
        save(names[0], model)
        save(names[1], optimizer)
        again = make_model()
        new_optimizer = chainer.optimizers.Adam()
        new_optimizer.setup(again)
        load(names[0], again)
        load(names[1], new_optimizer)
        assert new_optimizer.t == optimizer.t
        for (name, param), (_, other) in zip(model.namedparams(), again.namedparams()):
            assert np.array_equal(param.array, other.array), name
        loss = train(again, new_optimizer, x, t, args.iteration)
        print("after {}: {:.4f}".format(suffix, loss))
    dictionary = serializers.DictionarySerializer()
    dictionary.save(model)
    print("# arrays: {}".format(len(dictionary.target)))


if __name__ == "__main__":
    main()
