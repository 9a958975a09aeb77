#!/usr/bin/env python
"""MNIST as in Chainer 1: links with __call__, slices of a permutation, no iterators, no main()."""

from __future__ import print_function

import argparse
import os

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import six
from chainer import cuda, optimizers, serializers


class MnistMLP(chainer.Chain):
    def __init__(self, n_in, n_units, n_out):
        super(MnistMLP, self).__init__(
            l1=L.Linear(n_in, n_units),
            l2=L.Linear(n_units, n_units),
            l3=L.Linear(n_units, n_out),
        )

    def __call__(self, x):
        h1 = F.dropout(F.relu(self.l1(x)))
        h2 = F.dropout(F.relu(self.l2(h1)))
        return self.l3(h2)


class Classifier(chainer.Chain):
    def __init__(self, predictor):
        super(Classifier, self).__init__(predictor=predictor)

    def __call__(self, x, t):
        y = self.predictor(x)
        self.loss = F.softmax_cross_entropy(y, t)
        self.accuracy = F.accuracy(y, t)
        return self.loss


parser = argparse.ArgumentParser(description="Chainer example: MNIST")
parser.add_argument("--epoch", "-e", default=5, type=int, help="number of epochs to learn")
parser.add_argument("--unit", "-u", default=200, type=int, help="number of units")
parser.add_argument("--batchsize", "-b", type=int, default=100, help="learning minibatch size")
parser.add_argument("--out", "-o", default="result")
args = parser.parse_args()
batchsize = args.batchsize

np.random.seed(0)
N, N_test = 2000, 500
target = np.random.randint(0, 10, N + N_test).astype(np.int32)
data = (np.random.rand(10, 784)[target] + np.random.rand(N + N_test, 784)).astype(np.float32) / 2
x_train, x_test = np.split(data, [N])
y_train, y_test = np.split(target, [N])

model = Classifier(MnistMLP(784, args.unit, 10))
optimizer = optimizers.Adam()
optimizer.setup(model)

for epoch in six.moves.range(1, args.epoch + 1):
    print("epoch", epoch)
    perm = np.random.permutation(N)
    sum_loss = 0
    for i in six.moves.range(0, N, batchsize):
        x = chainer.Variable(x_train[perm[i : i + batchsize]])
        t = chainer.Variable(y_train[perm[i : i + batchsize]])
        model.cleargrads()
        loss = model(x, t)
        loss.backward()
        optimizer.update()
        sum_loss += float(cuda.to_cpu(model.loss.data)) * len(t.data)
    print("train mean loss={}".format(sum_loss / N))

    sum_accuracy = 0
    for i in six.moves.range(0, N_test, batchsize):
        with chainer.no_backprop_mode(), chainer.using_config("train", False):
            x = chainer.Variable(x_test[i : i + batchsize])
            t = chainer.Variable(y_test[i : i + batchsize])
            model(x, t)
        sum_accuracy += float(cuda.to_cpu(model.accuracy.data)) * len(t.data)
    print("test  accuracy={}".format(sum_accuracy / N_test))

if not os.path.isdir(args.out):
    os.makedirs(args.out)
print("save the model")
serializers.save_npz(os.path.join(args.out, "mlp.model"), model)
print("save the optimizer")
serializers.save_npz(os.path.join(args.out, "mlp.state"), optimizer)
