#!/usr/bin/env python
"""MNIST with a static graph: after the first iterations the functions run from a schedule."""

import argparse

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import static_graph, training
from chainer.training import extensions


class MLP(chainer.Chain):
    def __init__(self, n_units, n_out):
        super(MLP, self).__init__()
        with self.init_scope():
            self.l1 = L.Linear(None, n_units)
            self.l2 = L.Linear(None, n_units)
            self.l3 = L.Linear(None, n_out)

    @static_graph
    def __call__(self, x):
        h1 = F.relu(self.l1(x))
        h2 = F.relu(self.l2(h1))
        return self.l3(h2)


def main():
    parser = argparse.ArgumentParser(description="Chainer example: MNIST")
    parser.add_argument("--batchsize", "-b", type=int, default=50)
    parser.add_argument("--epoch", "-e", type=int, default=3)
    parser.add_argument("--unit", "-u", type=int, default=100)
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()

    np.random.seed(0)
    x = np.random.rand(1200, 784).astype(np.float32)
    t = np.random.randint(0, 10, 1200).astype(np.int32)
    data = chainer.datasets.TupleDataset(x, t)
    train, test = chainer.datasets.split_dataset(data, 1000)
    model = L.Classifier(MLP(args.unit, 10))
    optimizer = chainer.optimizers.Adam()
    optimizer.setup(model)
    train_iter = chainer.iterators.SerialIterator(train, args.batchsize)
    test_iter = chainer.iterators.SerialIterator(test, args.batchsize, repeat=False, shuffle=False)
    updater = training.updaters.StandardUpdater(train_iter, optimizer, device=-1)
    trainer = training.Trainer(updater, (args.epoch, "epoch"), out=args.out)
    trainer.extend(extensions.Evaluator(test_iter, model, device=-1))
    trainer.extend(extensions.LogReport())
    trainer.extend(
        extensions.PrintReport(["epoch", "main/loss", "validation/main/loss", "elapsed_time"])
    )
    trainer.run()


if __name__ == "__main__":
    main()
