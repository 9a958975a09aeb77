"""A ChainerMN loop without a profiler, in which rank 1 sleeps in its second layer."""

import sys
import time

import chainer
import chainer.functions as F
import chainer.links as L
import chainermn
import numpy as np


class Nap(chainer.FunctionNode):
    """Copies its input, after a delay on rank 1."""

    def forward(self, inputs):
        if comm.rank == 1:
            time.sleep(float(sys.argv[1]))
        return (inputs[0].copy(),)

    def backward(self, indexes, grads):
        return grads


comm = chainermn.create_communicator("naive")
net = chainer.Sequential(L.Linear(4, 5), F.relu, lambda x: Nap().apply((x,))[0], L.Linear(5, 3))
model = L.Classifier(net)
optimizer = chainermn.create_multi_node_optimizer(chainer.optimizers.Adam(), comm).setup(model)
x, t = np.ones((8, 4), np.float32), np.zeros(8, np.int32)
for _ in range(60):
    loss = model(x, t)
    model.cleargrads()
    loss.backward()
    optimizer.update()
