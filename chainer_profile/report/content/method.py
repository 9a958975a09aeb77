"""Summary -> the sections of the experiment, its environment and its method."""

from __future__ import annotations

from collections.abc import Iterator

from chainer_profile.analyse.findings import takes_options
from chainer_profile.analyse.shares import whole
from chainer_profile.analyse.summary import Summary
from chainer_profile.analyse.threads import probed_threads
from chainer_profile.basics.describe import MIN_TRIALS
from chainer_profile.basics.sentences import fill
from chainer_profile.basics.units import format_count, plural
from chainer_profile.basics.words import BACKWARD, COMMUNICATION, DATA, FORWARD, UPDATE
from chainer_profile.record.recording import Recording, Settings
from chainer_profile.report import text as words
from chainer_profile.report.columns import properties
from chainer_profile.report.document import Block, Code, Text, Words, points, sentences, text


def experiment(summary: Summary) -> Iterator[Block]:
    """The network, the trial and the mode that were measured."""
    recording = summary.recording
    settings = recording.settings
    measured = "each function call of the network takes"
    if summary.several_phases:
        measured = "each function takes in each phase of a trial"
    if settings.engine:
        measured = f"each node of {words.printable(settings.engine)} takes"
    trial = ", and how long a whole trial takes" if recording.trial_ns is not None else ""
    yield text(f"We measured how long {measured}{trial}.")
    network, example = f"{words.model_name(settings)}, {words.weights_text(settings)}", "image"
    if recording.of_program:  # a program's: nobody asked for weights, or for a batch
        network, example = words.model_name(settings), "example"
    rows = [
        ("Network", network),
        ("Trial", words.trial_text(recording)),
        _rows_of(summary),
        ("Input", words.input_text(settings)),
        ("Batch", plural(settings.batchsize, example) if settings.batchsize else ""),
        ("Engine", settings.engine),
        ("Device", settings.device),
        ("Mode", words.mode_text(settings)),
        *words.option_rows(settings),
        ("Trials", words.trials_text(recording)),
    ]
    yield properties(words.printable_rows(rows), "The experiment")
    yield Text(_mode(summary))


def _rows_of(summary: Summary) -> words.Row:
    """The number of layers, and of each phase where there are several."""
    layers = summary.layers
    if not summary.several_phases:
        engine = summary.recording.settings.engine
        return "Nodes" if engine else "Function calls", format_count(len(layers))
    counts = layers["phase"].value_counts(sort=False)
    phases = ", ".join(f"{format_count(int(n))} {phase}" for phase, n in counts.items())
    return "Layers", f"{format_count(len(layers))}: {phases}"


#: The first of these that holds says in which mode the network ran.
_MODES = {
    "engine": "The engine computed the network's output as in inference.",
    "graph": (
        "The network ran in {mode} and with backprop (`chainer.config.enable_backprop` was on), "
        "because its forward pass computes gradients."
    ),
    "training train": (
        "The network ran in train mode (`chainer.config.train` was on), as in training: batch "
        "normalisation computes the batch's statistics, dropout drops, and the forward pass keeps "
        "what the backward pass needs. Times in inference differ."
    ),
    "training": "The network ran in test mode (`chainer.config.train` was off).",
    "train": (
        "As requested, the network ran in train mode (`chainer.config.train` was on): batch "
        "normalisation computes the batch's statistics and dropout drops. Inference uses test "
        "mode, so its times differ."
    ),
    "fixed": (
        "The network ran as in inference: in test mode (`chainer.config.train` was off) and "
        "without backprop, so batch normalisation used its stored averages "
        "(`FixedBatchNormalization`)."
    ),
    "": (
        "The network ran as in inference: in test mode (`chainer.config.train` was off) and "
        "without backprop."
    ),
}


def _mode(summary: Summary) -> Words:
    settings = summary.recording.settings
    facts = {
        "engine": settings.engine,
        "graph": settings.with_graph,
        "mode": "train mode" if settings.train_mode else "test mode",
        "training": summary.several_phases or settings.phase != "forward",
        "train": settings.train_mode,
        "fixed": "FixedBatchNormalization" in summary.functions.index,
    }
    return next(sentences(_MODES.items(), facts))


def environment(summary: Summary) -> Iterator[Block]:
    rows = words.environment_rows(summary.recording.environment) + words.gpu_rows(summary.recording)
    if rows:
        yield properties(rows, "The machine and its software")
    else:
        yield text("No information about the machine was recorded.")


def command(summary: Summary) -> Iterator[Block]:
    """The command that makes the run again."""
    typed = words.printable(summary.recording.settings.command)
    yield Code(typed) if typed else text("The run was not started from the command line.")


# fmt: off
_POINTS = (
    ("engine", "The network ran under {engine} with the same weights, not under Chainer."),
    ("probe", "BLAS ran with {probe}."),
    ("warmups", "{warmups} came first and are not counted."),
    ("engine clean",
     "{clean:unprofiled trial} ran without the engine's profiling, in turn with those of other "
     "engines. Quote their latency."),
    ("engine",
     "The times of nodes are the engine's own, from {trials:trial} with its profiling switched "
     "on."),
    ("engine",
     "Runtime overhead is the time of such a trial minus the sum of its nodes: the engine's work "
     "between them, and its profiling."),
    ("-engine program",
     "{trials:trial} of the program were profiled: each but those in which memory was counted. "
     "Their times, and the rows', contain the profiler's{price}."),
    ("-engine -program apart",
     "{clean:unprofiled trial} ran without any hook, {order} the {profiled}. Quote the {quoted} "
     "of the unprofiled trials; the layers' times come from the profiled ones."),
    ("-engine -program -apart", "The layers' times come from {profiled}."),
    ("device",
     "The layers' times are the GPU's: the profiler records an event in its queue on entering and "
     "on leaving each layer. Nothing waits for these events; they are read after one "
     "synchronisation at the end of each trial."),
    ("device",
     "A layer's time runs from event to event. It contains the layer's own work and the time the "
     "GPU waited within the layer for the host to launch the next kernel."),
    ("device",
     "The trials' times are the host's: from the first call until the GPU has finished. Launching "
     "is the part until everything was launched; waiting is the rest."),
    ("device held",
     "{held:held trial} came last: the GPU started each of them only after the host had launched "
     "all of it, so it never waited. Their medians say how long the GPU is busy in each layer; "
     "they are used nowhere else."),
    ("-inclusive -engine",
     "A layer's time is its self time: it excludes the calls made within it."),
    ("loss", "Functions of the loss outside all links have the path `loss`."),
    ("backward",
     "The backward pass of a function has its own row, in the link that made the call. Its column "
     "`forward_index` in the table of all layers names the call that it goes back through."),
    ("accumulation",
     "If several functions use a variable, its gradients are added up: the row "
     "`gradient_accumulation`, in the link whose backward adds them."),
    ("cleargrads",
     "Clearing the gradients before the backward pass is the row `cleargrads` of the backward "
     "phase."),
    ("communication",
     "A collective of the optimizer is a row of the phase communication, at the path of the "
     "parameter that it moves. Its time lasts until this rank leaves it, so it includes waiting "
     "for the last rank."),
    ("update",
     "The update of all parameters of a link is one row, named after the optimizer; its calls are "
     "the parameter arrays."),
    ("hooks", "The optimizer's hooks ({hooks}) process all parameters; their path is `optimizer`."),
    ("data", "Loading a batch and converting it to arrays are rows at the path `data`."),
    ("framework -device -phases",
     "Framework time is the profiled trial minus the sum of its layers: the time between the "
     "functions, such as type checks and creating variables."),
    ("framework -device phases",
     "Framework time is the profiled trial minus the sum of its layers: the time between the "
     "rows, such as type checks, creating variables and walking back through the graph. It is "
     "known for each phase; time outside all phases has its own row. Freeing the graph comes "
     "after the backward phase, so it is framework time of the update in a training step."),
    ("framework device",
     "Framework time is the profiled trial minus the sum of its layers: the trial's wall time "
     "minus the layers' time on the GPU. It lies between the layers and after the last one; the "
     "GPU mostly waits for the host then.{of_phases}"),
    ("",
     "The time to quote is the median, which a few slow trials do not affect. All parts of a trial "
     "(layers, framework, groups, links) are means over the profiled trials, because only means "
     "add up. A share is such a mean divided by the mean {whole}. Inputs per second are the batch "
     "divided by the mean trial."),
    ("",
     "The more the trials resemble their neighbours, the wider is the 95 % confidence interval of "
     "the median. If the machine drifts slowly, the interval ends at the extreme medians of 20 "
     "parts of the run. Fewer than {least} trials have none."),
    ("rate_of_zero",
     "The optimizer's learning rate is 0, so all trials have the same weights; the update's "
     "arithmetic is the same at any rate."),
    ("step", "The smallest observed step of the {clock} is {step:ns}."),
    ("window",
     "An empty function shows {window:ns}: {timed} contains this much of the recorder's own time."),
    ("counted",
     "{counted:trial} after the timed ones counted CPU time, page faults and context switches; "
     "only these contain the cost of reading, {reading:ns} a call."),
)
# fmt: on

_GPU_PHASES = (
    " Framework time of a phase is the time on the GPU between its layers; time outside all phases "
    "has its own row."
)


def method(summary: Summary) -> Iterator[Block]:
    """How times were taken, and what they mean."""
    recording, totals, layers = summary.recording, summary.totals, summary.layers
    settings, conditions, clean = recording.settings, recording.conditions, totals.clean
    on_device, counters = recording.on_device, recording.counters
    phases = set(layers["phase"])
    paths = {(row.phase, row.path) for row in layers.itertuples()}
    hooks = layers[(layers["phase"] == UPDATE) & (layers["path"] == "optimizer")]["function"]
    reading = None if counters is None else counters["wall_ns"]
    # Without starts the order is unknown: in a race of engines unprofiled trials come first.
    known_order = recording.start_ns is not None
    facts = {
        "engine": settings.engine and words.printable(settings.engine),
        "probe": _threads(recording),
        "warmups": _warmups(recording),
        "clean": clean and clean.count,
        "trials": recording.n_trials,
        "program": recording.of_program,
        "price": fill(", {ns:ns} a call", ns=conditions.call_ns) if conditions.call_ns else "",
        "profiled": words.profiled_text(recording),
        "quoted": "time" if summary.several_phases else "latency",
        "apart": clean and recording.trial_ns is not None,
        "order": "in blocks that alternate with" if known_order else "separately from",
        "device": on_device,
        "held": summary.device.held_trials if summary.device else 0,
        "inclusive": settings.inclusive,
        "loss": (FORWARD, "loss") in paths,
        "backward": BACKWARD in phases,
        "accumulation": "gradient_accumulation" in set(layers["function"]),
        "cleargrads": (BACKWARD, "cleargrads") in paths,
        "communication": COMMUNICATION in phases,
        "update": UPDATE in phases,
        "hooks": ", ".join(map(words.printable, dict.fromkeys(hooks))),
        "data": DATA in phases,
        "framework": totals.framework and not settings.engine,
        "phases": recording.phases,
        "of_phases": _GPU_PHASES if recording.phases else "",
        "whole": whole(summary)[1],
        "least": MIN_TRIALS,
        "rate_of_zero": has_rate_of_zero(settings),
        "step": conditions.clock_resolution_ns,
        "clock": "host's clock" if on_device else "clock",
        "window": conditions.window_ns,
        "timed": "the host's time in every layer" if on_device else "every layer's time",
        "counted": counters and reading and counters.trials,
        "reading": reading and reading.window,
    }
    yield points(sentences(_POINTS, facts))


def _threads(recording: Recording) -> str:
    probe = probed_threads(recording)
    most = max((library.threads for library in recording.environment.blas), default=0)
    return "" if probe is None else probe.text(most)


def _warmups(recording: Recording) -> str:
    wanted = recording.settings.warmups
    made = len(recording.warmup_ns) or wanted
    fewer = f" of {format_count(wanted)} requested" if made < wanted else ""
    return f"{plural(made, 'warm-up trial')}{fewer}" if made else ""


def has_rate_of_zero(settings: Settings) -> bool:
    """Whether the run trained with the default optimizer of our own command line."""
    ours = takes_options(settings) and settings.optimizer == "MomentumSGD"
    return ours and settings.phase == "train"
