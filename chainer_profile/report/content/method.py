"""Summary -> what was measured, where, and how: the experiment, environment and method."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainer_profile.analyse.checks import probed_threads
from chainer_profile.analyse.findings import takes_options
from chainer_profile.basics.describe import MIN_TRIALS, NS
from chainer_profile.basics.units import format_count, format_duration, plural
from chainer_profile.basics.words import COMMUNICATION
from chainer_profile.report.columns import properties
from chainer_profile.report.content.gpu_section import gpu_rows, option_rows
from chainer_profile.report.document import Code, Text, code, points, text
from chainer_profile.report.text import (
    Row,
    engine_text,
    environment_rows,
    input_text,
    mode_text,
    model_name,
    printable,
    profiled_text,
    trial_text,
    trials_text,
    versions,
    weights_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.record.recording import Settings
    from chainer_profile.report.document import Block, Words


def experiment(summary: Summary) -> Iterator[Block]:
    """What was measured, of what, and in which mode."""
    recording = summary.recording
    settings = recording.settings
    what = "each function call of the network takes"
    if summary.several_phases:
        what = "each function takes in each phase of a trial"
    engine = engine_text(settings) if settings.engine else ""
    if engine:
        what = f"each node of {engine} takes"
    whole = ", and how long a whole trial takes" if recording.trial_ns is not None else ""
    yield text(f"Measured was how long {what}{whole}.")
    yield properties(experiment_rows(summary), "The experiment")
    yield Text(_mode_sentence(summary))


def experiment_rows(summary: Summary) -> list[Row]:
    """What was run and how, one row each."""
    recording = summary.recording
    settings = recording.settings
    network, example = f"{model_name(settings)}, {weights_text(settings)}", "image"
    if recording.of_program:  # a program's: nobody asked for weights, or for a batch
        network, example = model_name(settings), "example"
    rows = [
        ("Network", network),
        ("Trial", trial_text(recording)),
        _rows_of(summary),
        ("Input", input_text(settings)),
        ("Batch", plural(settings.batchsize, example)),
        ("Engine", engine_text(settings) if settings.engine else ""),
        ("Device", settings.device),
        ("Mode", mode_text(settings)),
        *option_rows(settings),
        ("Trials", trials_text(recording)),
    ]
    return [(name, printable(value)) for name, value in rows if value]


def _rows_of(summary: Summary) -> Row:
    """The number of layers, and of each phase where there are several."""
    layers = summary.layers
    if not summary.several_phases:
        engine = summary.recording.settings.engine
        return "Nodes" if engine else "Function calls", format_count(len(layers))
    counts = layers["phase"].value_counts(sort=False)
    phases = ", ".join(f"{format_count(int(n))} {phase}" for phase, n in counts.items())
    return "Layers", f"{format_count(len(layers))}: {phases}"


def _mode_sentence(summary: Summary) -> Words:
    settings = summary.recording.settings
    if settings.engine:
        return ("The engine computed what the network gives in inference.",)
    train = code("chainer.config.train")
    if settings.with_graph:
        mode = "train mode" if settings.train_mode else "test mode"
        return (
            f"The network ran in {mode} and with backprop (",
            code("chainer.config.enable_backprop"),
            " was on), for its forward takes gradients and fails without.",
        )
    training = summary.several_phases or settings.phase != "forward"
    if training and settings.train_mode:
        return (
            "The network ran in train mode (",
            train,
            " was on), as training does: batch normalisation computes the statistics of the batch, "
            "dropout drops, and the forward pass keeps what the backward pass needs. These are not "
            "the times of inference.",
        )
    if training:
        return "The network ran in test mode (", train, " was off)."
    if settings.train_mode:
        return (
            "The network ran on purpose in train mode (",
            train,
            " was on): batch normalisation computes the statistics of the batch and dropout drops. "
            "Inference is test mode, so these are not the times of inference.",
        )
    said: Words = (
        "The network ran as in inference: in test mode (",
        train,
        " was off) and without backprop",
    )
    if "FixedBatchNormalization" in summary.functions.index:
        fixed = code("FixedBatchNormalization")
        return *said, ", so batch normalisation used its stored averages (", fixed, ")."
    return *said, "."


def environment(summary: Summary) -> Iterator[Block]:
    """The machine and its software."""
    rows = environment_rows(summary.recording.environment) + gpu_rows(summary.recording)
    if rows:
        yield properties(rows, "The machine and its software")
    else:
        yield text("Nothing was recorded about the machine.")


def command(summary: Summary) -> Block:
    """What makes the run again."""
    said = printable(summary.recording.settings.command)
    return Code(said) if said else text("The run was not started by a command line.")


def command_and_versions(summary: Summary) -> Iterator[Block]:
    """What makes the run again, and with which software."""
    yield command(summary)
    software = versions(summary.recording.environment)
    if software:
        yield text(f"Versions: {', '.join(software)}.")


def method(summary: Summary) -> Iterator[Block]:
    """How it was measured."""
    yield points(method_points(summary))


def method_points(summary: Summary) -> Iterator[str | Words]:
    """One point each."""
    recording, totals = summary.recording, summary.totals
    several = summary.several_phases
    warmups = len(recording.warmup_ns) or recording.settings.warmups
    if recording.settings.engine:
        yield (
            f"The network did not run under Chainer but under "
            f"{engine_text(recording.settings)}, which was given the same weights."
        )
    probe = probed_threads(recording)
    if probe is not None:
        threads = max((library.threads for library in recording.environment.blas), default=0)
        yield f"BLAS ran with {probe.text(threads)}."
    if warmups:
        wanted = recording.settings.warmups
        fewer = f" of {format_count(wanted)} that were asked for" if warmups < wanted else ""
        yield f"{plural(warmups, 'warm-up trial')}{fewer} came first and count nowhere."
    if recording.settings.engine:
        yield from _of_engine(summary)
    elif totals.every is not None:
        yield (
            f"{plural(totals.every.count, 'trial')} of the program were timed as a whole, and "
            f"{format_count(recording.n_trials)} of them were profiled: the "
            f"{'time' if several else 'latency'} to quote is that of all, the rows' times are "
            "means of the profiled ones."
        )
    elif recording.trial_ns is not None and totals.clean is not None:
        # Without their starts nothing is known of their order: in a race of engines the clean ones
        # come first.
        order = "apart from" if recording.start_ns is None else "in blocks that alternate with"
        yield (
            f"{plural(totals.clean.count, 'clean trial')} ran without any hook, {order} "
            f"the {profiled_text(recording)}: the "
            f"{'time' if several else 'latency'} to quote is that of the clean ones, the layers' "
            "times come from the profiled ones."
        )
    else:
        yield f"The layers' times come from {profiled_text(recording)}."
    if recording.on_device:
        yield from _on_device(summary)
    if recording.settings.inclusive:
        yield "The time of a layer is inclusive: it holds those of the calls made within it."
    elif not recording.settings.engine:
        yield (
            "The time of a layer is its self time: a call made within another one counts for the "
            "inner one only."
        )
    yield from _rows(summary)
    if totals.framework is not None and not recording.settings.engine:
        between = (
            "what passes between the rows, such as type checks, making variables, and walking back "
            "through the graph. It is known for each phase, and what passes outside of all phases "
            "has a row of its own. Freeing the graph comes after the backward phase: in a training "
            "step it is framework time of the update."
            if recording.phases
            else "what passes between the functions, such as type checks and making variables."
        )
        if recording.on_device:
            between = (
                "what passes on the trial's wall clock beside the layers' time on the GPU. It is "
                "the time between the layers and behind the last, in which the GPU mostly waits "
                "for the host."
            )
            if recording.phases:
                between += (
                    " That of a phase is the time on the GPU between its layers; what is outside "
                    "of all phases has a row of its own."
                )
        yield f"Framework time is the profiled trial less the sum of its layers: {between}"
    yield (
        "Where one number stands for a time it is the median, which a few slow trials do not move; "
        "a layer's share is its median over the sum of all layers' medians. Where parts add up to "
        "the trial (sum of the layers, framework, groups, links) they are means, and "
        "inputs per second are the batch over the mean."
    )
    yield (
        "The 95 % interval of a median comes from successive batches of trials: the spread of the "
        "batches' medians gives it, on a log scale, and trials that resemble their neighbours do "
        "not make it too narrow. "
        f"Fewer than {MIN_TRIALS} trials have none."
    )
    if has_rate_of_zero(recording.settings):
        yield (
            "The optimizer's learning rate is 0: all trials have the same weights, and the "
            "arithmetic of the update is the same as with any other rate."
        )
    conditions = recording.conditions
    if conditions.clock_resolution_ns is not None:
        step = format_duration(conditions.clock_resolution_ns * NS)
        which = "host's clock" if recording.on_device else "clock"
        yield f"The smallest step of the {which} that was seen is {step}."
    if conditions.window_ns is not None:
        window = format_duration(conditions.window_ns * NS)
        whose = "the host's time in every layer" if recording.on_device else "every layer's time"
        yield (
            f"A function that does nothing shows {window}: {whose} holds so much of "
            "the recorder itself."
        )
    counters, inside = recording.counters, recording.inside
    if counters is not None and (wall := counters["wall_ns"]) is not None:
        yield (
            f"{plural(counters.trials, 'trial')} behind these counted CPU time, page faults and "
            f"switches; reading takes {format_duration(wall.window * NS)} a call, in them alone."
        )
    if inside is not None:
        yield (
            f"{plural(inside.trials, 'trial')} more were made for {inside.method} to look where "
            "the interpreter was; of their times only the parts are told."
        )


def _of_engine(summary: Summary) -> Iterator[str]:
    """How the times of another engine than Chainer are taken."""
    recording, clean = summary.recording, summary.totals.clean
    if clean is not None:
        yield (
            f"{plural(clean.count, 'clean trial')} ran without the engine's profiling, in turn "
            "with those of other engines: the latency to quote is theirs."
        )
    yield (
        f"The times of nodes are the engine's own, from {plural(recording.n_trials, 'trial')} in "
        "which its profiling was on."
    )
    yield (
        "Runtime overhead is the time of such a trial less the sum of its nodes: what the engine "
        "does between them, and its profiling."
    )


def _on_device(summary: Summary) -> Iterator[str]:
    """How times are taken on a GPU."""
    yield (
        "The times of layers are the GPU's: on entering and on leaving every layer an event is put "
        "into its queue. Nothing waits for them in between; they are read after one "
        "synchronisation at the end of each trial."
    )
    yield (
        "Such a time runs from event to event. It holds the layer's own work, and what the GPU "
        "waited within the layer for the host to launch the next kernel."
    )
    yield (
        "The times of trials are the host's: from the first call to the moment when the GPU is "
        "done. Launching is the part until all was launched, waiting the rest."
    )
    use = summary.device
    if use is not None and use.held_trials:
        yield (
            f"{plural(use.held_trials, 'held trial')} came last: the GPU began with each of them "
            "only when the host had launched all of it, so that it never waited. The medians of "
            "these times are how long the GPU is busy in every layer; they count nowhere else."
        )


def has_rate_of_zero(settings: Settings) -> bool:
    """Whether the run trained with the default optimizer of our own command line."""
    return (
        takes_options(settings)
        and settings.phase == "train"
        and settings.optimizer == "MomentumSGD"
    )


def _rows(summary: Summary) -> Iterator[str | Words]:
    """What the rows beside the calls of a forward pass are, where a trial has them."""
    layers = summary.layers
    phases = set(layers["phase"])
    paths = {(row.phase, row.path) for row in layers.itertuples()}
    if ("forward", "loss") in paths:
        yield "Functions of the loss that no link calls have the path ", code("loss"), "."
    if "backward" in phases:
        yield (
            "The backward of a function is a row of its own, in the link that made the call. "
            "Its column ",
            code("forward_index"),
            " in the table of all layers is the call that it goes back through.",
        )
    if "gradient_accumulation" in set(layers["function"]):
        yield (
            "Where several functions use a variable, its gradients are added up: the row ",
            code("gradient_accumulation"),
            ", in the link whose backward adds them.",
        )
    if ("backward", "cleargrads") in paths:
        yield (
            "Clearing the gradients before the backward pass is the row ",
            code("cleargrads"),
            " of the backward phase.",
        )
    if COMMUNICATION in phases:
        yield (
            "A collective of the optimizer is a row of the phase communication, at the path of the "
            "parameter that it moves. Its time is until this rank leaves it, so it holds waiting "
            "for the last rank to come."
        )
    updates = layers[layers["phase"] == "update"]
    if len(updates):
        hooks = updates[updates["path"] == "optimizer"]["function"]
        sentence: Words = (
            "The update of all parameters of one link is one row, named after the optimizer; its "
            "calls are the arrays of parameters",
        )
        if len(hooks):
            named = ", ".join(map(printable, dict.fromkeys(hooks)))
            said = f". The optimizer's hooks ({named}) go over all parameters; their path is "
            sentence += (said, code("optimizer"))
        yield (*sentence, ".")
    if "data" in phases:
        yield (
            "Loading a batch and converting it to arrays are the rows of the path ",
            code("data"),
            ".",
        )
