#!/usr/bin/env python
"""DCGAN: two networks with an optimizer each, an updater of its own, and images by processes."""

import argparse

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import training
from chainer.training import extensions


class Generator(chainer.Chain):
    def __init__(self):
        super(Generator, self).__init__()
        with self.init_scope():
            self.l0 = L.Linear(50, 512)
            self.dc1 = L.Deconvolution2D(32, 16, 4, 2, 1)
            self.dc2 = L.Deconvolution2D(16, 3, 4, 2, 1)
            self.bn0 = L.BatchNormalization(512)
            self.bn1 = L.BatchNormalization(16)

    def make_hidden(self, batchsize):
        return np.random.uniform(-1, 1, (batchsize, 50, 1, 1)).astype(np.float32)

    def forward(self, z):
        h = F.reshape(F.relu(self.bn0(self.l0(z))), (len(z), 32, 4, 4))
        h = F.relu(self.bn1(self.dc1(h)))
        return F.sigmoid(self.dc2(h))


class Discriminator(chainer.Chain):
    def __init__(self):
        super(Discriminator, self).__init__()
        with self.init_scope():
            self.c0_0 = L.Convolution2D(3, 16, 3, 1, 1)
            self.c0_1 = L.Convolution2D(16, 32, 4, 2, 1)
            self.l4 = L.Linear(None, 1)
            self.bn0_1 = L.BatchNormalization(32, use_gamma=False)

    def forward(self, x):
        h = F.leaky_relu(self.c0_0(x))
        return self.l4(F.leaky_relu(self.bn0_1(self.c0_1(h))))


class DCGANUpdater(chainer.training.updaters.StandardUpdater):
    def loss_dis(self, dis, y_fake, y_real):
        loss = (F.sum(F.softplus(-y_real)) + F.sum(F.softplus(y_fake))) / len(y_fake)
        chainer.report({"loss": loss}, dis)
        return loss

    def loss_gen(self, gen, y_fake):
        loss = F.sum(F.softplus(-y_fake)) / len(y_fake)
        chainer.report({"loss": loss}, gen)
        return loss

    def update_core(self):
        batch = self.get_iterator("main").next()
        x_real = chainer.Variable(self.converter(batch, self.device)) / 255.0
        gen, dis = (self.get_optimizer(name).target for name in ("gen", "dis"))
        y_real = dis(x_real)
        y_fake = dis(gen(chainer.Variable(gen.make_hidden(len(batch)))))
        self.get_optimizer("dis").update(self.loss_dis, dis, y_fake, y_real)
        self.get_optimizer("gen").update(self.loss_gen, gen, y_fake)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batchsize", "-b", type=int, default=16)
    parser.add_argument("--epoch", "-e", type=int, default=2)
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()

    np.random.seed(0)
    models = {"gen": Generator(), "dis": Discriminator()}
    optimizers = {}
    for name, model in models.items():
        optimizers[name] = chainer.optimizers.Adam(alpha=0.0002, beta1=0.5).setup(model)
        optimizers[name].add_hook(chainer.optimizer_hooks.WeightDecay(0.0001), "hook_dec")
    train = np.random.randint(0, 256, (128, 3, 16, 16)).astype(np.float32)
    iterator = chainer.iterators.MultiprocessIterator(train, args.batchsize, n_processes=2)
    updater = DCGANUpdater(iterator, optimizers, device=-1)
    trainer = training.Trainer(updater, (args.epoch, "epoch"), out=args.out)
    saves, shows = (8, "iteration"), (4, "iteration")
    whole = extensions.snapshot(filename="snapshot_iter_{.updater.iteration}.npz")
    trainer.extend(whole, trigger=saves)
    for name, model in models.items():
        weights = extensions.snapshot_object(model, name + "_iter_{.updater.iteration}.npz")
        trainer.extend(weights, trigger=saves)
    trainer.extend(extensions.LogReport(trigger=shows))
    trainer.extend(extensions.PrintReport(["iteration", "gen/loss", "dis/loss"]), trigger=shows)
    trainer.extend(extensions.ProgressBar(update_interval=4))
    trainer.run()
    iterator.finalize()


if __name__ == "__main__":
    main()
