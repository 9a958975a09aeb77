#!/usr/bin/env python
"""Vectors of words: negative sampling over windows that an iterator of its own makes."""

import argparse
import collections
import os

import chainer
import chainer.functions as F
import chainer.initializers as I
import chainer.links as L
import numpy as np
from chainer import reporter, training
from chainer.training import extensions


class SkipGram(chainer.Chain):
    """Definition of Skip-gram Model"""

    def __init__(self, n_vocab, n_units, loss_func):
        super(SkipGram, self).__init__()
        with self.init_scope():
            self.embed = L.EmbedID(n_vocab, n_units, initialW=I.Uniform(1.0 / n_units))
            self.loss_func = loss_func

    def forward(self, x, contexts):
        e = self.embed(contexts)
        batch_size, n_context, n_units = e.shape
        x = F.broadcast_to(x[:, None], (batch_size, n_context))
        e = F.reshape(e, (batch_size * n_context, n_units))
        x = F.reshape(x, (batch_size * n_context,))
        loss = self.loss_func(e, x)
        reporter.report({"loss": loss}, self)
        return loss


class ContinuousBoW(chainer.Chain):
    """Definition of Continuous Bag of Words Model"""

    def __init__(self, n_vocab, n_units, loss_func):
        super(ContinuousBoW, self).__init__()
        with self.init_scope():
            self.embed = L.EmbedID(n_vocab, n_units, initialW=I.Uniform(1.0 / n_units))
            self.loss_func = loss_func

    def forward(self, x, contexts):
        e = self.embed(contexts)
        h = F.sum(e, axis=1) * (1.0 / contexts.shape[1])
        loss = self.loss_func(h, x)
        reporter.report({"loss": loss}, self)
        return loss


class WindowIterator(chainer.dataset.Iterator):
    """Gives a centre word and those around it, in windows whose width is drawn anew."""

    def __init__(self, dataset, window, batch_size, repeat=True):
        self.dataset = np.array(dataset, np.int32)
        self.window = window
        self.batch_size = batch_size
        self._repeat = repeat
        self.order = np.random.permutation(len(dataset) - window * 2).astype(np.int32) + window
        self.current_position = 0
        self.epoch = 0
        self.is_new_epoch = False

    def __next__(self):
        if not self._repeat and self.epoch > 0:
            raise StopIteration
        i = self.current_position
        i_end = i + self.batch_size
        position = self.order[i:i_end]
        w = np.random.randint(self.window - 1) + 1
        offset = np.concatenate([np.arange(-w, 0), np.arange(1, w + 1)])
        contexts = self.dataset.take(position[:, None] + offset[None, :])
        center = self.dataset.take(position)
        if i_end >= len(self.order):
            np.random.shuffle(self.order)
            self.epoch += 1
            self.is_new_epoch = True
            self.current_position = 0
        else:
            self.is_new_epoch = False
            self.current_position = i_end
        return center, contexts

    @property
    def epoch_detail(self):
        return self.epoch + float(self.current_position) / len(self.order)

    def serialize(self, serializer):
        self.current_position = serializer("current_position", self.current_position)
        self.epoch = serializer("epoch", self.epoch)
        self.is_new_epoch = serializer("is_new_epoch", self.is_new_epoch)
        if self.order is not None:
            serializer("order", self.order)


@chainer.dataset.converter()
def convert(batch, device):
    center, contexts = batch
    return device.send(center), device.send(contexts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--unit", "-u", default=32, type=int)
    parser.add_argument("--window", "-w", default=5, type=int)
    parser.add_argument("--batchsize", "-b", type=int, default=100)
    parser.add_argument("--epoch", "-e", default=3, type=int)
    parser.add_argument("--model", "-m", choices=["skipgram", "cbow"], default="skipgram")
    parser.add_argument("--negative-size", default=5, type=int)
    parser.add_argument("--out-type", "-t", choices=["hsm", "ns"], default="ns")
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()

    np.random.seed(0)
    n_vocab = 120
    # Words by how often they come, as in a text.
    text = (n_vocab * np.random.power(0.4, 2500)).astype(np.int32)
    train, val = text[:2000], text[2000:]
    counts = collections.Counter(int(word) for word in train)
    counts.update(dict.fromkeys(range(n_vocab), 0))
    if args.out_type == "hsm":
        tree = L.BinaryHierarchicalSoftmax.create_huffman_tree(counts)
        loss_func = L.BinaryHierarchicalSoftmax(args.unit, tree)
        loss_func.W.array[...] = 0
    else:
        cs = [counts[w] for w in range(len(counts))]
        loss_func = L.NegativeSampling(args.unit, cs, args.negative_size)
        loss_func.W.array[...] = 0
    networks = {"skipgram": SkipGram, "cbow": ContinuousBoW}
    model = networks[args.model](n_vocab, args.unit, loss_func)
    optimizer = chainer.optimizers.Adam()
    optimizer.setup(model)

    train_iter = WindowIterator(train, args.window, args.batchsize)
    val_iter = WindowIterator(val, args.window, args.batchsize, repeat=False)
    updater = training.updaters.StandardUpdater(train_iter, optimizer, converter=convert, device=-1)
    trainer = training.Trainer(updater, (args.epoch, "epoch"), out=args.out)
    trainer.extend(extensions.Evaluator(val_iter, model, converter=convert, device=-1))
    trainer.extend(extensions.LogReport())
    trainer.extend(extensions.PrintReport(["epoch", "main/loss", "validation/main/loss"]))
    trainer.extend(
        extensions.snapshot(filename="snapshot_epoch_{.updater.epoch}"),
        trigger=(args.epoch, "epoch"),
    )
    trainer.run()

    with open(os.path.join(args.out, "word2vec.model"), "w") as f:
        f.write("%d %d\n" % (n_vocab, args.unit))
        for i, w in enumerate(model.embed.W.array):
            f.write("%d %s\n" % (i, " ".join(map(str, w))))


if __name__ == "__main__":
    main()
