#!/usr/bin/env python
"""A training that goes on where it stopped: by load_npz, then by autoload."""

import argparse

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import training
from chainer.training import extensions


class MLP(chainer.Chain):
    def __init__(self):
        super(MLP, self).__init__()
        with self.init_scope():
            self.l1 = L.Linear(None, 50)
            self.bn = L.BatchNormalization(50)
            self.l2 = L.Linear(None, 10)

    def forward(self, x):
        return self.l2(F.relu(self.bn(self.l1(x))))


def make_trainer(out, epoch, autoload=False):
    rng = np.random.RandomState(0)
    x = rng.rand(400, 100).astype(np.float32)
    t = rng.randint(0, 10, 400).astype(np.int32)
    data = chainer.datasets.TupleDataset(x, t)
    model = L.Classifier(MLP())
    optimizer = chainer.optimizers.MomentumSGD(0.05).setup(model)
    train_iter = chainer.iterators.SerialIterator(data[:300], 20)
    updater = training.updaters.StandardUpdater(train_iter, optimizer, device=-1)
    trainer = training.Trainer(updater, (epoch, "epoch"), out=out)
    test_iter = chainer.iterators.SerialIterator(data[300:], 20, repeat=False, shuffle=False)
    trainer.extend(extensions.Evaluator(test_iter, model, device=-1))
    trainer.extend(extensions.LogReport())
    trainer.extend(extensions.PrintReport(["epoch", "iteration", "main/loss"]))
    trainer.extend(
        extensions.snapshot(
            filename="snapshot_iter_{.updater.iteration}", n_retains=2, autoload=autoload
        )
    )
    return trainer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epoch", "-e", type=int, default=3)
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()

    trainer = make_trainer(args.out, args.epoch)
    trainer.run()
    iteration = trainer.updater.iteration

    trainer = make_trainer(args.out, 2 * args.epoch)
    chainer.serializers.load_npz("{}/snapshot_iter_{}".format(args.out, iteration), trainer)
    assert trainer.updater.iteration == iteration
    trainer.run()

    trainer = make_trainer(args.out, 3 * args.epoch, autoload=True)
    trainer.run()
    assert trainer.updater.iteration == 3 * iteration


if __name__ == "__main__":
    main()
