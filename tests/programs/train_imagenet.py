#!/usr/bin/env python
"""Classes of image files, read by other processes; networks take (x, t) and return the loss."""

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


class Alex(chainer.Chain):
    """AlexNet with small kernels."""

    insize = 32

    def __init__(self):
        super(Alex, self).__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(None, 12, 5, stride=2)
            self.conv2 = L.Convolution2D(None, 24, 3, pad=1)
            self.fc3 = L.Linear(None, 64)
            self.fc4 = L.Linear(None, 10)

    def forward(self, x, t):
        h = F.max_pooling_2d(F.local_response_normalization(F.relu(self.conv1(x))), 3, stride=2)
        h = F.max_pooling_2d(F.relu(self.conv2(h)), 3, stride=2)
        h = self.fc4(F.dropout(F.relu(self.fc3(h))))
        loss = F.softmax_cross_entropy(h, t)
        chainer.report({"loss": loss, "accuracy": F.accuracy(h, t)}, self)
        return loss


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
    def __init__(self, path, root, mean, crop_size, random=True):
        self.base = chainer.datasets.LabeledImageDataset(path, root)
        self.mean = mean.astype(np.float32)
        self.crop_size = crop_size
        self.random = random

    def __len__(self):
        return len(self.base)

    def get_example(self, i):
        crop_size = self.crop_size
        image, label = self.base[i]
        _, h, w = image.shape
        if self.random:
            top = random.randint(0, h - crop_size - 1)
            left = random.randint(0, w - crop_size - 1)
            if random.randint(0, 1):
                image = image[:, :, ::-1]
        else:
            top = (h - crop_size) // 2
            left = (w - crop_size) // 2
        image = image[:, top : top + crop_size, left : left + crop_size]
        image = (image - self.mean[:, None, None]) * (1.0 / 255.0)
        return image, label


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
    archs = {"alex": Alex, "nin": NIN}
    parser = argparse.ArgumentParser(description="Learning convnet from ILSVRC2012 dataset")
    parser.add_argument("--arch", "-a", choices=archs.keys(), default="nin")
    parser.add_argument("--batchsize", "-B", type=int, default=16)
    parser.add_argument("--epoch", "-E", type=int, default=3)
    parser.add_argument("--root", "-R", help="Root directory path of image files")
    parser.add_argument(
        "--loaderjob", "-j", type=int, default=2, help="Number of parallel data loading processes"
    )
    parser.add_argument("--val_batchsize", "-b", type=int, default=24)
    parser.add_argument("--out", "-o", default="result")
    parser.add_argument("--test", action="store_true")
    args = parser.parse_args()
    root = args.root or os.path.join(args.out, "images")
    make_images(root, 96)

    model = archs[args.arch]()
    mean = np.full(3, 128)
    train = PreprocessedDataset(os.path.join(root, "train.txt"), root, mean, model.insize)
    val = PreprocessedDataset(os.path.join(root, "val.txt"), root, mean, model.insize, False)
    train_iter = chainer.iterators.MultiprocessIterator(
        train, args.batchsize, n_processes=args.loaderjob
    )
    val_iter = chainer.iterators.MultiprocessIterator(
        val, args.val_batchsize, repeat=False, n_processes=args.loaderjob
    )
    optimizer = chainer.optimizers.MomentumSGD(lr=0.01, momentum=0.9)
    optimizer.setup(model)

    updater = training.updaters.StandardUpdater(train_iter, optimizer, device=-1)
    trainer = training.Trainer(updater, (args.epoch, "epoch"), args.out)
    val_interval = (3 if args.test else 6), "iteration"
    log_interval = (1 if args.test else 3), "iteration"
    trainer.extend(TestModeEvaluator(val_iter, model, device=-1), trigger=val_interval)
    trainer.extend(extensions.snapshot(), trigger=val_interval)
    trainer.extend(
        extensions.snapshot_object(model, "model_iter_{.updater.iteration}"), trigger=val_interval
    )
    trainer.extend(extensions.LogReport(trigger=log_interval))
    trainer.extend(extensions.observe_lr(), trigger=log_interval)
    trainer.extend(
        extensions.PrintReport(
            [
                "epoch",
                "iteration",
                "main/loss",
                "validation/main/loss",
                "main/accuracy",
                "validation/main/accuracy",
                "lr",
            ]
        ),
        trigger=log_interval,
    )
    trainer.extend(extensions.ProgressBar(update_interval=3))
    trainer.run()
    train_iter.finalize()
    val_iter.finalize()


if __name__ == "__main__":
    main()
