#!/usr/bin/env python
"""DCGAN: two networks with an optimizer each, an updater of its own, and images as an extension."""

import argparse
import os

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import training
from chainer.training import extensions
from PIL import Image


def add_noise(device, h, sigma=0.2):
    if chainer.config.train:
        return h + device.xp.array(sigma * np.random.randn(*h.shape), h.dtype)
    return h


class Generator(chainer.Chain):
    def __init__(self, n_hidden, bottom_width=4, ch=32):
        super(Generator, self).__init__()
        self.n_hidden = n_hidden
        self.ch = ch
        self.bottom_width = bottom_width
        w = chainer.initializers.Normal(0.02)
        with self.init_scope():
            self.l0 = L.Linear(n_hidden, bottom_width * bottom_width * ch, initialW=w)
            self.dc1 = L.Deconvolution2D(ch, ch // 2, 4, 2, 1, initialW=w)
            self.dc2 = L.Deconvolution2D(ch // 2, 3, 4, 2, 1, initialW=w)
            self.bn0 = L.BatchNormalization(bottom_width * bottom_width * ch)
            self.bn1 = L.BatchNormalization(ch // 2)

    def make_hidden(self, batchsize):
        return np.random.uniform(-1, 1, (batchsize, self.n_hidden, 1, 1)).astype(np.float32)

    def forward(self, z):
        h = F.reshape(
            F.relu(self.bn0(self.l0(z))), (len(z), self.ch, self.bottom_width, self.bottom_width)
        )
        h = F.relu(self.bn1(self.dc1(h)))
        return F.sigmoid(self.dc2(h))


class Discriminator(chainer.Chain):
    def __init__(self, ch=32):
        super(Discriminator, self).__init__()
        w = chainer.initializers.Normal(0.02)
        with self.init_scope():
            self.c0_0 = L.Convolution2D(3, ch // 2, 3, 1, 1, initialW=w)
            self.c0_1 = L.Convolution2D(ch // 2, ch, 4, 2, 1, initialW=w)
            self.l4 = L.Linear(None, 1, initialW=w)
            self.bn0_1 = L.BatchNormalization(ch, use_gamma=False)

    def forward(self, x):
        h = F.leaky_relu(self.c0_0(add_noise(self.device, x)))
        h = F.leaky_relu(add_noise(self.device, self.bn0_1(self.c0_1(h))))
        return self.l4(h)


class DCGANUpdater(chainer.training.updaters.StandardUpdater):
    def __init__(self, *args, **kwargs):
        self.gen, self.dis = kwargs.pop("models")
        super(DCGANUpdater, self).__init__(*args, **kwargs)

    def loss_dis(self, dis, y_fake, y_real):
        batchsize = len(y_fake)
        loss = (F.sum(F.softplus(-y_real)) + F.sum(F.softplus(y_fake))) / batchsize
        chainer.report({"loss": loss}, dis)
        return loss

    def loss_gen(self, gen, y_fake):
        loss = F.sum(F.softplus(-y_fake)) / len(y_fake)
        chainer.report({"loss": loss}, gen)
        return loss

    def update_core(self):
        gen_optimizer = self.get_optimizer("gen")
        dis_optimizer = self.get_optimizer("dis")
        batch = self.get_iterator("main").next()
        x_real = chainer.Variable(self.converter(batch, self.device)) / 255.0
        gen, dis = self.gen, self.dis
        y_real = dis(x_real)
        z = chainer.Variable(self.device.xp.asarray(gen.make_hidden(len(batch))))
        x_fake = gen(z)
        y_fake = dis(x_fake)
        dis_optimizer.update(self.loss_dis, dis, y_fake, y_real)
        gen_optimizer.update(self.loss_gen, gen, y_fake)


def out_generated_image(gen, rows, cols, seed, dst):
    @chainer.training.make_extension()
    def make_image(trainer):
        np.random.seed(seed)
        z = chainer.Variable(gen.make_hidden(rows * cols))
        with chainer.using_config("train", False):
            x = gen(z)
        np.random.seed()
        x = np.asarray(np.clip(x.array * 255, 0.0, 255.0), dtype=np.uint8)
        _, _, h, w = x.shape
        x = x.reshape((rows, cols, 3, h, w)).transpose(0, 3, 1, 4, 2)
        preview_dir = "{}/preview".format(dst)
        if not os.path.exists(preview_dir):
            os.makedirs(preview_dir)
        path = "{}/image{:0>8}.png".format(preview_dir, trainer.updater.iteration)
        Image.fromarray(x.reshape((rows * h, cols * w, 3))).save(path)

    return make_image


def main():
    parser = argparse.ArgumentParser(description="Chainer example: DCGAN")
    parser.add_argument("--batchsize", "-b", type=int, default=16)
    parser.add_argument("--epoch", "-e", type=int, default=2)
    parser.add_argument("--out", "-o", default="result")
    parser.add_argument("--n_hidden", "-n", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--snapshot_interval", type=int, default=8)
    parser.add_argument("--display_interval", type=int, default=4)
    args = parser.parse_args()

    np.random.seed(args.seed)
    gen = Generator(n_hidden=args.n_hidden)
    dis = Discriminator()

    def make_optimizer(model, alpha=0.0002, beta1=0.5):
        optimizer = chainer.optimizers.Adam(alpha=alpha, beta1=beta1)
        optimizer.setup(model)
        optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(0.0001), "hook_dec")
        return optimizer

    opt_gen = make_optimizer(gen)
    opt_dis = make_optimizer(dis)
    train = np.random.randint(0, 256, (128, 3, 16, 16)).astype(np.float32)
    train_iter = chainer.iterators.SerialIterator(train, args.batchsize)
    updater = DCGANUpdater(
        models=(gen, dis),
        iterator=train_iter,
        optimizer={"gen": opt_gen, "dis": opt_dis},
        device=-1,
    )
    trainer = training.Trainer(updater, (args.epoch, "epoch"), out=args.out)
    snapshot_interval = (args.snapshot_interval, "iteration")
    display_interval = (args.display_interval, "iteration")
    trainer.extend(
        extensions.snapshot(filename="snapshot_iter_{.updater.iteration}.npz"),
        trigger=snapshot_interval,
    )
    trainer.extend(
        extensions.snapshot_object(gen, "gen_iter_{.updater.iteration}.npz"),
        trigger=snapshot_interval,
    )
    trainer.extend(
        extensions.snapshot_object(dis, "dis_iter_{.updater.iteration}.npz"),
        trigger=snapshot_interval,
    )
    trainer.extend(extensions.LogReport(trigger=display_interval))
    trainer.extend(
        extensions.PrintReport(["epoch", "iteration", "gen/loss", "dis/loss"]),
        trigger=display_interval,
    )
    trainer.extend(extensions.ProgressBar(update_interval=4))
    trainer.extend(out_generated_image(gen, 4, 4, args.seed, args.out), trigger=snapshot_interval)
    trainer.run()


if __name__ == "__main__":
    main()
