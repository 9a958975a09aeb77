"""Networks in the style of old Chainer programs."""

from __future__ import annotations

import chainer
import chainer.functions as F
import chainer.links as L


class MLP(chainer.Chain):
    def __init__(self, n_units, n_out=10):
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(None, n_units)
            self.l2 = L.Linear(None, n_units)
            self.l3 = L.Linear(None, n_out)

    def forward(self, x):
        return self.l3(F.relu(self.l2(F.relu(self.l1(x)))))


def classifier(n_units=20):
    return L.Classifier(MLP(n_units))


class LSTMOnIds(chainer.Chain):
    """A language model with an embedding and a stateful LSTM."""

    def __init__(self, n_vocab, n_units):
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(n_vocab, n_units)
            self.rnn = L.LSTM(n_units, n_units)
            self.out = L.Linear(n_units, n_vocab)

    def forward(self, ids):
        self.rnn.reset_state()
        for step in range(ids.shape[1]):
            h = self.rnn(self.embed(ids[:, step]))
        return self.out(h)


class Tagger(chainer.Chain):
    """An NStepLSTM for sequences of different lengths."""

    def __init__(self, n_in, n_units):
        super().__init__()
        with self.init_scope():
            self.rnn = L.NStepLSTM(2, n_in, n_units, 0.1)
            self.out = L.Linear(n_units, 5)

    def forward(self, xs):
        _, _, ys = self.rnn(None, None, xs)
        return self.out(F.concat(ys, axis=0))


class Siamese(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.body = L.Convolution2D(1, 4, 5)
            self.fc = L.Linear(None, 8)

    def _embed(self, x):
        return self.fc(F.max_pooling_2d(F.relu(self.body(x)), 2))

    def forward(self, x0, x1, t):
        return F.contrastive(self._embed(x0), self._embed(x1), t)


class Seq2seq(chainer.Chain):
    """A translation model; forward takes lists of word sequences and returns the loss."""

    def __init__(self, n_vocab, n_units):
        super().__init__()
        with self.init_scope():
            self.embed_x = L.EmbedID(n_vocab, n_units)
            self.embed_y = L.EmbedID(n_vocab, n_units)
            self.encoder = L.NStepLSTM(1, n_units, n_units, 0.0)
            self.decoder = L.NStepLSTM(1, n_units, n_units, 0.0)
            self.W = L.Linear(n_units, n_vocab)

    def forward(self, xs, ys):
        def embedded(embed, sequences):
            ends = [len(sequence) for sequence in sequences]
            at = [sum(ends[: n + 1]) for n in range(len(ends) - 1)]
            return F.split_axis(embed(F.concat(sequences, axis=0)), at, 0, force_tuple=True)

        h, c, _ = self.encoder(None, None, embedded(self.embed_x, xs))
        _, _, out = self.decoder(h, c, embedded(self.embed_y, ys))
        logits = self.W(F.concat(out, axis=0))
        return F.softmax_cross_entropy(logits, F.concat(ys, axis=0))


class ResNet50(L.ResNet50Layers):
    """As in Chainer's ImageNet example: forward takes images and labels, and returns the loss."""

    def __init__(self):
        super().__init__(pretrained_model=None)

    def forward(self, x, t):
        h = super().forward(x, layers=["fc6"])["fc6"]
        loss = F.softmax_cross_entropy(h, t)
        chainer.report({"loss": loss, "accuracy": F.accuracy(h, t)}, self)
        return loss
