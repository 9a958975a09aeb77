#!/usr/bin/env python
"""Segmentation by a U-Net: maps of the encoder go on to the decoder, loaded by threads."""

import argparse

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import training
from chainer.training import extensions


class CBR(chainer.Chain):
    """Convolution or deconvolution, batch normalization, activation."""

    def __init__(self, ch0, ch1, sample="down", activation=F.relu, dropout=False):
        super(CBR, self).__init__()
        self.activation = activation
        self.dropout = dropout
        w = chainer.initializers.Normal(0.02)
        with self.init_scope():
            link = L.Convolution2D if sample == "down" else L.Deconvolution2D
            self.c = link(ch0, ch1, 4, 2, 1, initialW=w)
            self.bn = L.BatchNormalization(ch1)

    def forward(self, x):
        h = self.bn(self.c(x))
        if self.dropout:
            h = F.dropout(h)
        return self.activation(h)


class UNet(chainer.Chain):
    def __init__(self, in_ch, n_classes, width):
        super(UNet, self).__init__()
        with self.init_scope():
            self.c0 = L.Convolution2D(in_ch, width, 3, 1, 1)
            self.down1 = CBR(width, 2 * width, activation=F.leaky_relu)
            self.down2 = CBR(2 * width, 4 * width, activation=F.leaky_relu)
            self.up2 = CBR(4 * width, 2 * width, sample="up", dropout=True)
            self.up1 = CBR(4 * width, width, sample="up")
            self.out = L.Convolution2D(2 * width, n_classes, 3, 1, 1)

    def forward(self, x):
        h0 = F.leaky_relu(self.c0(x))
        h1 = self.down1(h0)
        h = self.up2(self.down2(h1))
        h = self.up1(F.concat([h, h1]))
        return self.out(F.concat([h, h0]))


class Shapes(chainer.dataset.DatasetMixin):
    """Squares in noise, and where they are."""

    def __init__(self, n, size=32):
        self.n, self.size = n, size

    def __len__(self):
        return self.n

    def get_example(self, i):
        rng = np.random.RandomState(i)
        label = np.zeros((self.size, self.size), np.int32)
        top, left = rng.randint(0, self.size - 8, 2)
        label[top : top + 8, left : left + 8] = 1
        image = rng.rand(3, self.size, self.size) + label
        return image.astype(np.float32), label


def pixel_accuracy(y, t):
    return F.accuracy(y, t, ignore_label=-1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batchsize", "-b", type=int, default=8)
    parser.add_argument("--epoch", "-e", type=int, default=2)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--loaderjob", "-j", type=int, default=2)
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()

    train, test = Shapes(80), Shapes(16)
    model = L.Classifier(UNet(3, 2, args.width), accfun=pixel_accuracy)
    optimizer = chainer.optimizers.Adam(alpha=0.002, beta1=0.5)
    optimizer.setup(model)
    train_iter = chainer.iterators.MultithreadIterator(
        train, args.batchsize, n_threads=args.loaderjob
    )
    test_iter = chainer.iterators.SerialIterator(test, args.batchsize, repeat=False, shuffle=False)
    updater = training.updaters.StandardUpdater(train_iter, optimizer)
    trainer = training.Trainer(updater, (args.epoch, "epoch"), out=args.out)
    trainer.extend(extensions.Evaluator(test_iter, model))
    trainer.extend(extensions.LinearShift("alpha", (0.002, 0.001), (0, 20)))
    trainer.extend(extensions.snapshot_object(model, "model_{.updater.epoch}.npz"))
    trainer.extend(extensions.LogReport())
    trainer.extend(
        extensions.PrintReport(["epoch", "main/loss", "main/accuracy", "validation/main/accuracy"])
    )
    trainer.run()
    train_iter.finalize()


if __name__ == "__main__":
    main()
