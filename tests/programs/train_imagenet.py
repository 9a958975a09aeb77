#!/usr/bin/env python
"""Classes of image files, read by forked processes; the network takes (x, t) and gives the loss."""

import argparse
import os
import random

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import training
from chainer.training import extensions
from PIL import Image


class NIN(chainer.Chain):
    """Network-in-Network, with fewer maps."""

    insize = 32

    def __init__(self):
        super(NIN, self).__init__()
        conv_init = chainer.initializers.HeNormal()
        with self.init_scope():
            self.mlpconv1 = L.MLPConvolution2D(None, (12, 12), 5, stride=2, conv_init=conv_init)
            self.mlpconv2 = L.MLPConvolution2D(None, (24, 10), 3, pad=1, conv_init=conv_init)

    def forward(self, x, t):
        h = F.max_pooling_2d(F.relu(self.mlpconv1(x)), 3, stride=2)
        h = self.mlpconv2(F.dropout(h))
        h = F.reshape(F.average_pooling_2d(h, h.shape[2:]), (len(x), 10))
        loss = F.softmax_cross_entropy(h, t)
        chainer.report({"loss": loss, "accuracy": F.accuracy(h, t)}, self)
        return loss


class PreprocessedDataset(chainer.dataset.DatasetMixin):
    def __init__(self, path, root, crop_size):
        self.base = chainer.datasets.LabeledImageDataset(path, root)
        self.crop_size = crop_size

    def __len__(self):
        return len(self.base)

    def get_example(self, i):
        image, label = self.base[i]
        _, h, w = image.shape
        top = random.randint(0, h - self.crop_size - 1)
        left = random.randint(0, w - self.crop_size - 1)
        image = image[:, top : top + self.crop_size, left : left + self.crop_size]
        return (image - 128) * (1.0 / 255.0), label


class TestModeEvaluator(extensions.Evaluator):
    def evaluate(self):
        model = self.get_target("main")
        model.train = False
        ret = super(TestModeEvaluator, self).evaluate()
        model.train = True
        return ret


def make_images(root, n):
    """Writes image files, and lists of their names and labels."""
    os.makedirs(root, exist_ok=True)
    rng = np.random.RandomState(0)
    for name, count in (("train", n), ("val", n // 4)):
        with open(os.path.join(root, name + ".txt"), "w") as f:
            for i in range(count):
                file = "{}_{:04d}.png".format(name, i)
                image = rng.randint(0, 256, (40, 40, 3)).astype(np.uint8)
                Image.fromarray(image).save(os.path.join(root, file))
                f.write("{} {}\n".format(file, rng.randint(10)))


def main():
    parser = argparse.ArgumentParser(description="Learning convnet from ILSVRC2012 dataset")
    parser.add_argument("--batchsize", "-B", type=int, default=16)
    parser.add_argument("--epoch", "-E", type=int, default=3)
    parser.add_argument("--loaderjob", "-j", type=int, default=2, help="Number of processes")
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()
    root = os.path.join(args.out, "images")
    make_images(root, 96)

    model = NIN()
    train = PreprocessedDataset(os.path.join(root, "train.txt"), root, model.insize)
    val = PreprocessedDataset(os.path.join(root, "val.txt"), root, model.insize)
    train_iter = chainer.iterators.MultiprocessIterator(
        train, args.batchsize, n_processes=args.loaderjob
    )
    val_iter = chainer.iterators.MultiprocessIterator(
        val, 24, repeat=False, n_processes=args.loaderjob
    )
    optimizer = chainer.optimizers.MomentumSGD(lr=0.01, momentum=0.9)
    optimizer.setup(model)

    updater = training.updaters.StandardUpdater(train_iter, optimizer, device=-1)
    trainer = training.Trainer(updater, (args.epoch, "epoch"), args.out)
    interval = (3, "iteration")
    trainer.extend(TestModeEvaluator(val_iter, model, device=-1), trigger=interval)
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
