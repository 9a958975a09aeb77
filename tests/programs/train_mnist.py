#!/usr/bin/env python
"""MNIST by a Trainer with the usual extensions; --resume takes a snapshot up again."""

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
            self.l3 = L.Linear(None, n_out)

    def forward(self, x):
        h1 = F.relu(self.l1(x))
        h2 = F.relu(self.l2(h1))
        return self.l3(h2)


def make_mnist(directory, n_train):
    """Writes the files that get_mnist() keeps of the data set once it was downloaded."""
    chainer.dataset.set_dataset_root(directory)
    root = chainer.dataset.get_dataset_directory("pfnet/chainer/mnist")
    rng = numpy.random.RandomState(0)
    digits = rng.randint(0, 256, (10, 784))
    for name, n in (("train", n_train), ("test", n_train // 5)):
        y = rng.randint(0, 10, n)
        x = (digits[y] + rng.randint(0, 256, (n, 784))) // 2
        numpy.savez(os.path.join(root, name + ".npz"), x=x.astype("u1"), y=y.astype("u1"))


def main():
    parser = argparse.ArgumentParser(description="Chainer example: MNIST")
    parser.add_argument(
        "--batchsize", "-b", type=int, default=100, help="Number of images in each mini-batch"
    )
    parser.add_argument(
        "--epoch", "-e", type=int, default=3, help="Number of sweeps over the dataset to train"
    )
    parser.add_argument(
        "--frequency", "-f", type=int, default=-1, help="Frequency of taking a snapshot"
    )
    parser.add_argument("--device", "-d", type=str, default="-1", help="Device specifier")
    parser.add_argument("--n-train", type=int, default=2000, help="Number of images made")
    parser.add_argument("--out", "-o", default="result", help="Directory to output the result")
    parser.add_argument("--resume", "-r", type=str, help="Resume the training from snapshot")
    parser.add_argument("--unit", "-u", type=int, default=200, help="Number of units")
    parser.add_argument(
        "--noplot", dest="plot", action="store_false", help="Disable PlotReport extension"
    )
    args = parser.parse_args()

    device = chainer.get_device(args.device)
    print("Device: {}".format(device))
    print("# unit: {}".format(args.unit))
    print("# Minibatch-size: {}".format(args.batchsize))
    print("# epoch: {}".format(args.epoch))
    print("")

    model = L.Classifier(MLP(args.unit, 10))
    model.to_device(device)
    device.use()
    optimizer = chainer.optimizers.Adam()
    optimizer.setup(model)

    make_mnist(os.path.join(args.out, "data"), args.n_train)
    train, test = chainer.datasets.get_mnist()
    train_iter = chainer.iterators.SerialIterator(train, args.batchsize)
    test_iter = chainer.iterators.SerialIterator(test, args.batchsize, repeat=False, shuffle=False)

    updater = training.updaters.StandardUpdater(train_iter, optimizer, device=device)
    trainer = training.Trainer(updater, (args.epoch, "epoch"), out=args.out)
    trainer.extend(extensions.Evaluator(test_iter, model, device=device), call_before_training=True)
    trainer.extend(extensions.DumpGraph("main/loss"))
    frequency = args.epoch if args.frequency == -1 else max(1, args.frequency)
    trainer.extend(extensions.snapshot(), trigger=(frequency, "epoch"))
    trainer.extend(extensions.LogReport(), call_before_training=True)
    if args.plot and extensions.PlotReport.available():
        trainer.extend(
            extensions.PlotReport(
                ["main/loss", "validation/main/loss"], "epoch", file_name="loss.png"
            ),
            call_before_training=True,
        )
        trainer.extend(
            extensions.PlotReport(
                ["main/accuracy", "validation/main/accuracy"], "epoch", file_name="accuracy.png"
            ),
            call_before_training=True,
        )
    trainer.extend(
        extensions.PrintReport(
            [
                "epoch",
                "main/loss",
                "validation/main/loss",
                "main/accuracy",
                "validation/main/accuracy",
                "elapsed_time",
            ]
        ),
        call_before_training=True,
    )
    trainer.extend(extensions.ProgressBar())

    if args.resume is not None:
        chainer.serializers.load_npz(args.resume, trainer)
    trainer.run()


if __name__ == "__main__":
    main()
