"""Lists of sentences of different length, and a converter for them."""

import argparse

import chainer
import numpy
from chainer import training
from chainer.training import extensions

from .net import N_VOCAB, Seq2seq


@chainer.dataset.converter()
def convert(batch, device):
    return {
        "xs": [device.send(x) for x, _ in batch],
        "ys": [device.send(y) for _, y in batch],
    }


class TestLoss(chainer.training.Extension):
    """The loss of sentences that are not learned from, in place of BLEU."""

    trigger = 1, "epoch"
    priority = chainer.training.PRIORITY_WRITER

    def __init__(self, model, test_data):
        self.model = model
        self.test_data = test_data

    def __call__(self, trainer):
        with chainer.no_backprop_mode(), chainer.using_config("train", False):
            loss = self.model(*zip(*self.test_data))
        chainer.report({"test/loss": loss})


class Sentences(chainer.dataset.DatasetMixin):
    """Pairs of sentences, which end as a damaged file does when so many have been read."""

    def __init__(self, pairs, good):
        self.pairs = pairs
        self.good = good

    def __len__(self):
        return len(self.pairs)

    def get_example(self, i):
        self.good -= 1
        if self.good < 0:
            raise ValueError("sentence {} is damaged".format(i))
        return self.pairs[i]


def main():
    parser = argparse.ArgumentParser(description="Chainer example: seq2seq")
    parser.add_argument("--batchsize", "-b", type=int, default=20)
    parser.add_argument("--epoch", "-e", type=int, default=2)
    parser.add_argument("--unit", "-u", type=int, default=48)
    parser.add_argument("--good", type=int, default=150)
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()

    numpy.random.seed(0)
    sentences = [
        numpy.random.randint(2, N_VOCAB, numpy.random.randint(3, 9)).astype(numpy.int32)
        for _ in range(140)
    ]
    pairs = [(x, x) for x in sentences]
    train_data, test_data = Sentences(pairs[:100], args.good), pairs[100:]
    model = Seq2seq(2, args.unit)
    optimizer = chainer.optimizers.Adam()
    optimizer.setup(model)
    train_iter = chainer.iterators.SerialIterator(train_data, args.batchsize)
    updater = training.updaters.StandardUpdater(train_iter, optimizer, converter=convert, device=-1)
    trainer = training.Trainer(updater, (args.epoch, "epoch"), out=args.out)
    shows = (5, "iteration")
    trainer.extend(extensions.LogReport(trigger=shows))
    trainer.extend(extensions.PrintReport(["iteration", "main/loss", "test/loss"]), trigger=shows)
    trainer.extend(extensions.snapshot(), trigger=(1, "epoch"))
    trainer.extend(TestLoss(model, test_data), trigger=shows)
    trainer.run()


if __name__ == "__main__":
    main()
