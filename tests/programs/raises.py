"""A training whose data ends in the middle of an epoch with an error, within a Trainer."""

import argparse

import chainer
import chainer.links as L
import numpy as np
from chainer import training
from chainer.training import extensions


class Broken(chainer.dataset.DatasetMixin):
    def __init__(self, n, bad):
        self.x = np.random.RandomState(0).rand(n, 50).astype(np.float32)
        self.bad = bad

    def __len__(self):
        return len(self.x)

    def get_example(self, i):
        if i == self.bad:
            raise ValueError("example {} is damaged".format(i))
        return self.x[i], np.int32(i % 10)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bad", type=int, default=1000)
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()

    model = L.Classifier(chainer.Sequential(L.Linear(50, 100), L.Linear(100, 10)))
    optimizer = chainer.optimizers.SGD().setup(model)
    train_iter = chainer.iterators.SerialIterator(Broken(2000, args.bad), 20, shuffle=False)
    updater = training.updaters.StandardUpdater(train_iter, optimizer)
    trainer = training.Trainer(updater, (2, "epoch"), out=args.out)
    trainer.extend(extensions.LogReport(trigger=(10, "iteration")))
    trainer.extend(extensions.PrintReport(["iteration", "main/loss"]), trigger=(10, "iteration"))
    trainer.run()


if __name__ == "__main__":
    main()
