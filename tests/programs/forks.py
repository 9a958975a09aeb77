"""A program with children: one by os.fork that trains too, others by multiprocessing."""

import argparse
import multiprocessing
import os

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np


class Net(chainer.Chain):
    def __init__(self):
        super(Net, self).__init__()
        with self.init_scope():
            self.l1 = L.Linear(30, 50)
            self.l2 = L.Linear(50, 10)

    def forward(self, x):
        return self.l2(F.relu(self.l1(x)))


def train(seed, n_iter):
    rng = np.random.RandomState(seed)
    model = L.Classifier(Net())
    optimizer = chainer.optimizers.Adam().setup(model)
    for _ in range(n_iter):
        x = rng.rand(20, 30).astype(np.float32)
        optimizer.update(model, x, rng.randint(0, 10, 20).astype(np.int32))
    return float(model.loss.array)


def work(seed):
    return train(seed, 10)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iteration", "-i", type=int, default=100)
    parser.add_argument("--method", choices=["fork", "spawn", "forkserver"], default="fork")
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)

    train(0, args.iteration // 2)
    pid = os.fork()
    if pid == 0:
        with open(os.path.join(args.out, "child.txt"), "w") as f:
            f.write("{}\n".format(train(1, args.iteration)))
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert status == 0
    with multiprocessing.get_context(args.method).Pool(2) as pool:
        losses = pool.map(work, range(4))
    print("losses of children: {}".format(losses))
    print("loss: {}".format(train(0, args.iteration - args.iteration // 2)))


if __name__ == "__main__":
    main()
