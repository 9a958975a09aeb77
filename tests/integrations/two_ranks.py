"""Trains on each of two ranks for test_two_ranks.py, and writes results to a file per rank."""

import json
import sys
import warnings
from pathlib import Path

import chainer_profile  # before Chainer

# isort: split
import chainer
import chainer.functions as F
import chainer.links as L
import chainermn
import numpy as np
from chainer import training

from chainer_profile.integrations import trainer as integration

warnings.simplefilter("ignore", FutureWarning)  # ChainerMN is experimental
integration.write_reports = lambda *_: None  # reports are slow


class Net(chainer.Chain):
    """Two layers with normalisation between them. The first batch initializes the first layer."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.first = L.Linear(None, 5)
            self.norm = L.BatchNormalization(5)
            self.second = L.Linear(5, 3)

    def forward(self, x):
        return self.second(F.relu(self.norm(self.first(x))))


def examples():
    generator = np.random.RandomState(0)
    return [(generator.rand(4).astype("f"), np.int32(n % 3)) for n in range(24)]


def train(comm, out):
    """Train with all extensions of ChainerMN; return attributes left on objects, and a checksum."""
    model = L.Classifier(chainermn.links.create_mnbn_model(Net(), comm))
    inner = chainer.optimizers.MomentumSGD()
    optimizer = chainermn.create_multi_node_optimizer(inner, comm).setup(model)
    data = chainermn.scatter_dataset(examples() if comm.rank == 0 else None, comm)
    iterator = chainer.iterators.SerialIterator(data, 4)
    updater = training.StandardUpdater(iterator, optimizer)
    trainer = training.Trainer(updater, (9, "iteration"), out=out)
    test = chainer.iterators.SerialIterator(data, 4, repeat=False, shuffle=False)
    evaluator = training.extensions.Evaluator(test, model)
    trainer.extend(chainermn.create_multi_node_evaluator(evaluator, comm))
    trainer.extend(chainermn.extensions.AllreducePersistent(model, comm))
    trainer.extend(chainermn.extensions.ObservationAggregator(comm, "main/loss"))
    trainer.extend(chainer_profile.LayerProfile(machine=False))
    objects = (optimizer, inner, comm, model)
    before = [{*vars(owner), "_loss_scaling_isnan"} for owner in objects]
    trainer.run()
    left = [
        sorted(vars(owner).keys() - names) for owner, names in zip(objects, before, strict=True)
    ]
    return left, type(comm.mpi_comm).__name__, float(model.predictor.first.W.array.sum())


comm = chainermn.create_communicator("naive")
results = train(comm, sys.argv[1])
Path(sys.argv[1], f"{comm.rank}.json").write_text(json.dumps(results))
