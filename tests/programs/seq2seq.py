#!/usr/bin/env python
"""Translation by NStepLSTM: lists of sentences of different length, and a converter for them."""

import argparse

import chainer
import chainer.functions as F
import chainer.links as L
import numpy
from chainer import training
from chainer.training import extensions

EOS = 1
N_VOCAB = 60


def sequence_embed(embed, xs):
    x_section = numpy.cumsum([len(x) for x in xs[:-1]])
    return F.split_axis(embed(F.concat(xs, axis=0)), x_section, 0)


class Seq2seq(chainer.Chain):
    def __init__(self, n_layers, n_units):
        super(Seq2seq, self).__init__()
        with self.init_scope():
            self.embed_x = L.EmbedID(N_VOCAB, n_units)
            self.embed_y = L.EmbedID(N_VOCAB, n_units)
            self.encoder = L.NStepLSTM(n_layers, n_units, n_units, 0.1)
            self.decoder = L.NStepLSTM(n_layers, n_units, n_units, 0.1)
            self.W = L.Linear(n_units, N_VOCAB)

    def forward(self, xs, ys):
        eos = self.xp.array([EOS], numpy.int32)
        exs = sequence_embed(self.embed_x, [x[::-1] for x in xs])
        eys = sequence_embed(self.embed_y, [F.concat([eos, y], axis=0) for y in ys])
        hx, cx, _ = self.encoder(None, None, exs)
        _, _, os = self.decoder(hx, cx, eys)
        words = F.concat([F.concat([y, eos], axis=0) for y in ys], axis=0)
        found = self.W(F.concat(os, axis=0))
        loss = F.sum(F.softmax_cross_entropy(found, words, reduce="no")) / len(xs)
        chainer.report({"loss": loss}, self)
        return loss

    def translate(self, xs, max_length=8):
        batch = len(xs)
        with chainer.no_backprop_mode(), chainer.using_config("train", False):
            exs = sequence_embed(self.embed_x, [x[::-1] for x in xs])
            h, c, _ = self.encoder(None, None, exs)
            ys = self.xp.full(batch, EOS, numpy.int32)
            result = []
            for _ in range(max_length):
                eys = F.split_axis(self.embed_y(ys), batch, 0)
                h, c, ys = self.decoder(h, c, eys)
                wy = self.W(F.concat(ys, axis=0))
                ys = self.xp.argmax(wy.array, axis=1).astype(numpy.int32)
                result.append(ys)
        return self.xp.stack(result).T


@chainer.dataset.converter()
def convert(batch, device):
    return {
        "xs": [device.send(x) for x, _ in batch],
        "ys": [device.send(y) for _, y in batch],
    }


class CalculateBleu(chainer.training.Extension):
    """Counts words that are the same at the same place, in place of BLEU."""

    trigger = 1, "epoch"
    priority = chainer.training.PRIORITY_WRITER

    def __init__(self, model, test_data, key):
        self.model = model
        self.test_data = test_data
        self.key = key

    def __call__(self, trainer):
        sources, targets = zip(*self.test_data)
        same = 0
        for y, t in zip(self.model.translate(list(sources)), targets):
            n = min(len(y), len(t))
            same += int((y[:n] == t[:n]).sum())
        chainer.report({self.key: same / sum(len(t) for t in targets)})


def make_sentences(n):
    rng = numpy.random.RandomState(0)
    sentences = [rng.randint(2, N_VOCAB, rng.randint(3, 9)).astype(numpy.int32) for _ in range(n)]
    return [(x, x) for x in sentences]


def main():
    parser = argparse.ArgumentParser(description="Chainer example: seq2seq")
    parser.add_argument("--batchsize", "-b", type=int, default=20)
    parser.add_argument("--epoch", "-e", type=int, default=2)
    parser.add_argument("--unit", "-u", type=int, default=48)
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()

    numpy.random.seed(0)
    pairs = make_sentences(140)
    train_data, test_data = pairs[:100], pairs[100:]
    model = Seq2seq(2, args.unit)
    optimizer = chainer.optimizers.Adam()
    optimizer.setup(model)
    train_iter = chainer.iterators.SerialIterator(train_data, args.batchsize)
    updater = training.updaters.StandardUpdater(train_iter, optimizer, converter=convert, device=-1)
    trainer = training.Trainer(updater, (args.epoch, "epoch"), out=args.out)
    shows = (5, "iteration")
    trainer.extend(extensions.LogReport(trigger=shows))
    trainer.extend(extensions.PrintReport(["iteration", "main/loss", "bleu"]), trigger=shows)
    trainer.extend(extensions.snapshot(), trigger=(1, "epoch"))

    trainer.extend(CalculateBleu(model, test_data, "bleu"), trigger=shows)
    trainer.run()


if __name__ == "__main__":
    main()
