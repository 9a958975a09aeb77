#!/usr/bin/env python
"""Classes of images, made by forked processes; the network takes (x, t) and gives the loss."""

import argparse

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import training
from chainer.training import extensions


class NIN(chainer.Chain):
    """Network-in-Network, with fewer maps."""

    def __init__(self):
        super(NIN, self).__init__()
        with self.init_scope():
            self.mlpconv1 = L.MLPConvolution2D(None, (12, 12), 5, stride=2)
            self.mlpconv2 = L.MLPConvolution2D(None, (24, 10), 3, pad=1)

    def forward(self, x, t):
        h = F.max_pooling_2d(F.relu(self.mlpconv1(x)), 3, stride=2)
        h = self.mlpconv2(F.dropout(h))
        h = F.reshape(F.average_pooling_2d(h, h.shape[2:]), (len(x), 10))
        loss = F.softmax_cross_entropy(h, t)
        chainer.report({"loss": loss, "accuracy": F.accuracy(h, t)}, self)
        return loss


class PreprocessedDataset(chainer.dataset.DatasetMixin):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def get_example(self, i):
        rng = np.random.RandomState(i)
        return rng.rand(3, 32, 32).astype(np.float32), np.int32(rng.randint(10))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batchsize", "-B", type=int, default=16)
    parser.add_argument("--epoch", "-E", type=int, default=3)
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()

    model = NIN()
    train_iter, val_iter = (
        chainer.iterators.MultiprocessIterator(
            PreprocessedDataset(n), batchsize, repeat=repeat, n_processes=2
        )
        for n, batchsize, repeat in ((96, args.batchsize, True), (24, 24, False))
    )
    optimizer = chainer.optimizers.MomentumSGD(lr=0.01, momentum=0.9)
    optimizer.setup(model)

    updater = training.updaters.StandardUpdater(train_iter, optimizer, device=-1)
    trainer = training.Trainer(updater, (args.epoch, "epoch"), args.out)
    interval = (3, "iteration")
    trainer.extend(extensions.Evaluator(val_iter, model, device=-1), trigger=interval)
    trainer.extend(extensions.snapshot(), trigger=interval)
    weights = extensions.snapshot_object(model, "model_iter_{.updater.iteration}")
    trainer.extend(weights, trigger=interval)
    trainer.extend(extensions.LogReport(trigger=(1, "iteration")))
    trainer.extend(extensions.observe_lr(), trigger=(1, "iteration"))
    trainer.run()
    train_iter.finalize()
    val_iter.finalize()


if __name__ == "__main__":
    main()
