"""Findings for runs that differ in one property, on both sides of each threshold."""

from dataclasses import replace
from typing import Any

import numpy as np

from chainer_profile import summarise
from chainer_profile.analyse.findings import STEP
from chainer_profile.analyse.summary import Summary
from chainer_profile.record.recording import (
    BlasLibrary,
    Conditions,
    Counted,
    Environment,
    GpuState,
    Recording,
    Settings,
)
from tests.analyse.test_checks import HUNDRED, QUIET, alternating, blas, counted, noise, probed, run
from tests.conftest import make_recording, make_training
from tests.engines.fake_engines import fast
from tests.goldens.keeping import listed
from tests.report.working import (
    DEVICE_BOUND,
    GPU,
    LIMITS,
    STATE,
    make_device_recording,
    make_device_training,
    phased,
    scaled,
)

CONV, BN = "Convolution2DFunction", "FixedBatchNormalization"
#: A command that accepts options.
OURS = "python profile.py --phase train"
PROGRAM = "chainer-profile run a.py"


def _findings(shown: Recording | Summary, *codes: str) -> list[str]:
    """List the findings with these codes; without codes, list all findings except steps."""
    summary = shown if isinstance(shown, Summary) else summarise(shown)
    return [
        f"{it.severity} {it.code}{'' if it.gain is None else f' {it.gain:.3f}'}: "
        + " | ".join(filter(None, (it.text, it.evidence, it.to_do)))
        for it in summary.findings
        if (it.code in codes if codes else it.severity != STEP)
    ]


def _embedded(shape: tuple[int, ...], calls: int, us: int = 800, added_us: int = 0) -> Any:
    """Make a training with an embedding; the gradients of a call have this shape."""
    rows = ("forward", 100), ("backward", us)
    words = [("/e", "EmbedIDFunction", phase, us) for phase, us in rows]
    others = [("/l", "LinearFunction", "forward", 900 - us)]
    if added_us:
        others.append(("/e", "gradient_accumulation", "backward", added_us))
    run = phased(*words, *others, calls={1: calls})
    layers = list(run.layers)
    layers[1] = replace(layers[1], input_shapes=(shape,))
    return replace(run, layers=tuple(layers))


def _second_place(us: int, faults: int) -> Recording:
    """Make a run of two layers. The second has these values, the first 90 us and 50 faults."""
    recording = counted(cpu_us=90, waits=2)
    names = {"cpu_ns": 4 * us * 1000, "page_faults": 4 * faults}

    def changed(counter: Counted) -> Counted:
        (first, second), value = counter.layers, names[counter.name]
        # The trial and its layers are measured by the same readings.
        trial = tuple(at + (value - second) // 4 for at in counter.trial)
        return replace(counter, layers=(first, value), trial=trial)

    assert recording.counters is not None
    every = (changed(x) if x.name in names else x for x in recording.counters.counted)
    return replace(recording, counters=replace(recording.counters, counted=tuple(every)))


@listed(_findings)
def checks() -> dict[str, Recording]:
    """Findings about the quality of the numbers of a run."""
    hundred, cut = HUNDRED, Settings(trials=10_000)
    slow_start = np.concatenate([[1300] * 12, [1000] * 388]) + np.tile([1, -1], 200)
    busy, two = Conditions(other_cpu=1.26), Environment(usable_cores=2)
    held = "OPENBLAS_CORETYPE=Nehalem", "MKL_CBWR=SSE2"
    nehalem = (BlasLibrary("openblas", "0.3", 1, "Nehalem"),)
    untimed: dict[str, Any] = {"trial_ns": None, "start_ns": None}
    faster = probed([(1000, 800)] * 6)
    hot = replace(STATE, sm_mhz=1410, throttle=("power cap", "temperature (hardware)"))
    wide = noise(40, 0.09, seed=2)
    engine = fast()
    assert engine.trial_ns is not None

    def clock(mhz: int | None, *throttle: str) -> GpuState:
        return replace(STATE, sm_mhz=mhz, throttle=throttle)

    def vary(spread: float) -> Any:
        walls = np.tile([1.0, 0.0, 0.0, -1.0], 2500)
        return 1000 * (1 + spread * walls / walls.std(ddof=1))

    def gpu_recording(**changes: Any) -> Recording:
        return make_device_recording(DEVICE_BOUND, wait_us=26_300, **changes)

    def chosen(library: str) -> Recording:
        where = Environment(usable_cores=4, blas=(BlasLibrary(library, "0.3", 1),))
        return replace(faster, environment=where, settings=Settings(trials=100, warmups=50))

    cases = {
        "stopped": run(hundred, ended="interrupted by the user", settings=cut),
        "killed": run([1000] * 30, ended="killed before its end", settings=Settings()),
        "failed": run(hundred, ended="failed: the limit was not reached", settings=cut),
        "one trial": run([1000]),
        "few trials of an engine": fast(self_ns=engine.self_ns[:5], trial_ns=engine.trial_ns[:5]),
        "threads of an engine": fast(environment=blas(4)),
        "a trial of a program": run([1000], settings=Settings(command=PROGRAM)),
        "a wide interval": run(wide),
        "wide intervals of both": run(wide, clean_us=wide),
        "no number of trials would do": run(1000 * np.random.default_rng(0).lognormal(0, 2, 60)),
        "trials that vary": run(np.where(np.arange(2000) % 20 == 7, 2000.0, 1000.0)),
        "slower": run([1000] * 100 + [1100] * 100),
        "faster": run([1000] * 100 + [900] * 100),
        "a slow start": run(slow_start, settings=Settings(trials=400, warmups=3)),
        "a slow start, warm-up cut by time": run(
            slow_start, settings=Settings(trials=400, warmups=50), warmup_ns=np.full(7, 10**9)
        ),
        "a recorder that costs": alternating(0.05),
        "one thread is faster": faster,
        "one was chosen": chosen("mkl"),
        "one was chosen, any library": chosen("flexiblas"),
        "threads not compared": run(hundred, environment=blas(4)),
        "held back": run(hundred, environment=Environment(blas=nehalem, variables=held)),
        "busy": run(hundred, conditions=busy, environment=two),
        "busy, cores not known": run(hundred, conditions=busy),
        "taken from the processor": counted(cpu_us=90, preemptions=2, waits=1, **QUIET),
        "waited": counted(cpu_us=90, preemptions=1, waits=2, **QUIET),
        # Each of the other layers loses 10 us: 20 of 39 us and 20 of 41 us.
        **{f"waited, {100 - us} us in a layer": _second_place(us, 99) for us in (81, 79)},
        "taken for 4 %": counted(cpu_us=96, preemptions=1, **QUIET),
        "several threads": replace(counted(cpu_us=50, waits=9, **QUIET), environment=blas(2)),
        "no held trials": make_device_recording(n_held=0),
        "lowered clocks": gpu_recording(conditions=Conditions(gpu_before=STATE, gpu_after=hot)),
        "clocks that fell": gpu_recording(
            conditions=Conditions(gpu_before=replace(STATE, sm_mhz=1900),
                                  gpu_after=replace(STATE, sm_mhz=1804))
        ),
    }  # fmt: skip
    cases |= {
        "equal times": run(hundred, clean_us=[1000] * 10),
        **{f"{count} trials": run([1000] * count) for count in (29, 30)},
        "a folded history": run(hundred, **untimed),
        **{f"a spread of {part:.1%}": run(vary(part)) for part in (0.099, 0.101)},
        "a layer without time": run(hundred, layers_us=(300, 0)),
        "layers without time": run(hundred, layers_us=(0, 0)),
        **{f"a second half of {us}": run(hundred * 5 + [us] * 500) for us in (960, 1040)},
        **{f"{count + 30} trials, slower": run([1000] * count + [1200] * 30) for count in (29, 30)},
        # The first 25 are slow, and so is half of the rest.
        "slow and fast": run(np.tile(np.repeat([1300, 1000], 25), 20)),
        **{f"a recorder that costs {part}": alternating(part) for part in (-0.1, 0.0199, 0.021)},
        **{f"one thread takes {us} us": probed([(1000, us)] * 6, 4) for us in (975, 1000, 1500)},
        "one thread": run(hundred, environment=blas(1)),
        "threads not known": run(hundred, environment=Environment()),
        **{f"threads {name}": run(hundred, environment=blas(4), settings=asked) for name, asked in (
            ("as asked", Settings(threads=4)), ("of a GPU's", Settings(device="gpu:0")))},
        **{f"others of {cpu}": run(hundred, conditions=Conditions(other_cpu=cpu))
           for cpu in (None, 0.24, 0.25)},
        "a GPU, blas threads": gpu_recording(environment=replace(blas(4), gpu=GPU)),
        "a GPU, stopped before them": gpu_recording(n_held=0, ended="interrupted by the user"),
    }  # fmt: skip
    capped, set_ = ("power cap",), ("clocks set by an application",)
    for before, after in (
        (GpuState(throttle=capped), None),
        # A setting by the user is not a fault.
        (clock(1950, *set_), clock(1950, *set_)),
        *((clock(1900), clock(mhz)) for mhz in (1805, 1995)),
        *((clock(mhz), clock(1950)) for mhz in (345, 0, None)),
    ):
        state = Conditions(gpu_before=before, gpu_after=after)
        message = (it and f"{it.sm_mhz} {', '.join(it.throttle)}" for it in (before, after))
        cases[" to ".join(map(str, message))] = gpu_recording(conditions=state)
    few = (make_training(5, environment=blas(4), settings={"command": command})
           for command in (OURS, "python train.py"))  # fmt: skip
    cases |= zip(("a training", "a training of one's own"), few, strict=True)
    return cases


@listed(lambda case: _findings(*case))
def steps() -> dict[str, tuple[Recording | Summary, str]]:
    """Findings that suggest how to save time: runs and the code of the step."""
    passes = (("/a", "A", "forward", 900), ("/a", "A", "backward", 900))
    step = (*passes, ("/a", "SGD", "update", 200))
    alike = make_device_recording()
    named = [replace(layer, function=CONV) if layer.index in (0, 2, 3) else layer
             for layer in alike.layers]  # fmt: skip

    def training_recording(command: str, **settings: Any) -> Recording:
        return make_training(settings={"command": command, "batchsize": 8} | settings)

    def as_program(run: Recording) -> Recording:
        calls, iteration = np.ones_like(run.self_ns), np.arange(run.n_trials) + 1
        return replace(run, calls=calls, iteration=iteration)

    def looped(flops: int) -> Recording:
        """A program that multiplies matrices for a third of its time, at most at 100 GFLOP/s."""
        run = phased(("/l", "LinearFunction", "forward", 1000), *step)
        first = replace(
            run.layers[0], flops=flops, macs=flops // 2, nbytes_read=0, nbytes_written=0
        )
        run = replace(run, layers=(first, *run.layers[1:]), environment=blas(2), limits=LIMITS)
        return as_program(run)

    return {
        "little between": (scaled([50, 50], list("AB"), 5_000), "batch"),
        **{f"kernels: {command}": (training_recording(command), "kernels")
           for command in (OURS, "python train.py", PROGRAM)},
        **{f"words of {shape}, {calls} calls": (_embedded(shape, calls), code)
           for shape, calls, code in (((1000, 100), 1, "kernels"), ((20, 30, 100), 1, "kernels"),
                                      ((1000, 129), 1, "kernels"), ((20, 100), 35, "embedding"),
                                      ((20, 100), 1, "embedding"), ((1000, 100), 2, "embedding"))},
        "words whose gradients are added up": (_embedded((20, 100), 35, 40, 60), "embedding"),
        "kernels of a program": (as_program(training_recording(PROGRAM)), "kernels"),
        "small products of a program": (looped(10**6), "threads"),
        "large products of a program": (looped(10**8), "threads"),
        "engines of a program": (
            as_program(make_recording(settings=Settings(command=PROGRAM))), "engines"),
        "halves": (training_recording(OURS, dtype="float16"), "dtype"),
        "engines": (scaled([60, 30, 10], [CONV, BN, "ReLU"], command="profile.py"), "engines"),
        "no time": (make_training(self_ns=np.zeros((40, 25), np.int64)), "kernels"),
        "page faults": (counted(system_us=9), "page-faults"),
        **{f"page faults, {faults} of them in a layer": (_second_place(0, faults), "page-faults")
           for faults in (99, 101)},
        "few page faults": (counted(system_us=4), "page-faults"),
        "system time alone": (counted(system_us=9, page_faults=0), "page-faults"),
        **{f"page faults, {kept}": (counted(system_us=9, variables=kept), "page-faults") for kept
           in ({"fast": "numpy"}, {"keep_memory": True}, {"engine": "other 1.0"})},
        "page faults, own command": (counted(system_us=9, variables={"command": "profile.py"}),
                                     "page-faults"),
        "launching": (alike, "launch-bound"),
        "launching of a function": (replace(alike, layers=tuple(named)), "launch-bound"),
        "launching, it seems": (make_device_recording(n_held=0), "launch-bound"),
        "launching in a training": (make_device_training(settings={"command": "a.py"}),
                                    "launch-bound"),
    }  # fmt: skip
