"""CIFAR-10 with a small VGG: batch normalization, dropout, and a learning rate that falls."""

import argparse
import os

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import training
from chainer.datasets import get_cifar10
from chainer.training import extensions, triggers


class Block(chainer.Chain):
    """A convolution, batch norm, ReLU block."""

    def __init__(self, out_channels, ksize, pad=1):
        super(Block, self).__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(None, out_channels, ksize, pad=pad, nobias=True)
            self.bn = L.BatchNormalization(out_channels)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class VGG(chainer.Chain):
    """VGG with fewer and narrower blocks."""

    def __init__(self, class_labels=10, width=8):
        super(VGG, self).__init__()
        with self.init_scope():
            self.block1_1 = Block(width, 3)
            self.block1_2 = Block(width, 3)
            self.block2_1 = Block(2 * width, 3)
            self.block2_2 = Block(2 * width, 3)
            self.fc1 = L.Linear(None, 8 * width, nobias=True)
            self.bn_fc1 = L.BatchNormalization(8 * width)
            self.fc2 = L.Linear(None, class_labels, nobias=True)

    def forward(self, x):
        h = F.dropout(self.block1_1(x), ratio=0.3)
        h = F.max_pooling_2d(self.block1_2(h), ksize=2, stride=2)
        h = F.dropout(self.block2_1(h), ratio=0.4)
        h = F.max_pooling_2d(self.block2_2(h), ksize=2, stride=2)
        h = F.dropout(h, ratio=0.5)
        h = F.relu(self.bn_fc1(self.fc1(h)))
        return self.fc2(F.dropout(h, ratio=0.5))


def make_cifar(directory, n):
    """Writes the file that get_cifar10() keeps of the data set once it was downloaded."""
    chainer.dataset.set_dataset_root(directory)
    root = chainer.dataset.get_dataset_directory("pfnet/chainer/cifar")
    rng = np.random.RandomState(0)
    np.savez(
        os.path.join(root, "cifar-10.npz"),
        train_x=rng.randint(0, 256, (n, 3072)).astype(np.uint8),
        train_y=rng.randint(0, 10, n).astype(np.uint8),
        test_x=rng.randint(0, 256, (n // 2, 3072)).astype(np.uint8),
        test_y=rng.randint(0, 10, n // 2).astype(np.uint8),
    )


def main():
    parser = argparse.ArgumentParser(description="Chainer CIFAR example:")
    parser.add_argument("--batchsize", "-b", type=int, default=16)
    parser.add_argument("--learnrate", "-l", type=float, default=0.05)
    parser.add_argument("--epoch", "-e", type=int, default=2)
    parser.add_argument("--out", "-o", default="result")
    parser.add_argument("--early-stopping", type=str, help="Metric to watch for early stopping")
    args = parser.parse_args()

    np.random.seed(0)
    make_cifar(os.path.join(args.out, "data"), 128)
    train, test = get_cifar10()
    model = L.Classifier(VGG(10))
    optimizer = chainer.optimizers.MomentumSGD(args.learnrate)
    optimizer.setup(model)
    optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(5e-4))

    train_iter = chainer.iterators.SerialIterator(train, args.batchsize)
    test_iter = chainer.iterators.SerialIterator(test, args.batchsize, repeat=False, shuffle=False)

    stop_trigger = (args.epoch, "epoch")
    if args.early_stopping:
        stop_trigger = triggers.EarlyStoppingTrigger(
            monitor=args.early_stopping, verbose=True, max_trigger=(args.epoch, "epoch")
        )

    updater = training.updaters.StandardUpdater(train_iter, optimizer, device=-1)
    trainer = training.Trainer(updater, stop_trigger, out=args.out)
    trainer.extend(extensions.Evaluator(test_iter, model, device=-1))
    # Reduce the learning rate by half.
    trainer.extend(extensions.ExponentialShift("lr", 0.5), trigger=(1, "epoch"))
    trainer.extend(extensions.observe_lr(), trigger=(1, "epoch"))
    trainer.extend(
        extensions.snapshot(filename="snapshot_epoch_{.updater.epoch}"),
        trigger=triggers.MaxValueTrigger("validation/main/accuracy", (1, "epoch")),
    )
    trainer.extend(extensions.ParameterStatistics(model.predictor.fc1))
    trainer.extend(extensions.FailOnNonNumber())
    trainer.extend(extensions.LogReport())
    trainer.extend(
        extensions.PrintReport(
            [
                "epoch",
                "lr",
                "main/loss",
                "validation/main/loss",
                "main/accuracy",
                "validation/main/accuracy",
                "elapsed_time",
            ]
        )
    )
    trainer.extend(extensions.ProgressBar(update_interval=10))
    trainer.run()


if __name__ == "__main__":
    main()
