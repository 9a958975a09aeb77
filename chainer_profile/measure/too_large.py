"""Checks that samples fit into the memory, and describes failures because of a full memory."""

from __future__ import annotations

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.basics.free_memory import describe_memory_error, free_nbytes
from chainer_profile.basics.units import format_count, format_nbytes, plural
from chainer_profile.measure.clock import Clock
from chainer_profile.record.recording import Settings

#: Least time of a call of a Chainer function, in seconds.
_MIN_CALL_S = 5e-6


def check_samples(settings: Settings, rows: int) -> None:
    """Raise a ProfileError if the samples of all trials need more than the free memory."""
    # A profiled trial stores its rows, its start, its wall time twice and a record in the journal's
    # buffer. A clean trial stores its start, its wall time and its CPU time.
    profiled, clean = settings.trials, settings.clean_trials
    if settings.max_seconds is not None:  # the limit may end the run before it makes all trials
        max_trials = int(settings.max_seconds / (_MIN_CALL_S * max(1, rows))) + 1
        profiled, clean = min(profiled, max_trials), min(clean, max_trials)
    needed, free = 8 * (profiled * (rows + 4) + clean * 3), free_nbytes()
    if free is not None and needed > free:
        raise ProfileError(
            f"{plural(settings.trials, 'trial')} need {format_nbytes(needed)} of memory for their "
            f"samples, but {format_nbytes(free)} are free: use fewer trials"
        )


def memory_full(
    error: BaseException, clock: Clock, settings: Settings, free: int | None = None
) -> str:
    """Describe an exception for a full memory; an empty text for any other exception.

    ``free`` is the number of bytes that were free before, if known.
    """
    # Some exceptions of CuPy are MemoryErrors, too.
    if isinstance(error, MemoryError) and clock.device is None:
        batch = format_count(settings.batchsize)
        return f"a batch of {batch} {describe_memory_error(error, free)}: use a smaller batch"
    # Compare by name: CuPy may not be installed.
    if clock.device is None or type(error).__name__ != "OutOfMemoryError":
        return ""
    try:
        free, total = clock.device.memory_nbytes()
        free_text = f"{format_nbytes(free)} of {format_nbytes(total)} are free; "
    except Exception:  # report the network's error, not this one
        free_text = ""
    return (
        f"the GPU's memory is full with a batch of {format_count(settings.batchsize)} "
        f"({free_text}{one_line(error)}): use a smaller batch"
    )
