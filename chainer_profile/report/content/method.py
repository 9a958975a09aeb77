"""Summary -> the sections on the experiment, its environment and its methodology."""

from __future__ import annotations

from collections.abc import Iterator

from chainer_profile.analyse.findings import takes_options
from chainer_profile.analyse.shares import whole_time
from chainer_profile.analyse.summary import Summary
from chainer_profile.analyse.threads import probed_threads
from chainer_profile.basics.describe import MIN_TRIALS, NS
from chainer_profile.basics.units import format_count, format_duration, plural
from chainer_profile.basics.words import BACKWARD, COMMUNICATION, DATA, FORWARD, UPDATE
from chainer_profile.record.recording import Recording, Settings
from chainer_profile.report import text as run_text
from chainer_profile.report.columns import properties
from chainer_profile.report.document import Block, Code, Inline, Text, code, points, text, with_code


def experiment(summary: Summary) -> Iterator[Block]:
    """The section that describes the network, the trial and the mode."""
    recording = summary.recording
    settings = recording.settings
    measured = "each function call of the network takes"
    if summary.several_phases:
        measured = "each function takes in each phase of a trial"
    if settings.engine:
        measured = f"each node of {run_text.printable(settings.engine)} takes"
    trial = ", and how long a whole trial takes" if recording.trial_ns is not None else ""
    yield text(f"We measured how long {measured}{trial}.")
    network, example = (
        f"{run_text.model_name(settings)}, {run_text.weights_text(settings)}",
        "image",
    )
    if recording.of_program:  # the program, not the user, chose weights and batch
        network, example = run_text.model_name(settings), "example"
    rows = [
        ("Network", network),
        ("Trial", run_text.trial_text(recording)),
        _count_row(summary),
        ("Input", run_text.input_text(settings)),
        ("Batch", plural(settings.batchsize, example) if settings.batchsize else ""),
        ("Engine", settings.engine),
        ("Device", settings.device),
        ("Mode", run_text.mode_text(settings)),
        *run_text.option_rows(settings),
        ("Trials", run_text.trials_text(recording)),
    ]
    yield properties(run_text.printable_rows(rows), "The experiment")
    yield Text(with_code(_mode(summary)))


def _count_row(summary: Summary) -> run_text.Row:
    """The row with the number of layers, by phase if there are several phases."""
    layers = summary.layers
    if not summary.several_phases:
        engine = summary.recording.settings.engine
        return "Nodes" if engine else "Function calls", format_count(len(layers))
    counts = layers["phase"].value_counts(sort=False)
    phases = ", ".join(f"{format_count(int(n))} {phase}" for phase, n in counts.items())
    return "Layers", f"{format_count(len(layers))}: {phases}"


def _mode(summary: Summary) -> str:
    """Describe the mode in which the network ran, and its effect."""
    settings = summary.recording.settings
    mode = "train mode" if settings.train_mode else "test mode"
    if settings.engine:
        return "The engine computed the network's output as in inference."
    if settings.with_graph:
        return (
            f"The network ran in {mode} and with backprop (`chainer.config.enable_backprop` was "
            "on), because its forward pass computes gradients."
        )
    trains = summary.several_phases or settings.phase != "forward"
    if trains and settings.train_mode:
        return (
            "The network ran in train mode (`chainer.config.train` was on), as in training: batch "
            "normalisation computes the batch's statistics, dropout drops, and the forward pass "
            "keeps what the backward pass needs. Times in inference differ."
        )
    if trains:
        return "The network ran in test mode (`chainer.config.train` was off)."
    if settings.train_mode:
        return (
            "As requested, the network ran in train mode (`chainer.config.train` was on): batch "
            "normalisation computes the batch's statistics and dropout drops. Inference uses test "
            "mode, so its times differ."
        )
    averages = ""
    if "FixedBatchNormalization" in summary.functions.index:
        averages = ", so batch normalisation used its stored averages (`FixedBatchNormalization`)"
    return (
        "The network ran as in inference: in test mode (`chainer.config.train` was off) and "
        f"without backprop{averages}."
    )


def environment(summary: Summary) -> Iterator[Block]:
    rows = run_text.environment_rows(summary.recording.environment) + run_text.gpu_rows(
        summary.recording
    )
    if rows:
        yield properties(rows, "The machine and its software")
    else:
        yield text("No information about the machine was recorded.")


def command(summary: Summary) -> Iterator[Block]:
    """The command that started the run, to repeat it."""
    command_line = run_text.printable(summary.recording.settings.command)
    if command_line:
        yield Code(command_line)
    else:
        yield text("The run was not started from the command line.")


def method(summary: Summary) -> Iterator[Block]:
    """The section on how times were measured, and what they mean."""
    topics = (_trials, _gpu, _rows, _framework, _figures)
    sentences = (sentence for topic in topics for sentence in topic(summary))
    # Sentences with names that may contain backticks are Inline, in which backticks are plain text.
    yield points(with_code(each) if isinstance(each, str) else each for each in sentences)


def _trials(summary: Summary) -> Iterator[str | Inline]:
    """Sentences on how the trials ran."""
    recording, clean = summary.recording, summary.totals.clean
    settings, count = recording.settings, recording.n_trials
    if settings.engine:
        engine = run_text.printable(settings.engine)
        yield (f"The network ran under {engine} with the same weights, not under Chainer.",)
    if threads := _threads(recording):
        yield f"BLAS ran with {threads}."
    if warmups := _warmups(recording):
        yield f"{warmups} came first and are not counted."
    if settings.engine:
        if clean:
            yield (
                f"{plural(clean.count, 'unprofiled trial')} ran without the engine's profiling, "
                "interleaved with those of other engines. Quote their latency."
            )
        yield (
            f"The times of nodes are the engine's own, from {plural(count, 'trial')} with its "
            "profiling switched on."
        )
        yield (
            "Runtime overhead is the time of such a trial minus the sum of its nodes: the engine's "
            "work between them, and its profiling."
        )
    elif recording.of_program:
        call_ns = recording.conditions.call_ns
        price = f", {format_duration(call_ns * NS)} a call" if call_ns else ""
        yield (
            f"{plural(count, 'trial')} of the program were profiled: all except those in which "
            "memory was counted. Their times, and those of rows, contain the time of the "
            f"profiler{price}."
        )
    elif clean and recording.trial_ns is not None:
        # Without start times the order is unknown: a race of engines runs unprofiled trials first.
        known = recording.start_ns is not None
        order = "in blocks that alternate with" if known else "separately from"
        quoted = "time" if summary.several_phases else "latency"
        yield (
            f"{plural(clean.count, 'unprofiled trial')} ran without any hook, {order} the "
            f"{run_text.profiled_text(recording)}. Quote the {quoted} of the unprofiled trials; "
            "the layers' times come from the profiled ones."
        )
    else:
        yield f"The layers' times come from {run_text.profiled_text(recording)}."


def _gpu(summary: Summary) -> Iterator[str]:
    """Sentences on how times on a GPU were measured."""
    if not summary.recording.on_device:
        return
    yield (
        "The layers' times are the GPU's: the profiler records an event in its queue on entering "
        "and on leaving each layer. Nothing waits for these events; they are read after one "
        "synchronisation at the end of each trial."
    )
    yield (
        "A layer's time runs from event to event. It contains the layer's own work and the time "
        "the GPU waited within the layer for the host to launch the next kernel."
    )
    yield (
        "The trials' times are the host's: from the first call until the GPU has finished. "
        "Launching is the part until everything was launched; waiting is the rest."
    )
    if summary.device and summary.device.held_trials:
        yield (
            f"{plural(summary.device.held_trials, 'held trial')} came last: the GPU started each "
            "of them only after the host had launched all of it, so it never waited. Their medians "
            "show how long the GPU is busy in each layer; they are used nowhere else."
        )


def _rows(summary: Summary) -> Iterator[str | Inline]:
    """Sentences on what each kind of row contains."""
    recording, layers = summary.recording, summary.layers
    phases = set(layers["phase"])
    paths = {(row.phase, row.path) for row in layers.itertuples()}
    if not recording.settings.inclusive and not recording.settings.engine:
        yield "A layer's time is its self time: it excludes the calls made within it."
    if (FORWARD, "loss") in paths:
        yield "Functions of the loss outside all links have the path `loss`."
    if BACKWARD in phases:
        yield (
            "The backward pass of a function has its own row, in the link that made the call. Its "
            "column `forward_index` in the table of all layers names the call that it goes back "
            "through."
        )
    if "gradient_accumulation" in set(layers["function"]):
        yield (
            "If several functions use a variable, its gradients are added up: the row "
            "`gradient_accumulation`, in the link whose backward adds them."
        )
    if (BACKWARD, "cleargrads") in paths:
        yield (
            "Clearing the gradients before the backward pass is the row `cleargrads` of the "
            "backward phase."
        )
    if COMMUNICATION in phases:
        yield (
            "A collective of the optimizer is a row of the phase communication, at the path of the "
            "parameter that it moves. Its time lasts until this rank leaves it, so it includes "
            "waiting for the last rank."
        )
    if UPDATE in phases:
        yield (
            "The update of all parameters of a link is one row, named after the optimizer; its "
            "calls are the parameter arrays."
        )
    hooks = layers[(layers["phase"] == UPDATE) & (layers["path"] == "optimizer")]["function"]
    if names := ", ".join(map(run_text.printable, dict.fromkeys(hooks))):
        sentence = f"The optimizer's hooks ({names}) process all parameters; their path is "
        yield (sentence, code("optimizer"), ".")
    if DATA in phases:
        yield "Loading a batch and converting it to arrays are rows at the path `data`."


def _framework(summary: Summary) -> Iterator[str]:
    """A sentence that defines framework time."""
    recording = summary.recording
    if not summary.totals.framework or recording.settings.engine:
        return
    begin = "Framework time is the profiled trial minus the sum of its layers: "
    if recording.on_device:
        of_phases = ""
        if recording.phases:
            of_phases = (
                " Framework time of a phase is the time on the GPU between its layers; time "
                "outside all phases has its own row."
            )
        yield (
            f"{begin}the trial's wall time minus the layers' time on the GPU. It lies between the "
            f"layers and after the last one; the GPU mostly waits for the host then.{of_phases}"
        )
    elif recording.phases:
        yield (
            f"{begin}the time between the rows, such as type checks, creating variables and "
            "walking back through the graph. It is known for each phase; time outside all phases "
            "has its own row. Freeing the graph comes after the backward phase, so it is framework "
            "time of the update in a training step."
        )
    else:
        yield (
            f"{begin}the time between the functions, such as type checks and creating variables."
        )


def _figures(summary: Summary) -> Iterator[str]:
    """Sentences on medians, means, shares and intervals, and on the clock's precision."""
    recording, conditions = summary.recording, summary.recording.conditions
    yield (
        "The time to quote is the median, which a few slow trials do not affect. All parts of a "
        "trial (layers, framework, groups, links) are means over the profiled trials, because only "
        f"means add up. A share is such a mean divided by the mean {whole_time(summary).name}. "
        "Inputs per second are the batch divided by the mean trial."
    )
    yield (
        "The more the trials resemble their neighbours, the wider is the 95 % confidence interval "
        "of the median. If the machine drifts slowly, the interval ends at the extreme medians of "
        f"20 parts of the run. Fewer than {MIN_TRIALS} trials have none."
    )
    if has_rate_of_zero(recording.settings):
        yield (
            "The optimizer's learning rate is 0, so all trials have the same weights; the update's "
            "arithmetic is the same at any rate."
        )
    if step_ns := conditions.clock_resolution_ns:
        clock = "host's clock" if recording.on_device else "clock"
        yield f"The smallest observed step of the {clock} is {format_duration(step_ns * NS)}."
    if window_ns := conditions.window_ns:
        timed = "the host's time in every layer" if recording.on_device else "every layer's time"
        yield (
            f"An empty function shows {format_duration(window_ns * NS)}: {timed} contains this "
            "much of the recorder's own time."
        )
    counters = recording.counters
    reading = None if counters is None else counters["wall_ns"]
    if counters is not None and reading is not None and counters.trials:
        yield (
            f"{plural(counters.trials, 'trial')} after the timed ones counted CPU time, page "
            "faults and context switches; only these contain the cost of reading, "
            f"{format_duration(reading.window * NS)} a call."
        )


def _threads(recording: Recording) -> str:
    probe = probed_threads(recording)
    max_threads = max((library.threads for library in recording.environment.blas), default=0)
    return "" if probe is None else probe.text(max_threads)


def _warmups(recording: Recording) -> str:
    wanted = recording.settings.warmups
    count = len(recording.warmup_ns) or wanted
    fewer = f" of {format_count(wanted)} requested" if count < wanted else ""
    return f"{plural(count, 'warm-up trial')}{fewer}" if count else ""


def has_rate_of_zero(settings: Settings) -> bool:
    """Whether the run trained with the command line's default optimizer, which has rate 0."""
    is_default = takes_options(settings) and settings.optimizer == "MomentumSGD"
    return is_default and settings.phase == "train"
