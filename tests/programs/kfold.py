"""Cross validation: a network, an optimizer and a Trainer for every fold, in one process."""

import argparse
import os

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import training
from chainer.datasets import get_cross_validation_datasets_random
from chainer.training import extensions


class Net(chainer.Chain):
    def __init__(self, n_units):
        super().__init__()
        with self.init_scope():
            self.layers = chainer.ChainList(L.Linear(20, n_units), L.Linear(n_units, n_units))
            self.out = L.Linear(n_units, 1)

    def forward(self, x):
        for layer in self.layers:
            x = F.sigmoid(layer(x))
        return self.out(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folds", "-k", type=int, default=3)
    parser.add_argument("--epoch", "-e", type=int, default=5)
    parser.add_argument("--unit", "-u", type=int, default=50)
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()

    rng = np.random.RandomState(0)
    x = rng.rand(300, 20).astype(np.float32)
    y = x.sum(axis=1, keepdims=True)
    data = chainer.datasets.TupleDataset(x, y)
    losses = []
    for fold, (train, valid) in enumerate(
        get_cross_validation_datasets_random(data, args.folds, seed=0)
    ):
        model = L.Classifier(Net(args.unit), lossfun=F.mean_squared_error)
        model.compute_accuracy = False
        optimizer = chainer.optimizers.RMSprop(1e-3).setup(model)
        updater = training.updaters.StandardUpdater(
            chainer.iterators.SerialIterator(train, 20), optimizer
        )
        trainer = training.Trainer(
            updater, (args.epoch, "epoch"), out=os.path.join(args.out, "fold{}".format(fold))
        )
        trainer.extend(
            extensions.Evaluator(
                chainer.iterators.SerialIterator(valid, 50, repeat=False, shuffle=False), model
            )
        )
        log = extensions.LogReport()
        trainer.extend(log)
        trainer.extend(extensions.PrintReport(["epoch", "main/loss", "validation/main/loss"], log))
        trainer.run()
        losses.append(log.log[-1]["validation/main/loss"])
    print("loss of all folds: {:.4f}".format(np.mean(losses)))


if __name__ == "__main__":
    main()
