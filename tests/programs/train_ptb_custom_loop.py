#!/usr/bin/env python
"""A language model with a custom loop: truncated backpropagation by unchain_backward."""

import argparse
import copy
import os

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np


class RNNForLM(chainer.Chain):
    def __init__(self, n_vocab, n_units):
        super(RNNForLM, self).__init__()
        with self.init_scope():
            self.embed = L.EmbedID(n_vocab, n_units)
            self.lstm = L.StatelessLSTM(n_units, n_units)
            self.gru = L.StatefulGRU(n_units, n_units)
            self.out = L.Linear(n_units, n_vocab)
        self.reset_state()

    def reset_state(self):
        self.c = self.h = None
        self.gru.reset_state()

    def forward(self, x):
        self.c, self.h = self.lstm(self.c, self.h, F.dropout(self.embed(x)))
        return self.out(F.dropout(self.gru(self.h)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batchsize", "-b", type=int, default=20)
    parser.add_argument("--bproplen", "-l", type=int, default=10)
    parser.add_argument("--epoch", "-e", type=int, default=2)
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()

    np.random.seed(0)
    n_vocab = 200
    train = np.random.randint(0, n_vocab, 2000).astype(np.int32)
    val = np.random.randint(0, n_vocab, 100).astype(np.int32)
    model = L.Classifier(RNNForLM(n_vocab, 64))
    model.compute_accuracy = False
    optimizer = chainer.optimizers.SGD(lr=1.0)
    optimizer.setup(model)
    optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(5))

    def evaluate(model, words):
        evaluator = model.copy()
        evaluator.predictor = copy.deepcopy(model.predictor)
        evaluator.predictor.reset_state()
        total = 0
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            for word, following in zip(words[:-1], words[1:]):
                total += evaluator(word[None], following[None]).array
        return np.exp(float(total) / (len(words) - 1))

    n_batches = len(train) // args.batchsize
    rows = train[: n_batches * args.batchsize].reshape(args.batchsize, n_batches).T
    for epoch in range(args.epoch):
        sum_perp, count, loss = 0, 0, 0
        for i in range(n_batches - 1):
            loss += optimizer.target(rows[i], rows[i + 1])
            count += 1
            if count % args.bproplen == 0:
                sum_perp += loss.array
                optimizer.target.cleargrads()
                loss.backward()
                loss.unchain_backward()
                optimizer.update()
                loss = 0
        print("epoch: {}, training perplexity: {}".format(epoch, np.exp(float(sum_perp) / count)))
        print("validation perplexity: {}".format(evaluate(model, val)))
        model.predictor.reset_state()

    os.makedirs(args.out, exist_ok=True)
    chainer.serializers.save_npz(os.path.join(args.out, "rnnlm.npz"), model)


if __name__ == "__main__":
    main()
