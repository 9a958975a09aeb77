#!/usr/bin/env python
"""A language model on Penn Tree Bank: LSTM, truncated BPTT by an updater of its own."""

from __future__ import division

import argparse
import os

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import training
from chainer.training import extensions


class RNNForLM(chainer.Chain):
    def __init__(self, n_vocab, n_units):
        super(RNNForLM, self).__init__()
        with self.init_scope():
            self.embed = L.EmbedID(n_vocab, n_units)
            self.l1 = L.LSTM(n_units, n_units)
            self.l2 = L.LSTM(n_units, n_units)
            self.l3 = L.Linear(n_units, n_vocab)
        for param in self.params():
            param.array[...] = np.random.uniform(-0.1, 0.1, param.shape)

    def reset_state(self):
        self.l1.reset_state()
        self.l2.reset_state()

    def forward(self, x):
        h0 = self.embed(x)
        h1 = self.l1(F.dropout(h0))
        h2 = self.l2(F.dropout(h1))
        return self.l3(F.dropout(h2))


class ParallelSequentialIterator(chainer.dataset.Iterator):
    """Words at the same time of several places of the text."""

    def __init__(self, dataset, batch_size, repeat=True):
        super(ParallelSequentialIterator, self).__init__()
        self.dataset = dataset
        self.batch_size = batch_size
        self.repeat = repeat
        length = len(dataset)
        self.offsets = [i * length // batch_size for i in range(batch_size)]
        self.reset()

    def reset(self):
        self.epoch = 0
        self.is_new_epoch = False
        self.iteration = 0
        self._previous_epoch_detail = -1.0

    def __next__(self):
        length = len(self.dataset)
        if not self.repeat and self.iteration * self.batch_size >= length:
            raise StopIteration
        cur_words = self.get_words()
        self._previous_epoch_detail = self.epoch_detail
        self.iteration += 1
        next_words = self.get_words()
        epoch = self.iteration * self.batch_size // length
        self.is_new_epoch = self.epoch < epoch
        if self.is_new_epoch:
            self.epoch = epoch
        return list(zip(cur_words, next_words))

    @property
    def epoch_detail(self):
        return self.iteration * self.batch_size / len(self.dataset)

    @property
    def previous_epoch_detail(self):
        return None if self._previous_epoch_detail < 0 else self._previous_epoch_detail

    def get_words(self):
        return [
            self.dataset[(offset + self.iteration) % len(self.dataset)] for offset in self.offsets
        ]

    def serialize(self, serializer):
        self.iteration = serializer("iteration", self.iteration)
        self.epoch = serializer("epoch", self.epoch)


class BPTTUpdater(training.updaters.StandardUpdater):
    def __init__(self, train_iter, optimizer, bprop_len, device):
        super(BPTTUpdater, self).__init__(train_iter, optimizer, device=device)
        self.bprop_len = bprop_len

    def update_core(self):
        loss = 0
        train_iter = self.get_iterator("main")
        optimizer = self.get_optimizer("main")
        for _ in range(self.bprop_len):
            batch = train_iter.__next__()
            x, t = self.converter(batch, self.device)
            loss += optimizer.target(x, t)
        optimizer.target.cleargrads()
        loss.backward()
        loss.unchain_backward()
        optimizer.update()


def compute_perplexity(result):
    result["perplexity"] = np.exp(result["main/loss"])
    if "validation/main/loss" in result:
        result["val_perplexity"] = np.exp(result["validation/main/loss"])


def make_ptb(directory, n_vocab, n):
    """Writes the files that get_ptb_words() keeps of the data set once it was downloaded."""
    chainer.dataset.set_dataset_root(directory)
    root = chainer.dataset.get_dataset_directory("pfnet/chainer/ptb")
    rng = np.random.RandomState(0)
    for name, length in (("train", n), ("valid", n // 15), ("test", n // 15)):
        np.savez(
            os.path.join(root, name + ".npz"), x=rng.randint(0, n_vocab, length).astype(np.int32)
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batchsize", "-b", type=int, default=20)
    parser.add_argument("--bproplen", "-l", type=int, default=8)
    parser.add_argument("--epoch", "-e", type=int, default=2)
    parser.add_argument("--gradclip", "-c", type=float, default=5)
    parser.add_argument("--out", "-o", default="result")
    parser.add_argument("--unit", "-u", type=int, default=64)
    parser.add_argument("--model", "-m", default="model.npz")
    args = parser.parse_args()

    np.random.seed(0)
    make_ptb(os.path.join(args.out, "data"), 200, 1500)
    train, val, test = chainer.datasets.get_ptb_words()
    n_vocab = max(train) + 1
    print("#vocab = {}".format(n_vocab))
    train_iter = ParallelSequentialIterator(train, args.batchsize)
    val_iter = ParallelSequentialIterator(val, 1, repeat=False)
    test_iter = ParallelSequentialIterator(test, 1, repeat=False)

    rnn = RNNForLM(n_vocab, args.unit)
    model = L.Classifier(rnn)
    model.compute_accuracy = False  # we only want the perplexity
    optimizer = chainer.optimizers.SGD(lr=1.0)
    optimizer.setup(model)
    optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(args.gradclip))

    updater = BPTTUpdater(train_iter, optimizer, args.bproplen, -1)
    trainer = training.Trainer(updater, (args.epoch, "epoch"), out=args.out)
    eval_model = model.copy()  # Model with shared params and distinct states
    eval_rnn = eval_model.predictor
    trainer.extend(
        extensions.Evaluator(
            val_iter, eval_model, device=-1, eval_hook=lambda _: eval_rnn.reset_state()
        )
    )
    interval = 5
    trainer.extend(
        extensions.LogReport(postprocess=compute_perplexity, trigger=(interval, "iteration"))
    )
    trainer.extend(
        extensions.PrintReport(["epoch", "iteration", "perplexity", "val_perplexity"]),
        trigger=(interval, "iteration"),
    )
    trainer.extend(extensions.ProgressBar(update_interval=5))
    trainer.extend(extensions.snapshot())
    trainer.extend(extensions.snapshot_object(model, "model_iter_{.updater.iteration}"))
    trainer.run()

    print("test")
    eval_rnn.reset_state()
    evaluator = extensions.Evaluator(test_iter, eval_model, device=-1)
    result = evaluator()
    print("test perplexity: {}".format(np.exp(float(result["main/loss"]))))
    chainer.serializers.save_npz(os.path.join(args.out, args.model), model)


if __name__ == "__main__":
    main()
