#!/usr/bin/env python
"""A GAN with a loop of its own: two optimizers, each updated in every iteration."""

import argparse
import os

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np


class Generator(chainer.Chain):
    def __init__(self, n_hidden, ch=32):
        super(Generator, self).__init__()
        self.n_hidden, self.ch = n_hidden, ch
        with self.init_scope():
            self.l0 = L.Linear(n_hidden, 4 * 4 * ch)
            self.dc1 = L.Deconvolution2D(ch, ch // 2, 4, 2, 1)
            self.dc2 = L.Deconvolution2D(ch // 2, 1, 4, 2, 1)
            self.bn1 = L.BatchNormalization(ch // 2)

    def forward(self, z):
        h = F.reshape(F.relu(self.l0(z)), (len(z), self.ch, 4, 4))
        return F.sigmoid(self.dc2(F.relu(self.bn1(self.dc1(h)))))


class Discriminator(chainer.Chain):
    def __init__(self, ch=16):
        super(Discriminator, self).__init__()
        with self.init_scope():
            self.c0 = L.Convolution2D(None, ch, 4, 2, 1)
            self.c1 = L.Convolution2D(None, ch, 4, 2, 1)
            self.l2 = L.Linear(None, 1)

    def forward(self, x):
        return self.l2(F.leaky_relu(self.c1(F.leaky_relu(self.c0(x)))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batchsize", "-b", type=int, default=16)
    parser.add_argument("--epoch", "-e", type=int, default=3)
    parser.add_argument("--n_hidden", "-n", type=int, default=32)
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()

    np.random.seed(0)
    gen, dis = Generator(args.n_hidden), Discriminator()
    opt_gen = chainer.optimizers.Adam(alpha=2e-4, beta1=0.5).setup(gen)
    opt_dis = chainer.optimizers.Adam(alpha=2e-4, beta1=0.5).setup(dis)
    images = np.random.rand(128, 1, 16, 16).astype(np.float32)
    iterator = chainer.iterators.SerialIterator(images, args.batchsize)

    while iterator.epoch < args.epoch:
        x_real = np.stack(iterator.next())
        z = np.random.uniform(-1, 1, (len(x_real), args.n_hidden)).astype(np.float32)
        x_fake = gen(z)
        y_fake = dis(x_fake)
        y_real = dis(x_real)

        loss_dis = F.mean(F.softplus(-y_real)) + F.mean(F.softplus(y_fake))
        loss_gen = F.mean(F.softplus(-y_fake))
        dis.cleargrads()
        loss_dis.backward()
        opt_dis.update()
        gen.cleargrads()
        loss_gen.backward()
        opt_gen.update()
        if iterator.is_new_epoch:
            print(
                "epoch {}: gen loss {:.4f}, dis loss {:.4f}".format(
                    iterator.epoch, float(loss_gen.array), float(loss_dis.array)
                )
            )

    os.makedirs(args.out, exist_ok=True)
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        np.save(os.path.join(args.out, "images.npy"), gen(z).array)


if __name__ == "__main__":
    main()
