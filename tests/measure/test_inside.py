"""The sampling pass: the layer of a sampled stack, and shares of the time in layers."""

import itertools
import sys
from pathlib import Path

import chainer.functions as F
import chainer.links as L
import pytest

import chainer_profile
from chainer_profile.basics.errors import ProfileError
from chainer_profile.measure import inside, layer_frames, samplers
from chainer_profile.measure.inside import look_inside
from chainer_profile.measure.layer_frames import FILE
from chainer_profile.measure.samplers import Frame, Samples, read_py_spy
from chainer_profile.measure.steps import make_step
from chainer_profile.record.recording import Inside, Layer
from tests.nets import image, net

LAYERS = (
    Layer(0, "/conv", "Convolution2DFunction"),
    Layer(1, "/", "ReLU", parent=0),
    Layer(2, "/", "ReLU"),
    Layer(3, "/", "ReLU", phase="backward", forward=2),
    Layer(4, "/conv", "MomentumSGD", phase="update"),
    Layer(5, "optimizer", "WeightDecay", phase="update"),
    Layer(6, "cleargrads", "cleargrads", phase="backward"),
    Layer(7, "/", "gradient_accumulation", phase="backward"),
)


def layer_frame(name):
    return Frame(FILE, name, 1)


def chainer_frame(file, function, line=7):
    return Frame(f"/site-packages/chainer/{file}", function, line)


PROFILER_FRAME = Frame(f"{Path(inside.__file__).parent}/layer_frames.py", "_Frames.run", 70)
APPLY = chainer_frame("function_node.py", "FunctionNode.apply", 300)
BACKWARD = [layer_frame("1_ReLU@ backward"), chainer_frame("_backprop_utils.py", "backprop_step")]
IN_NUMPY = [chainer_frame("f.py", "ReLU.forward"), Frame("/n.py", "maximum")]
UPDATE = [chainer_frame("variable.py", "Parameter.update"), chainer_frame("optimizer.py", "update")]


@pytest.mark.parametrize(
    ("stack", "row", "function", "n_kept"),
    [
        (
            [
                PROFILER_FRAME,
                layer_frame("0_Convolution2DFunction@"),
                APPLY,
                chainer_frame("f.py", "forward"),
            ],
            0,
            "",
            1,
        ),
        # A nested call has no label.
        ([layer_frame("1_ReLU@/x"), APPLY, *IN_NUMPY], 2, "", 2),
        # Time in apply itself is framework time.
        ([layer_frame("1_ReLU@"), APPLY], None, "", 1),
        (
            [layer_frame("1_ReLU@"), APPLY, chainer_frame("variable.py", "Variable.__init__")],
            None,
            "",
            2,
        ),
        ([*BACKWARD, chainer_frame("f.py", "backward")], 3, "", 1),
        (
            [*BACKWARD, chainer_frame("_backprop_utils.py", "_reduce"), APPLY],
            *(None, "gradient_accumulation", 2),
        ),
        (UPDATE, None, "MomentumSGD", 1),
        ([chainer_frame("optimizer_hooks/weight_decay.py", "__call__")], None, "WeightDecay", 1),
        ([chainer_frame("link.py", "Link.cleargrads")], None, "cleargrads", 1),
        # No row has this function.
        ([layer_frame("9_Exp@"), APPLY, chainer_frame("f.py", "forward")], None, "", 2),
    ],
)
def test_row_and_function_of_a_stack(stack, row, function, n_kept):
    spent = inside._spent(iter([(tuple(stack), 0.5, 3)]), inside._Rows(LAYERS), lines=True)
    (((owner, frames), times),) = spent.items()
    assert (owner.row, owner.function, len(frames)) == (row, function, n_kept)
    assert times == (0.5, 3)


def look_inside_with_samples(monkeypatch, counts, by_link, has_lines=True):
    """Run the pass with a fake sampler, which sees functions ``counts`` in the only layer."""
    now_ns = iter(range(0, 10**12, 10**9))
    labels = []

    def frame_named(name):
        labels.append(name)
        return lambda call, *args: call(*args)

    def sample_stacks(run, *, stopped):
        run()
        prefix = (layer_frame("(trial)"), layer_frame(labels[-1]), APPLY)
        samples = {(*prefix, Frame("/f.py", f"{name}.forward", 1)): n for name, n in counts.items()}
        samples[(Frame("/main.py", "main", 1),)] = 50  # outside of the trials
        return Samples("py-spy 0.4.3", samples, has_lines)

    monkeypatch.setattr(inside, "sample_stacks", sample_stacks)
    monkeypatch.setattr(layer_frames, "frame_named", frame_named)
    step = make_step("forward", L.Linear(3, 2), (image(4, 3),))
    layers = (Layer(0, "/", "LinearFunction"),)
    with step.configured():
        return look_inside(step, layers, [1e-6], lambda: next(now_ns), seconds=4, by_link=by_link)


@pytest.mark.parametrize("by_link", [False, True])
def test_shares_become_seconds_unless_samples_are_too_few(monkeypatch, by_link):
    result = look_inside_with_samples(monkeypatch, {"A": 150, "B": 50}, by_link)
    # Each reading advances the clock by a second, so a trial takes one second.
    assert [(stack.seconds, stack.samples, stack.row) for stack in result.stacks] == [
        (pytest.approx(0.75), 150, 0),
        (pytest.approx(0.25), 50, 0),
    ]
    assert (result.samples, result.seconds, result.trials) == (200, 2.0, 2)
    assert [place.function for place in result.places] == ["A.forward", "B.forward"]
    assert ([place.line for place in result.places], result.notes) == ([1, 1], ())
    without = look_inside_with_samples(monkeypatch, {"A": 150, "B": 50}, by_link, has_lines=False)
    assert [place.line for place in without.places] == [0, 0]
    assert "only functions are shown" in without.notes[0]
    with pytest.raises(ProfileError, match="99 samples of trials are too few"):
        look_inside_with_samples(monkeypatch, {"A": 99}, by_link)


def test_sampler_outputs_are_parsed():
    text = "main (/a b/x.py:3);<shim>;Link.__call__ (/c/link.py:2) 7\nno count\n"
    assert list(read_py_spy(text)) == [
        ((Frame("/a b/x.py", "main", 3), Frame("/c/link.py", "Link.__call__", 2)), 7)
    ]
    line = samplers.read_collapsed.__code__.co_firstlineno + 3
    text = f"tid:1;samplers.py:read_collapsed:{line};elsewhere.py:f:2;<GC> 4\n"
    frames = (
        Frame(samplers.__file__, "read_collapsed", line),
        Frame("elsewhere.py", "f", 2),
        Frame("~", "<GC>"),
    )
    threads = text + text.replace("tid:1", "tid:2")
    assert samplers._counted(samplers.read_collapsed(threads)) == {frames: 8}


def test_message_without_a_sampler_says_what_to_install_or_permit(monkeypatch):
    command = [sys.executable, "-c", "import sys; sys.exit('Permission denied')"]
    denied = r"recorded nothing \(Permission denied\): run as root, or permit ptrace"
    with pytest.raises(ProfileError, match=denied):
        samplers._run_sampled(command, "never", lambda: pytest.fail("nobody looks"))
    monkeypatch.setattr(samplers.shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(sys, "version_info", (3, 12, 0))
    with pytest.raises(ProfileError, match=r"^py-spy is not installed \(python -m pip install"):
        samplers.sample_stacks(lambda: pytest.fail("nobody looks"), stopped=False)


def test_run_records_sampled_layers_or_warns(monkeypatch):
    def look(step, layers, medians_s, now_ns, *, seconds, by_link, **_):
        if by_link:
            raise ProfileError("sampling is impossible")
        return Inside("fake", len(layers), seconds, len(medians_s))

    def profiled(function):
        model = net(lambda self, x: F.relu(function(x)))
        return chainer_profile.profile(model, image(4, 3), trials=3, warmups=1, why=True)

    monkeypatch.setattr(inside, "look_inside", look)
    assert profiled(F.identity).inside == Inside("fake", 2, inside.SECONDS, 2)
    functions = itertools.cycle([F.exp, F.identity])
    with pytest.warns(UserWarning, match="the layers were not sampled: sampling is impossible"):
        recording = profiled(lambda x: next(functions)(x))
    assert (recording.inside, recording.n_trials) == (None, 3)
