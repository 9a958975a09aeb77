import chainer
import chainer.functions as F
import chainer.links as L
import numpy

EOS = 1
N_VOCAB = 60


def sequence_embed(embed, xs):
    x_section = numpy.cumsum([len(x) for x in xs[:-1]])
    return F.split_axis(embed(F.concat(xs, axis=0)), x_section, 0)


class Seq2seq(chainer.Chain):
    def __init__(self, n_layers, n_units):
        super(Seq2seq, self).__init__()
        with self.init_scope():
            self.embed_x = L.EmbedID(N_VOCAB, n_units)
            self.embed_y = L.EmbedID(N_VOCAB, n_units)
            self.encoder = L.NStepLSTM(n_layers, n_units, n_units, 0.1)
            self.decoder = L.NStepLSTM(n_layers, n_units, n_units, 0.1)
            self.W = L.Linear(n_units, N_VOCAB)

    def forward(self, xs, ys):
        eos = self.xp.array([EOS], numpy.int32)
        exs = sequence_embed(self.embed_x, [x[::-1] for x in xs])
        eys = sequence_embed(self.embed_y, [F.concat([eos, y], axis=0) for y in ys])
        hx, cx, _ = self.encoder(None, None, exs)
        _, _, os = self.decoder(hx, cx, eys)
        words = F.concat([F.concat([y, eos], axis=0) for y in ys], axis=0)
        found = self.W(F.concat(os, axis=0))
        loss = F.sum(F.softmax_cross_entropy(found, words, reduce="no")) / len(xs)
        chainer.report({"loss": loss}, self)
        return loss
