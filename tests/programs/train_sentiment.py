#!/usr/bin/env python
"""A recursive network over trees: other calls for every sentence, read from its brackets."""

import argparse
import itertools
import os
import random

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import optimizers


class RecursiveNet(chainer.Chain):
    def __init__(self, n_vocab, n_units, n_label):
        super(RecursiveNet, self).__init__()
        with self.init_scope():
            self.embed = L.EmbedID(n_vocab, n_units)
            self.l = L.Linear(n_units * 2, n_units)
            self.w = L.Linear(n_units, n_label)

    def leaf(self, x):
        return self.embed(x)

    def node(self, left, right):
        return F.tanh(self.l(F.concat((left, right))))

    def label(self, v):
        return self.w(v)


def write_trees(path, n, vocab):
    """Writes sentences as the treebank has them: (3 (2 word) (1 (0 other) (4 third)))."""
    rng = random.Random(0)

    def tree(words):
        if words == 1:
            word = rng.randrange(len(vocab))
            return "({} {})".format(word % 5, vocab[word])
        left = rng.randint(1, words - 1)
        return "({} {} {})".format(rng.randrange(5), tree(left), tree(words - left))

    with open(path, "w") as f:
        for _ in range(n):
            f.write(tree(rng.randint(2, 8)) + "\n")


def read_tree(tokens):
    """Nested dicts of a sentence's brackets."""
    assert next(tokens) == "("
    label, token = int(next(tokens)), next(tokens)
    if token != "(":
        assert next(tokens) == ")"
        return {"label": label, "node": token}
    children = [read_tree(itertools.chain([token], tokens)), read_tree(tokens)]
    assert next(tokens) == ")"
    return {"label": label, "node": children}


def traverse(model, node, vocab, evaluate=None):
    if isinstance(node["node"], str):
        loss = 0
        v = model.leaf(np.array([vocab[node["node"]]], np.int32))
    else:
        left_loss, left = traverse(model, node["node"][0], vocab, evaluate)
        right_loss, right = traverse(model, node["node"][1], vocab, evaluate)
        v = model.node(left, right)
        loss = left_loss + right_loss
    y = model.label(v)
    if chainer.config.train:
        t = np.array([node["label"]], np.int32)
        loss += F.softmax_cross_entropy(y, t)
    if evaluate is not None:
        evaluate["correct"] += int(y.array.argmax() == node["label"])
        evaluate["total"] += 1
    return loss, v


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epoch", "-e", default=2, type=int)
    parser.add_argument("--unit", "-u", default=30, type=int)
    parser.add_argument("--batchsize", "-b", type=int, default=1)
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()

    random.seed(0)
    np.random.seed(0)
    os.makedirs(args.out, exist_ok=True)
    path = os.path.join(args.out, "trees.txt")
    words = ["w{}".format(i) for i in range(40)]
    write_trees(path, 50, words)
    with open(path) as f:
        trees = [
            read_tree(iter(line.replace("(", " ( ").replace(")", " ) ").split())) for line in f
        ]
    vocab = {word: i for i, word in enumerate(words)}
    train, test = trees[:40], trees[40:]
    model = RecursiveNet(len(vocab), args.unit, 5)
    optimizer = optimizers.AdaGrad(lr=0.1)
    optimizer.setup(model)
    optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(0.0001))

    for epoch in range(args.epoch):
        print("Epoch: {0:d}".format(epoch))
        total_loss, accum_loss, count = 0, 0, 0
        random.shuffle(train)
        for tree in train:
            accum_loss += traverse(model, tree, vocab)[0]
            count += 1
            if count >= args.batchsize:
                model.cleargrads()
                accum_loss.backward()
                optimizer.update()
                total_loss += float(accum_loss.array)
                accum_loss, count = 0, 0
        print("loss: {:.2f}".format(total_loss))
        result = {"correct": 0, "total": 0}
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            for tree in test:
                traverse(model, tree, vocab, result)
        print(" Node accuracy: {correct} of {total}".format(**result))


if __name__ == "__main__":
    main()
