#!/usr/bin/env python
"""MNIST with a Trainer and the usual extensions. Resumes by load_npz, and then by autoload."""

import argparse
import os

import chainer
import chainer.functions as F
import chainer.links as L
import numpy
from chainer import training
from chainer.training import extensions


class MLP(chainer.Chain):
    def __init__(self, n_units, n_out):
        super(MLP, self).__init__()
        with self.init_scope():
            self.l1 = L.Linear(None, n_units)
            self.l2 = L.Linear(None, n_units)
            self.bn = L.BatchNormalization(n_units)
            self.l3 = L.Linear(None, n_out)

    def forward(self, x):
        return self.l3(F.relu(self.bn(self.l2(F.relu(self.l1(x))))))


def make_mnist(directory, n_train=2000):
    """Write the files that get_mnist() keeps after a download."""
    chainer.dataset.set_dataset_root(directory)
    root = chainer.dataset.get_dataset_directory("pfnet/chainer/mnist")
    rng = numpy.random.RandomState(0)
    digits = rng.randint(0, 256, (10, 784))
    for name, n in (("train", n_train), ("test", n_train // 5)):
        y = rng.randint(0, 10, n)
        x = (digits[y] + rng.randint(0, 256, (n, 784))) // 2
        numpy.savez(os.path.join(root, name + ".npz"), x=x.astype("u1"), y=y.astype("u1"))


def make_trainer(args, epochs, autoload=False):
    device = chainer.get_device("-1")
    model = L.Classifier(MLP(200, 10))
    model.to_device(device)
    device.use()
    optimizer = chainer.optimizers.Adam()
    optimizer.setup(model)

    train, test = chainer.datasets.get_mnist()
    train_iter = chainer.iterators.SerialIterator(train, args.batchsize)
    test_iter = chainer.iterators.SerialIterator(test, args.batchsize, repeat=False, shuffle=False)

    updater = training.updaters.StandardUpdater(train_iter, optimizer, device=device)
    trainer = training.Trainer(updater, (epochs, "epoch"), out=args.out)
    trainer.extend(extensions.Evaluator(test_iter, model, device=device), call_before_training=True)
    trainer.extend(extensions.DumpGraph("main/loss"))
    name = "snapshot_iter_{.updater.iteration}"
    trainer.extend(
        extensions.snapshot(filename=name, n_retains=2, autoload=autoload),
        trigger=(args.epoch, "epoch"),
    )
    trainer.extend(extensions.LogReport(), call_before_training=True)
    for name in ("loss", "accuracy"):
        shown = ["main/" + name, "validation/main/" + name]
        plot = extensions.PlotReport(shown, "epoch", file_name=name + ".png")
        trainer.extend(plot, call_before_training=True)
    shown = ["epoch", "main/loss", "validation/main/loss", "elapsed_time"]
    trainer.extend(extensions.PrintReport(shown), call_before_training=True)
    trainer.extend(extensions.ProgressBar())
    return trainer


def main():
    parser = argparse.ArgumentParser(description="Chainer example: MNIST")
    parser.add_argument("--batchsize", "-b", type=int, default=100)
    parser.add_argument("--epoch", "-e", type=int, default=3)
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()
    make_mnist(os.path.join(args.out, "data"))

    trainer = make_trainer(args, args.epoch)
    trainer.run()
    iteration = trainer.updater.iteration

    trainer = make_trainer(args, 2 * args.epoch)
    chainer.serializers.load_npz("{}/snapshot_iter_{}".format(args.out, iteration), trainer)
    assert trainer.updater.iteration == iteration
    trainer.run()

    trainer = make_trainer(args, 3 * args.epoch, autoload=True)
    trainer.run()
    assert trainer.updater.iteration == 3 * iteration


if __name__ == "__main__":
    main()
