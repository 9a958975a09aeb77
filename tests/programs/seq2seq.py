#!/usr/bin/env python
"""Translation by NStepLSTM: lists of sentences of different length, and a converter for them."""

import argparse
import os

import chainer
import chainer.functions as F
import chainer.links as L
import numpy
from chainer import training
from chainer.training import extensions

UNK = 0
EOS = 1


def sequence_embed(embed, xs):
    x_len = [len(x) for x in xs]
    x_section = numpy.cumsum(x_len[:-1])
    ex = embed(F.concat(xs, axis=0))
    return F.split_axis(ex, x_section, 0)


class Seq2seq(chainer.Chain):
    def __init__(self, n_layers, n_source_vocab, n_target_vocab, n_units):
        super(Seq2seq, self).__init__()
        with self.init_scope():
            self.embed_x = L.EmbedID(n_source_vocab, n_units)
            self.embed_y = L.EmbedID(n_target_vocab, n_units)
            self.encoder = L.NStepLSTM(n_layers, n_units, n_units, 0.1)
            self.decoder = L.NStepLSTM(n_layers, n_units, n_units, 0.1)
            self.W = L.Linear(n_units, n_target_vocab)
        self.n_layers = n_layers
        self.n_units = n_units

    def forward(self, xs, ys):
        xs = [x[::-1] for x in xs]
        eos = self.xp.array([EOS], numpy.int32)
        ys_in = [F.concat([eos, y], axis=0) for y in ys]
        ys_out = [F.concat([y, eos], axis=0) for y in ys]
        # Both xs and ys_in are lists of arrays.
        exs = sequence_embed(self.embed_x, xs)
        eys = sequence_embed(self.embed_y, ys_in)
        batch = len(xs)
        hx, cx, _ = self.encoder(None, None, exs)
        _, _, os = self.decoder(hx, cx, eys)
        concat_os = F.concat(os, axis=0)
        concat_ys_out = F.concat(ys_out, axis=0)
        loss = F.sum(F.softmax_cross_entropy(self.W(concat_os), concat_ys_out, reduce="no")) / batch
        chainer.report({"loss": loss}, self)
        n_words = concat_ys_out.shape[0]
        chainer.report({"perp": self.xp.exp(loss.array * batch / n_words)}, self)
        return loss

    def translate(self, xs, max_length=8):
        batch = len(xs)
        with chainer.no_backprop_mode(), chainer.using_config("train", False):
            xs = [x[::-1] for x in xs]
            h, c, _ = self.encoder(None, None, sequence_embed(self.embed_x, xs))
            ys = self.xp.full(batch, EOS, numpy.int32)
            result = []
            for _ in range(max_length):
                eys = F.split_axis(self.embed_y(ys), batch, 0)
                h, c, ys = self.decoder(h, c, eys)
                wy = self.W(F.concat(ys, axis=0))
                ys = self.xp.argmax(wy.array, axis=1).astype(numpy.int32)
                result.append(ys)
        return self.xp.stack(result).T


@chainer.dataset.converter()
def convert(batch, device):
    def to_device_batch(batch):
        if device is None:
            return batch
        return [device.send(x) for x in batch]

    return {
        "xs": to_device_batch([x for x, _ in batch]),
        "ys": to_device_batch([y for _, y in batch]),
    }


class CalculateBleu(chainer.training.Extension):
    """Counts words that are the same at the same place, in place of BLEU."""

    trigger = 1, "epoch"
    priority = chainer.training.PRIORITY_WRITER

    def __init__(self, model, test_data, key, device, batch=20):
        self.model = model
        self.test_data = test_data
        self.key = key
        self.batch = batch
        self.device = device

    def __call__(self, trainer):
        same, count = 0, 0
        for i in range(0, len(self.test_data), self.batch):
            sources, targets = zip(*self.test_data[i : i + self.batch])
            for y, t in zip(self.model.translate(list(sources)), targets):
                n = min(len(y), len(t))
                same += int((y[:n] == t[:n]).sum())
                count += len(t)
        chainer.report({self.key: same / count})


def write_sentences(directory, n, n_vocab):
    """Writes the two texts, and the words of each language."""
    os.makedirs(directory, exist_ok=True)
    rng = numpy.random.RandomState(0)
    sentences = [rng.randint(2, n_vocab, rng.randint(3, 9)) for _ in range(n)]
    for name, sign in (("source", "s"), ("target", "t")):
        with open(os.path.join(directory, name + ".txt"), "w") as f:
            for words in sentences:
                f.write(" ".join("{}{}".format(sign, word) for word in words) + "\n")
        with open(os.path.join(directory, name + "_vocab.txt"), "w") as f:
            f.write("".join("{}{}\n".format(sign, word) for word in range(2, n_vocab)))


def load_vocabulary(path):
    with open(path) as f:
        word_ids = {line.strip(): i + 2 for i, line in enumerate(f)}
    word_ids["<UNK>"] = UNK
    word_ids["<EOS>"] = EOS
    return word_ids


def load_data(vocabulary, path):
    with open(path) as f:
        return [
            numpy.array([vocabulary.get(w, UNK) for w in line.split()], numpy.int32) for line in f
        ]


def main():
    parser = argparse.ArgumentParser(description="Chainer example: seq2seq")
    parser.add_argument("--batchsize", "-b", type=int, default=20)
    parser.add_argument("--epoch", "-e", type=int, default=2)
    parser.add_argument("--unit", "-u", type=int, default=48)
    parser.add_argument("--layer", "-l", type=int, default=2)
    parser.add_argument("--log-interval", type=int, default=5)
    parser.add_argument("--validation-interval", type=int, default=5)
    parser.add_argument("--out", "-o", default="result")
    args = parser.parse_args()

    numpy.random.seed(0)
    data = os.path.join(args.out, "data")
    write_sentences(data, 140, 60)
    source_ids = load_vocabulary(os.path.join(data, "source_vocab.txt"))
    target_ids = load_vocabulary(os.path.join(data, "target_vocab.txt"))
    pairs = list(
        zip(
            load_data(source_ids, os.path.join(data, "source.txt")),
            load_data(target_ids, os.path.join(data, "target.txt")),
        )
    )
    train_data, test_data = pairs[:100], pairs[100:]
    source_words = {i: w for w, i in source_ids.items()}
    target_words = {i: w for w, i in target_ids.items()}

    model = Seq2seq(args.layer, len(source_ids), len(target_ids), args.unit)
    optimizer = chainer.optimizers.Adam()
    optimizer.setup(model)
    train_iter = chainer.iterators.SerialIterator(train_data, args.batchsize)
    updater = training.updaters.StandardUpdater(train_iter, optimizer, converter=convert, device=-1)
    trainer = training.Trainer(updater, (args.epoch, "epoch"), out=args.out)
    trainer.extend(extensions.LogReport(trigger=(args.log_interval, "iteration")))
    trainer.extend(
        extensions.PrintReport(
            ["epoch", "iteration", "main/loss", "main/perp", "validation/main/bleu", "elapsed_time"]
        ),
        trigger=(args.log_interval, "iteration"),
    )
    trainer.extend(extensions.snapshot(), trigger=(1, "epoch"))

    def translate(trainer):
        source, target = test_data[numpy.random.choice(len(test_data))]
        result = model.translate([model.xp.array(source)])[0]
        print("# source : " + " ".join(source_words[int(x)] for x in source))
        print("# result : " + " ".join(target_words[int(y)] for y in result))
        print("# expect : " + " ".join(target_words[int(y)] for y in target))

    trainer.extend(translate, trigger=(args.validation_interval, "iteration"))
    trainer.extend(
        CalculateBleu(model, test_data, "validation/main/bleu", -1),
        trigger=(args.validation_interval, "iteration"),
    )
    print("start training")
    trainer.run()


if __name__ == "__main__":
    main()
