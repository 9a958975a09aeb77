#!/usr/bin/env python
"""A variational autoencoder: the updater takes a loss function that is no link."""

import argparse
import os

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import training
from chainer.training import extensions


class VAE(chainer.Chain):
    """Variational AutoEncoder."""

    def __init__(self, n_in, n_latent, n_h):
        super(VAE, self).__init__()
        with self.init_scope():
            # encoder
            self.le1 = L.Linear(n_in, n_h)
            self.le2_mu = L.Linear(n_h, n_latent)
            self.le2_ln_var = L.Linear(n_h, n_latent)
            # decoder
            self.ld1 = L.Linear(n_latent, n_h)
            self.ld2 = L.Linear(n_h, n_in)

    def forward(self, x, sigmoid=True):
        return self.decode(self.encode(x)[0], sigmoid)

    def encode(self, x):
        h1 = F.tanh(self.le1(x))
        return self.le2_mu(h1), self.le2_ln_var(h1)

    def decode(self, z, sigmoid=True):
        h2 = self.ld2(F.tanh(self.ld1(z)))
        return F.sigmoid(h2) if sigmoid else h2

    def get_loss_func(self, beta=1.0, k=1):
        def lf(x):
            mu, ln_var = self.encode(x)
            batchsize = len(mu)
            rec_loss = 0
            for _ in range(k):
                z = F.gaussian(mu, ln_var)
                rec_loss += F.bernoulli_nll(x, self.decode(z, sigmoid=False)) / (k * batchsize)
            self.rec_loss = rec_loss
            self.loss = self.rec_loss + beta * F.gaussian_kl_divergence(mu, ln_var) / batchsize
            chainer.report({"rec_loss": rec_loss, "loss": self.loss}, observer=self)
            return self.loss

        return lf


def main():
    parser = argparse.ArgumentParser(description="Chainer example: VAE")
    parser.add_argument("--epoch", "-e", default=3, type=int)
    parser.add_argument("--dimz", "-z", default=20, type=int)
    parser.add_argument("--batchsize", "-b", type=int, default=50)
    parser.add_argument("--beta", type=float, default=1.0)
    parser.add_argument("--k", "-k", default=2, type=int)
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()

    np.random.seed(0)
    model = VAE(784, args.dimz, 128)
    optimizer = chainer.optimizers.Adam()
    optimizer.setup(model)
    images = (np.random.rand(600, 784) > 0.7).astype(np.float32)
    train, test = chainer.datasets.split_dataset(images, 500)
    train_iter = chainer.iterators.SerialIterator(train, args.batchsize)
    test_iter = chainer.iterators.SerialIterator(test, args.batchsize, repeat=False, shuffle=False)

    updater = training.updaters.StandardUpdater(
        train_iter, optimizer, device=-1, loss_func=model.get_loss_func(args.beta, args.k)
    )
    trainer = training.Trainer(updater, (args.epoch, "epoch"), out=args.out)
    trainer.extend(
        extensions.Evaluator(
            test_iter, model, device=-1, eval_func=model.get_loss_func(args.beta, k=10)
        )
    )
    trainer.extend(extensions.snapshot(), trigger=(args.epoch, "epoch"))
    trainer.extend(extensions.LogReport())
    trainer.extend(
        extensions.PrintReport(
            ["epoch", "main/loss", "validation/main/loss", "main/rec_loss", "elapsed_time"]
        )
    )
    trainer.run()

    with chainer.using_config("train", False), chainer.no_backprop_mode():
        x1 = model(chainer.Variable(np.asarray(train[:9])))
        z = np.random.normal(0, 1, (9, args.dimz)).astype(np.float32)
        sampled = model.decode(chainer.Variable(z))
    np.savez(os.path.join(args.out, "images.npz"), train=x1.array, sampled=sampled.array)


if __name__ == "__main__":
    main()
