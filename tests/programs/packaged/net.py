import chainer
import chainer.functions as F
import chainer.links as L


class Siamese(chainer.Chain):
    """Whether two images show the same: one network for both, a contrastive loss."""

    def __init__(self, n_units=64):
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(1, 8, 5, stride=2)
            self.fc1 = L.Linear(None, n_units)
            self.fc2 = L.Linear(n_units, 2)

    def embed(self, x):
        return self.fc2(F.relu(self.fc1(F.relu(self.conv(x)))))

    def forward(self, x0, x1, t):
        loss = F.contrastive(self.embed(x0), self.embed(x1), t)
        chainer.report({"loss": loss}, self)
        return loss
