import argparse

import chainer
import numpy as np
from chainer import training
from chainer.training import extensions

from .net import Siamese


def main():
    parser = argparse.ArgumentParser(prog="packaged")
    parser.add_argument("--batchsize", "-b", type=int, default=20)
    parser.add_argument("--epoch", "-e", type=int, default=3)
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()

    rng = np.random.RandomState(0)
    x0, x1 = rng.rand(2, 300, 1, 20, 20).astype(np.float32)
    t = rng.randint(0, 2, 300).astype(np.int32)
    model = Siamese()
    optimizer = chainer.optimizers.AdaDelta().setup(model)
    iterator = chainer.iterators.SerialIterator(
        chainer.datasets.TupleDataset(x0, x1, t), args.batchsize
    )
    updater = training.updaters.StandardUpdater(iterator, optimizer)
    trainer = training.Trainer(updater, (args.epoch, "epoch"), out=args.out)
    trainer.extend(extensions.LogReport())
    trainer.extend(extensions.PrintReport(["epoch", "main/loss", "elapsed_time"]))
    trainer.run()


if __name__ == "__main__":
    main()
