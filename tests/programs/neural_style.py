#!/usr/bin/env python
"""Style transfer: the image is the parameter that is learned, through a network that stays."""

import argparse
import os

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import optimizers
from PIL import Image


class Features(chainer.Chain):
    """The lower layers of a VGG with few maps."""

    def __init__(self):
        super(Features, self).__init__(
            conv1_1=L.Convolution2D(3, 8, 3, stride=1, pad=1),
            conv1_2=L.Convolution2D(8, 8, 3, stride=1, pad=1),
            conv2_1=L.Convolution2D(8, 16, 3, stride=1, pad=1),
        )

    def __call__(self, x):
        y1 = self.conv1_2(F.relu(self.conv1_1(x)))
        y2 = self.conv2_1(F.average_pooling_2d(F.relu(y1), 2, stride=2))
        return [F.relu(y1), F.relu(y2)]


def get_matrix(y):
    ch, wd, ht = y.shape[1:]
    gogh_y = F.reshape(y, (ch, wd * ht))
    return F.matmul(gogh_y, gogh_y, transb=True) / np.float32(ch * wd * ht)


def make_picture(path, size, seed):
    pixels = np.random.RandomState(seed).randint(0, 256, (size, size, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path)


def open_picture(path):
    with Image.open(path) as f:
        image = np.asarray(f.convert("RGB"), dtype=np.float32)
    return image.transpose(2, 0, 1)[None] / 255


def main():
    parser = argparse.ArgumentParser(description="A Neural Algorithm of Artistic Style")
    parser.add_argument("--iter", "-i", default=40, type=int)
    parser.add_argument("--lr", default=0.02, type=float)
    parser.add_argument("--lam", default=0.005, type=float)
    parser.add_argument("--width", "-w", default=32, type=int)
    parser.add_argument("--out_dir", "--out", default="result")
    args = parser.parse_args()

    os.makedirs(args.out_dir, exist_ok=True)
    pictures = [os.path.join(args.out_dir, name + ".png") for name in ("content", "style")]
    for seed, path in enumerate(pictures):
        make_picture(path, args.width, seed)
    content, style = [open_picture(path) for path in pictures]

    nn = Features()
    with chainer.no_backprop_mode():
        mid_orig = [y.array for y in nn(content)]
        style_mats = [get_matrix(y).array for y in nn(style)]

    img_gen = L.Parameter(np.random.RandomState(2).rand(*content.shape).astype(np.float32))
    optimizer = optimizers.Adam(alpha=args.lr)
    optimizer.setup(img_gen)
    for i in range(args.iter):
        img_gen.cleargrads()
        nn.cleargrads()
        y = nn(img_gen.W)
        loss = chainer.Variable(np.zeros((), np.float32))
        for layer in range(len(y)):
            loss += np.float32(args.lam) * F.mean_squared_error(y[layer], mid_orig[layer])
            loss += F.mean_squared_error(get_matrix(y[layer]), style_mats[layer])
        loss.backward()
        optimizer.update()
        img_gen.W.array[...] = np.clip(img_gen.W.array, 0, 1)
        if i % 10 == 0:
            print("iter {}, loss {:.6f}".format(i, float(loss.array)))
    pixels = (img_gen.W.array[0].transpose(1, 2, 0) * 255).astype(np.uint8)
    Image.fromarray(pixels).save(os.path.join(args.out_dir, "im.png"))


if __name__ == "__main__":
    main()
