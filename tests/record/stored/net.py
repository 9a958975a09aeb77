import os
import signal

import chainer
import chainer.functions as F
import chainer.links as L


class Net(chainer.Chain):
    """A convolution, a normalisation and a linear layer; it may kill its process at a call."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        with self.init_scope():
            self.conv = L.Convolution2D(3, 4, 3)
            self.bn = L.BatchNormalization(4)
            self.fc = L.Linear(144, 10)

    def forward(self, x):
        self.calls += 1
        if self.calls == int(os.environ.get("KILL", 0)):
            os.kill(os.getpid(), signal.SIGKILL)
        return self.fc(F.relu(self.bn(self.conv(x))))
