"""How a trial uses a GPU: the device's work and waiting, and the host's launching."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chainer_profile.basics.describe import NS
from chainer_profile.record.recording import Recording

#: A run is launch bound if, after the last launch, the host waits for the device for less than this
#: fraction of the trial. It is not if the device is busy for all but this fraction of the trial.
LAUNCH_BOUND = 0.1
DEVICE = ("host_s", "gap_s", "busy_s")


@dataclass(frozen=True)
class DeviceUse:
    """A profiled trial on a GPU, in seconds. Times of held trials are medians, all others means.

    ``trial_s = launch_s + wait_s``, on the host's clock.
    ``span_s = layers_s + gaps_s + rest_s``, on the device's.
    """

    trial_s: float  #: From the first call to the moment when the device is done.
    launch_s: float  #: Until the host has launched everything.
    calls_s: float  #: The part of it within the layers' calls.
    wait_s: float  #: The time that the host then waits for the device.
    span_s: float  #: From the first to the last thing on the device.
    #: The part of it within the layers: working, or waiting for the host to launch more.
    layers_s: float
    gaps_s: float  #: The part of it between the layers.
    rest_s: float  #: The part of it after the last layer.
    #: Time of the layers on a device that never waits for the host: the sum of their medians over
    #: the held trials. None without held trials.
    busy_s: float | None
    #: Median time of a held trial on the device; None without held trials.
    held_span_s: float | None
    held_trials: int  #: Number of held trials.

    @property
    def launch_bound(self) -> bool:
        """Whether the host's launching sets the pace, and not the device."""
        # Without held trials this is likely, not certain: a network that waits for the device in
        # its middle leaves nothing to wait for at the end either.
        waits = self.wait_s < LAUNCH_BOUND * self.trial_s
        share = self.busy_share
        return waits and (share is None or share < 1 - LAUNCH_BOUND)

    @property
    def busy_share(self) -> float | None:
        """Fraction of the trial in which the device works; None without held trials."""
        if self.busy_s is None or not self.trial_s:
            return None
        return min(1.0, self.busy_s / self.trial_s)

    @property
    def idle_s(self) -> float | None:
        """Seconds of a trial in which the device has nothing to do; None without held trials."""
        return None if self.busy_s is None else max(0.0, self.trial_s - self.busy_s)


def layer_device(recording: Recording) -> dict[str, NDArray[np.float64]]:
    """Columns of host and device for every layer, in seconds; NaN where not known.

    ``host_s`` is the mean time of the layer's calls on the host, ``gap_s`` the mean gap before the
    layer on the device, ``busy_s`` its median time on a device that never waits for the host.
    """
    nothing = np.full(len(recording.layers), np.nan)
    held = _held(recording.held_ns)
    return {
        "host_s": nothing if recording.host_ns is None else recording.host_ns.mean(axis=0) * NS,
        "gap_s": nothing if recording.gap_ns is None else recording.gap_ns.mean(axis=0) * NS,
        "busy_s": nothing if held is None else np.median(held, axis=0) * NS,
    }


def phase_device(layers: pd.DataFrame) -> pd.DataFrame:
    """Sums of the layers' times and of :func:`layer_device` by phase."""
    columns = layers[["phase", "mean_s", *DEVICE]].rename(columns={"mean_s": "layers_s"})
    # Unknown times stay unknown; a sum would make them 0.
    return columns.groupby("phase", sort=False).sum(min_count=1)


def device_use(recording: Recording) -> DeviceUse | None:
    """How a trial uses the GPU; None for a run on the host."""
    samples = (
        *(recording.trial_ns, recording.launch_ns, recording.host_ns),
        *(recording.span_ns, recording.self_ns, recording.gap_ns),
    )
    # Sums of whole nanoseconds, so that the parts add up.
    sums, trials = [int(times.sum()) for times in samples if times is not None], recording.n_trials
    if len(sums) < len(samples) or not trials:
        return None
    trial, launch, calls, span, layers, gaps = sums
    held, held_spans = _held(recording.held_ns), _held(recording.held_span_ns)
    return DeviceUse(
        trial_s=trial / trials * NS,
        launch_s=launch / trials * NS,
        calls_s=calls / trials * NS,
        wait_s=(trial - launch) / trials * NS,
        span_s=span / trials * NS,
        layers_s=layers / trials * NS,
        gaps_s=gaps / trials * NS,
        rest_s=(span - layers - gaps) / trials * NS,
        busy_s=None if held is None else float(np.median(held, axis=0).sum()) * NS,
        held_span_s=None if held_spans is None else float(np.median(held_spans)) * NS,
        held_trials=0 if held is None else len(held),
    )


def _held(samples: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    """The samples; None if there are none."""
    return None if samples is None or not len(samples) else samples
