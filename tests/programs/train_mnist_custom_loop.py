#!/usr/bin/env python
"""MNIST with a training loop of its own over iterators."""

import argparse
import os

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import configuration
from chainer.dataset import convert
from chainer.datasets import TupleDataset
from chainer.iterators import SerialIterator


class MLP(chainer.Chain):
    def __init__(self, n_units, n_out):
        super(MLP, self).__init__(
            l1=L.Linear(784, n_units), l2=L.Linear(n_units, n_units), l3=L.Linear(n_units, n_out)
        )

    def forward(self, x):
        return self.l3(F.relu(self.l2(F.relu(self.l1(x)))))


def make_data(n):
    rng = np.random.RandomState(0)
    digits = rng.rand(10, 784)
    y = rng.randint(0, 10, n).astype(np.int32)
    x = (digits[y] + rng.rand(n, 784)) / 2
    return TupleDataset(x.astype(np.float32), y)


def main():
    parser = argparse.ArgumentParser(description="Chainer example: MNIST")
    parser.add_argument("--batchsize", "-b", type=int, default=100)
    parser.add_argument("--epoch", "-e", type=int, default=8)
    parser.add_argument("--out", "-o", default="result")
    parser.add_argument("--unit", "-u", type=int, default=200)
    args = parser.parse_args()

    model = L.Classifier(MLP(args.unit, 10))
    optimizer = chainer.optimizers.Adam()
    optimizer.setup(model)

    # The last batch of an evaluation is smaller.
    train, test = make_data(2000), make_data(450)
    train_iter = SerialIterator(train, args.batchsize)
    test_iter = SerialIterator(test, args.batchsize, repeat=False, shuffle=False)

    sum_accuracy, sum_loss, train_count = 0, 0, len(train)
    while train_iter.epoch < args.epoch:
        batch = train_iter.next()
        x, t = convert.concat_examples(batch)
        optimizer.update(model, x, t)
        sum_loss += float(model.loss.array) * len(t)
        sum_accuracy += float(model.accuracy.array) * len(t)

        if train_iter.is_new_epoch:
            print("epoch: {}".format(train_iter.epoch))
            print(
                "train mean loss: {}, accuracy: {}".format(
                    sum_loss / train_count, sum_accuracy / train_count
                )
            )
            sum_accuracy, sum_loss = 0, 0
            # Enable evaluation mode.
            with configuration.using_config("train", False), chainer.no_backprop_mode():
                for batch in test_iter:
                    x, t = convert.concat_examples(batch)
                    loss = model(x, t)
                    sum_loss += float(loss.array) * len(t)
                    sum_accuracy += float(model.accuracy.array) * len(t)
            test_iter.reset()
            print(
                "test mean  loss: {}, accuracy: {}".format(
                    sum_loss / len(test), sum_accuracy / len(test)
                )
            )
            sum_accuracy, sum_loss = 0, 0

    os.makedirs(args.out, exist_ok=True)
    print("save the model")
    chainer.serializers.save_npz("{}/mlp.model".format(args.out), model)
    print("save the optimizer")
    chainer.serializers.save_npz("{}/mlp.state".format(args.out), optimizer)


if __name__ == "__main__":
    main()
