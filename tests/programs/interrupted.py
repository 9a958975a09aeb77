"""A training that its user interrupts by Ctrl-C."""

import argparse
import os
import signal

import chainer
import chainer.links as L
import numpy as np
from chainer import training
from chainer.training import extensions


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--at", type=int, default=60, help="the iteration")
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()

    rng = np.random.RandomState(0)
    data = chainer.datasets.TupleDataset(
        rng.rand(200, 50).astype(np.float32), rng.randint(0, 10, 200).astype(np.int32)
    )
    model = L.Classifier(chainer.Sequential(L.Linear(50, 100), L.Linear(100, 10)))
    optimizer = chainer.optimizers.SGD().setup(model)
    updater = training.updaters.StandardUpdater(
        chainer.iterators.SerialIterator(data, 10), optimizer
    )
    trainer = training.Trainer(updater, (100000, "iteration"), out=args.out)
    trainer.extend(extensions.LogReport(trigger=(20, "iteration")))

    @training.make_extension(trigger=(args.at, "iteration"))
    def control_c(trainer):
        os.kill(os.getpid(), signal.SIGINT)

    trainer.extend(control_c)
    trainer.run()


if __name__ == "__main__":
    main()
