from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer import serializers

from chainer_profile.engines.folded import optimize as folded_module
from chainer_profile.engines.folded.fold import Node
from chainer_profile.engines.folded.optimize import optimize
from chainer_profile.engines.folded.plan import Plan
from tests.engines.checking import check_optimized, differences
from tests.engines.varied import Deciding, Residual, given, images, output, relative, vary


@pytest.fixture(autouse=True)
def timeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """No plan is slower than the network, whatever else the machine does."""
    monkeypatch.setattr(folded_module, "_now", lambda: 0.0)


@pytest.fixture
def model() -> Any:
    return vary(Residual())


X = images(2, 3, 6, 6)


def test_it_is_of_the_network_s_class_with_its_links_and_parameters(model: Any) -> None:
    folded = optimize(model)
    assert isinstance(folded, Residual)
    assert type(folded).__name__ == "FoldedResidual"
    assert [path for path, _ in folded.namedlinks()] == [path for path, _ in model.namedlinks()]
    for (path, ours), (_, theirs) in zip(folded.namedparams(), model.namedparams(), strict=True):
        np.testing.assert_array_equal(ours.array, theirs.array, err_msg=path)
        assert ours.array is not theirs.array


def test_it_gives_what_the_network_gives(model: Any) -> None:
    folded = optimize(model)
    for x in 3 * (X, images(2, 3, 6, 6, seed=9), images(5, 3, 9, 7)):
        expected, got = output(model, x), output(folded, x)
        assert isinstance(got, chainer.Variable)
        assert relative(expected.array, got.array) < 1e-6


def planned(model: Any, *inputs: Any) -> Any:
    """The network optimized, with a plan for these inputs."""
    folded = optimize(model)
    with chainer.using_config("train", False):
        folded.plan(inputs)
    return folded


def calls_of(model: Any, *inputs: Any) -> int:
    """How many of Chainer's functions a call makes: none where a plan is run."""
    with chainer.function_hooks.TimerHook() as hook:
        output(model, *inputs)
    return len(hook.call_history)


def test_no_chainer_function_runs_once_it_is_planned(model: Any) -> None:
    folded = optimize(model)
    n_calls = [calls_of(folded, X) for _ in range(4)]
    assert n_calls[0] == 10  # its own call
    assert n_calls[1] > 10  # a pass on other inputs, too
    assert n_calls[2:] == [0, 0]
    with chainer.function_hooks.TimerHook() as hook:
        output(folded, X)
    assert hook.call_history == []


def test_the_network_itself_is_left_as_it_was(model: Any) -> None:
    before = output(model, X).array
    output(optimize(model), X)
    assert type(model) is Residual
    np.testing.assert_array_equal(output(model, X).array, before)


def test_in_train_mode_it_is_the_network_s_own(model: Any) -> None:
    folded = planned(model, X)
    with chainer.using_config("train", True):
        first, second = model(X), folded(X)
    np.testing.assert_array_equal(first.array, second.array)
    second.grad = np.ones_like(second.array)
    second.backward()
    assert folded.conv1.W.grad is not None
    # The running averages have moved: they are folded anew.
    assert relative(output(model, X).array, output(folded, X).array) < 1e-6


@pytest.mark.parametrize("into", ["folded", "plain"])
def test_serializers_read_each_other_s_files(model: Any, into: str, tmp_path: Path) -> None:
    source: Any = optimize(model) if into == "plain" else model
    target: Any = planned(Residual(), X) if into == "folded" else Residual()
    serializers.save_npz(tmp_path / "weights.npz", source)
    serializers.load_npz(tmp_path / "weights.npz", target)
    assert relative(output(model, X).array, output(target, X).array) < 1e-6


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "copy", "optimize"])
def test_copies_are_on_their_own(model: Any, how: str) -> None:
    folded = planned(model, X)
    expected = output(folded, X).array
    ways = {
        "deepcopy": copy.deepcopy,
        "pickle": lambda net: pickle.loads(pickle.dumps(net)),
        "copy": lambda net: net.copy("copy"),
        "optimize": optimize,
    }
    copied = ways[how](folded)
    copied.fc.b.array[...] += 1
    assert relative(expected, output(copied, X).array) > 1e-3
    np.testing.assert_array_equal(output(folded, X).array, expected)
    assert type(copied) is type(folded)


class Pair(NamedTuple):
    first: Any
    second: Any


class Forms(chainer.Chain):
    def __init__(self, form: Any) -> None:
        super().__init__()
        self.form = form

    def forward(self, x: Any) -> Any:
        return self.form(F.relu(x), F.sigmoid(x))


@pytest.mark.parametrize(
    "form",
    [
        lambda a, b: (a, b),
        lambda a, b: [a, (b,)],
        lambda a, b: {"a": a, "b": [b]},
        Pair,
        lambda a, b: (a, b.array),
    ],
)
def test_outputs_have_the_network_s_form(form: Any) -> None:
    model = Forms(form)
    expected, got = output(model, X), output(planned(model, X), X)

    def assert_alike(a: Any, b: Any) -> None:
        assert type(a) is type(b)
        if isinstance(a, dict):
            assert a.keys() == b.keys()
            a, b = a.values(), b.values()
        if isinstance(a, chainer.Variable):
            a, b = a.array, b.array
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b)
        else:
            for x, y in zip(a, b, strict=True):
                assert_alike(x, y)

    assert_alike(expected, got)


def test_a_linear_layer_that_learns_its_size_at_the_first_call() -> None:
    model = chainer.Sequential(L.Linear(None, 3), F.relu)
    folded = optimize(model)
    for _ in range(3):
        got = output(folded, X)
        assert relative(F.relu(folded[0](X)).array, got.array) < 1e-6


def test_every_kind_of_block_at_once() -> None:
    model, x = given("se-resnet9-fixup", batch=2)
    assert relative(output(model, x).array, output(planned(model, x), x).array) < 1e-5


# -- what a plan must not be wrong about


def assert_same(model: Any, folded: Any, *inputs: Any) -> None:
    expected, got = output(model, *inputs), output(folded, *inputs)
    assert not differences(expected, got)


def changes(net: Any) -> dict[str, Any]:
    """Ways to change a network of class Residual, or a Sequential."""
    return {
        "a new parameter": lambda: setattr(net.fc.b, "array", net.fc.b.array + 1),
        "all of a parameter": lambda: net.conv2.W.array.__imul__(2),
        "a number of a small one": lambda: net.bn1.gamma.array.__setitem__(3, 7),
        "copyparams": lambda: net.copyparams(vary(Residual(), 5)),
        "copyparams of a link": lambda: net.conv1.copyparams(vary(Residual(), 5).conv1),
        "a new persistent": lambda: setattr(net.bn1, "avg_mean", net.bn1.avg_mean + 1),
        "numbers of a persistent": lambda: net.bn1.avg_var.__imul__(3),
        "eps": lambda: setattr(net.bn2, "eps", 0.5),
        "another link": lambda: setattr(net, "conv2", vary(Residual(), 6).conv2),
        "stride": lambda: setattr(net.conv1, "stride", (2, 2)),
        "configuration": lambda: None,
    }


@pytest.mark.parametrize("how", [*changes(None)])
def test_what_changes_is_seen(how: str) -> None:
    model, other = vary(Residual()), vary(Residual())
    for net in (model, other):
        net.conv2.W.array = np.asfortranarray(net.conv2.W.array)  # in any order
    folded = planned(other, X)
    assert calls_of(folded, X) == 0
    for net in (model, folded):
        changes(net)[how]()
    if how == "configuration":
        with chainer.using_config("dtype", np.float16):
            assert calls_of(folded, X) == 10
        return
    for _ in range(3):
        assert_same(model, folded, X)


def test_what_is_appended_is_seen() -> None:
    model = chainer.Sequential(L.Linear(4, 4), F.relu)
    folded = planned(model, images(2, 4))
    for net in (model, folded):
        net.append(F.sigmoid)
    for _ in range(3):
        assert_same(model, folded, images(2, 4))


def test_training_between_tests(model: Any) -> None:
    folded = optimize(model)
    optimizers = [chainer.optimizers.Adam(0.1).setup(net) for net in (model, folded)]
    for _ in range(3):
        for net, optimizer in zip((model, folded), optimizers, strict=True):
            with chainer.using_config("train", True):
                loss = F.sum(net(X) ** 2)
            net.cleargrads()
            loss.backward()
            output(net, X)
            optimizer.update()
        for _ in range(3):
            assert_same(model, folded, X)
    assert calls_of(folded, X) == 0


def test_a_classifier_around_it_is_trained_and_evaluated(tmp_path: Path) -> None:
    """By a Trainer with an Evaluator, which test it between two epochs."""
    found = []
    for fold in (lambda net: net, optimize):
        images_of, labels = images(24, 3, 6, 6), np.arange(24, dtype=np.int32) % 5
        data = chainer.datasets.TupleDataset(images_of, labels)
        classifier = L.Classifier(fold(vary(Residual())))
        optimizer = chainer.optimizers.SGD(0.01).setup(classifier)
        batches = [
            chainer.iterators.SerialIterator(data, 8, repeat=repeat, shuffle=False)
            for repeat in (True, False)
        ]
        updater = chainer.training.StandardUpdater(batches[0], optimizer)
        trainer = chainer.training.Trainer(updater, (3, "epoch"), out=tmp_path)
        trainer.extend(chainer.training.extensions.Evaluator(batches[1], classifier))
        log = chainer.training.extensions.LogReport()
        trainer.extend(log)
        trainer.run()
        names = ("main/loss", "validation/main/loss", "validation/main/accuracy")
        found.append([entry[name] for entry in log.log for name in names])
    assert len(found[0]) == 9
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def test_one_number_of_a_large_array_is_seen_after_some_calls() -> None:
    model = chainer.Sequential(L.Linear(400, 400))
    x = images(2, 400)
    folded = planned(model, x)
    folded[0].W.array[123, 45] += 1
    n_calls = [calls_of(folded, x) for _ in range(30)]
    assert any(n_calls)


@pytest.mark.parametrize("way", ["backward", "grad", "twice"])
def test_gradients_are_the_network_s(model: Any, way: str) -> None:
    folded = planned(model, X)
    found = []
    for net in (model, folded):
        with chainer.using_config("train", False):
            y = net(X)
            net.cleargrads()
            if way == "backward":
                F.sum(y**2).backward()
                found.append([parameter.grad for _, parameter in sorted(net.namedparams())])
            else:
                wanted = [net.conv1.W, net.fc.W]
                grads = chainer.grad([F.sum(y**2)], wanted, enable_double_backprop=True)
                if way == "twice":
                    grads = chainer.grad([F.sum(grads[0] ** 2)], wanted)
                found.append([grad.array for grad in grads])
    for ours, theirs in zip(*found, strict=True):
        assert relative(ours, theirs) < 1e-4


def test_a_gradient_of_the_input_is_the_network_s_own(model: Any) -> None:
    folded = planned(model, X)
    x = chainer.Variable(X)
    with chainer.using_config("train", False):
        F.sum(folded(x)).backward()
    assert x.grad is not None


def test_noise_is_drawn_anew_as_the_network_draws_it() -> None:
    class Noisy(chainer.Chain):
        def forward(self, x: Any) -> Any:
            h = F.gaussian(F.relu(x), F.sigmoid(x))
            with chainer.using_config("train", True):
                return F.dropout(h, 0.3)

    x = images(3, 50)
    found = []
    for net in (Noisy(), optimize(Noisy())):
        np.random.seed(5)  # noqa: NPY002 (Chainer draws from it)
        found.append([output(net, x).array for _ in range(5)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert not np.array_equal(found[1][3], found[1][4])


def test_a_mask_among_the_inputs() -> None:
    class Masked(chainer.Chain):
        def forward(self, mask: Any, x: Any) -> Any:
            return F.where(mask, F.relu(x) + 1, F.tanh(x))

    folded = planned(Masked(), images(3, 4) > 0, images(3, 4))
    for seed in range(5):
        mask, x = images(3, 4, seed=seed) > 0, images(3, 4, seed=seed + 9)
        assert_same(Masked(), folded, mask, x)
    assert calls_of(folded, mask, x) == 0


class Keeping(chainer.Chain):
    """Counts its calls, and what it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0.0

    def forward(self, x: Any) -> Any:
        self.seen += float(x.shape[0])
        return F.relu(x) + self.seen


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (Deciding, "depend on its data: its own code looks at numbers"),
        (Keeping, "keeps something from call to call: seen of its Keeping"),
        (lambda: L.StatefulGRU(4, 4), "keeps something from call to call: h of its StatefulGRU"),
        (lambda: L.Classifier(L.Linear(4, 4)), "keeps something from call to call"),
    ],
)
def test_a_network_that_cannot_be_planned_runs_as_it_is(model: Any, why: str) -> None:
    plain = model()
    folded = optimize(plain)
    inputs = (images(3, 4),)
    if isinstance(plain, L.Classifier):
        inputs += (np.array([1, 0, 2], np.int32),)
    assert_same(plain, folded, *inputs)
    with pytest.warns(RuntimeWarning, match=f"optimize: .* runs as it is: .*{why}"):
        assert_same(plain, folded, *inputs)
    for seed in range(4):
        assert_same(plain, folded, images(3, 4, seed=seed), *inputs[1:])


def test_values_are_reported_once_by_the_network_s_own_calls() -> None:
    class Reporting(chainer.Chain):
        def forward(self, x: Any) -> Any:
            y = F.relu(x)
            chainer.report({"most": F.max(y)}, self)
            return y

    folded = optimize(Reporting())
    reporter = chainer.Reporter()
    reporter.add_observer("net", folded)
    for seed in range(4):
        x, seen = images(2, 3, seed=seed), {}
        with reporter.scope(seen):
            if seed == 1:
                with pytest.warns(RuntimeWarning, match="reports values"):
                    output(folded, x)
            else:
                output(folded, x)
        assert float(seen["net/most"].array) == x.max()


def test_a_network_that_raises_raises_what_it_raises() -> None:
    folded = optimize(L.Linear(3, 4))
    for _ in range(3):
        with pytest.raises(chainer.utils.type_check.InvalidType):
            output(folded, images(2, 5))


class OldStyle(Residual):
    def __call__(self, x: Any) -> Any:
        return Residual.forward(self, x)


def test_a_chain_that_defines_its_call() -> None:
    model = vary(OldStyle())
    folded = planned(model, X)
    assert_same(model, folded, X)
    assert calls_of(folded, X) == 0


def test_an_optimized_network_within_another() -> None:
    inner = vary(Residual())
    plain, nested = chainer.Sequential(inner, F.relu), chainer.Sequential(optimize(inner), F.relu)
    folded = optimize(nested)
    for _ in range(4):
        assert_same(plain, folded, X)
    assert calls_of(folded, X) == 0
    for _ in range(3):
        assert_same(plain, nested, X)
    assert calls_of(nested, X) == 1


def wrong_weights(nodes: list[Node], *_: Any) -> list[Node]:
    for node in nodes:
        if node.kind == "linear":
            node.weight = node.weight * 1.01
    return nodes


@pytest.mark.filterwarnings("ignore:optimize")
@pytest.mark.parametrize("fault", [wrong_weights, lambda nodes, *_: 1 / 0])
def test_a_plan_that_is_wrong_is_not_used(monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    monkeypatch.setattr(folded_module, "fold", fault)
    model = vary(Residual())
    folded = optimize(model)
    for _ in range(4):
        assert_same(model, folded, X)
    assert calls_of(folded, X) == 10


@pytest.mark.parametrize(("seconds", "n_calls"), [(5.0, 10), (0.5, 0)])
def test_a_plan_that_is_slower_is_not_used(
    monkeypatch: pytest.MonkeyPatch, seconds: float, n_calls: int
) -> None:
    now = [0.0]

    class Net(Residual):
        def forward(self, x: Any) -> Any:
            now[0] += 1.0
            return super().forward(x)

    def run(plan: Any, *args: Any) -> Any:
        now[0] += seconds
        return plain_run(plan, *args)

    plain_run = Plan.__call__
    monkeypatch.setattr(folded_module, "_now", lambda: now[0])
    monkeypatch.setattr(Plan, "__call__", run)
    folded = optimize(vary(Net()))
    for _ in range(3):
        output(folded, X)
    assert calls_of(folded, X) == n_calls


def test_shapes_in_turn_are_not_planned_again_and_again(model: Any) -> None:
    folded = optimize(model)
    for _ in range(6):
        for batch in range(1, 13):
            assert_same(model, folded, images(batch, 3, 6, 6))
    n_calls = [calls_of(folded, images(batch, 3, 6, 6)) for batch in range(1, 13)]
    assert n_calls == 8 * [0] + 4 * [10]


def test_a_shape_that_comes_often_takes_the_place_of_one_that_does_not(model: Any) -> None:
    folded = optimize(model)
    for batch in range(1, 9):
        for _ in range(2):
            output(folded, images(batch, 3, 6, 6))
    for _ in range(9):
        output(folded, images(20, 3, 6, 6))
    assert calls_of(folded, images(20, 3, 6, 6)) == 0
    assert len(vars(folded)["_folded"].planned) == 8
    assert calls_of(folded, images(1, 3, 6, 6)) == 10


def test_a_shape_seen_once_is_the_network_s_own(model: Any) -> None:
    folded = optimize(model)
    for batch in range(1, 30):
        assert calls_of(folded, images(batch, 3, 6, 6)) == 10


@pytest.mark.filterwarnings("ignore:optimize")
@pytest.mark.parametrize("first", range(0, 300, 30))
def test_random_networks(first: int) -> None:
    """benchmarks/random_networks.py tries more of them."""
    n_planned = 0
    for seed in range(first, first + 30):
        found = check_optimized(seed)
        assert not found.wrong, f"seed {seed}"
        n_planned += found.planned
    assert n_planned >= 29
