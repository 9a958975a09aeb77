#!/usr/bin/env python
"""Inference alone: weights are loaded, and images come in batches of several sizes."""

import argparse
import os

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np


class BottleNeck(chainer.Chain):
    def __init__(self, ch, mid):
        super(BottleNeck, self).__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(ch, mid, 1, nobias=True)
            self.bn1 = L.BatchNormalization(mid)
            self.conv2 = L.Convolution2D(mid, ch, 3, pad=1, nobias=True)
            self.bn2 = L.BatchNormalization(ch)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(h)) + x)


class ResNet(chainer.Chain):
    def __init__(self, n_class=10):
        super(ResNet, self).__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(3, 16, 3, 2, 1)
            self.res = chainer.ChainList(BottleNeck(16, 8), BottleNeck(16, 8))
            self.fc = L.Linear(16, n_class)

    def forward(self, x):
        h = F.relu(self.conv1(x))
        for block in self.res:
            h = block(h)
        return self.fc(F.average(h, axis=(2, 3)))


def main():
    parser = argparse.ArgumentParser(description="Inference")
    parser.add_argument("--weights", help="made where there are none")
    parser.add_argument("--repeat", "-n", type=int, default=15)
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()

    np.random.seed(0)
    os.makedirs(args.out, exist_ok=True)
    weights = args.weights or os.path.join(args.out, "resnet.npz")
    if not os.path.exists(weights):
        chainer.serializers.save_npz(weights, ResNet())
    model = ResNet()
    chainer.serializers.load_npz(weights, model)

    chainer.global_config.train = False
    chainer.global_config.enable_backprop = False
    labels = []
    for batchsize in (1, 4, 16):
        for _ in range(args.repeat):
            x = np.random.rand(batchsize, 3, 32, 32).astype(np.float32)
            y = F.softmax(model(x))
            labels += y.array.argmax(axis=1).tolist()
    with open(os.path.join(args.out, "labels.txt"), "w") as f:
        f.write("\n".join(map(str, labels)) + "\n")
    print("{} images".format(len(labels)))


if __name__ == "__main__":
    main()
