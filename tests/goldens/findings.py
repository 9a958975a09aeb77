"""What is said of runs that differ in one thing, on both sides of where the words change."""

from dataclasses import replace
from typing import Any

import numpy as np

from chainer_profile import summarise
from chainer_profile.analyse.findings import STEP
from chainer_profile.analyse.steps import steps as steps_of
from chainer_profile.analyse.summary import Summary
from chainer_profile.analyse.verdicts import BELOW
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
    with_work,
)

CONV, BN = "Convolution2DFunction", "FixedBatchNormalization"
#: A command that takes options.
OURS = "python profile.py --phase train"
PROGRAM = "chainer-profile run a.py"


def _findings(shown: Recording | Summary, *codes: str) -> list[str]:
    """The findings of these codes; without codes those that are no steps."""
    summary = shown if isinstance(shown, Summary) else summarise(shown)
    return [
        f"{one.severity} {one.code}{'' if one.gain is None else f' {one.gain:.3f}'}: "
        + " | ".join(filter(None, (one.text, one.evidence, one.to_do)))
        for one in summary.findings
        if (one.code in codes if codes else one.severity != STEP)
    ]


def _embedded(shape: tuple[int, ...], calls: int, us: int = 800, added_us: int = 0) -> Any:
    """A training that looks up words; the gradients of a call have this shape."""
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
    """Of two layers and the framework 90 us on the processor and 50 faults each, the second's."""
    recording = counted(cpu_us=90, waits=2)
    names = {"cpu_ns": 4 * us * 1000, "page_faults": 4 * faults}

    def changed(one: Counted) -> Counted:
        (first, second), value = one.layers, names[one.name]
        # The trial and its layers were measured by the same readings.
        trial = tuple(at + (value - second) // 4 for at in one.trial)
        return replace(one, layers=(first, value), trial=trial)

    assert recording.counters is not None
    every = (changed(x) if x.name in names else x for x in recording.counters.counted)
    return replace(recording, counters=replace(recording.counters, counted=tuple(every)))


@listed(_findings)
def checks() -> dict[str, Recording]:
    """What is to be known of the numbers of a run."""
    hundred, cut = HUNDRED, Settings(trials=10_000)
    slow_start = np.concatenate([[1300] * 12, [1000] * 388]) + np.tile([1, -1], 200)
    factor = np.ones((1000, 3))
    factor[::2, 1], factor[1::2, 1] = 1.2, 0.8
    factor[::2, 2], factor[1::2, 2] = 1.5, 0.5
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

    def on_gpu(**changes: Any) -> Recording:
        return make_device_recording(DEVICE_BOUND, wait_us=26_300, **changes)

    def chosen(library: str) -> Recording:
        where = Environment(usable_cores=4, blas=(BlasLibrary(library, "0.3", 1),))
        return replace(faster, environment=where, settings=Settings(trials=100))

    cases = {
        "ended as asked": run(hundred, ended="time limit reached", settings=Settings(
            trials=10_000, max_seconds=60.0)),
        "precise enough": run(hundred, ended="wanted interval reached", settings=cut),
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
        "layers that vary": run([1000] * 1000, layers_us=(300, 100, 50), layer_noise=factor),
        "slower": run([1000] * 100 + [1100] * 100),
        "faster": run([1000] * 100 + [900] * 100),
        "a slow start": run(slow_start, settings=Settings(trials=400, warmups=3)),
        "a slow start, warm-up cut by time": run(
            slow_start, settings=Settings(trials=400, warmups=50), warmup_ns=np.full(7, 10**9)
        ),
        "near the resolution": run(
            hundred, layers_us=(300, 2, 10, 0.4), conditions=Conditions(window_ns=200)
        ),
        "a coarse clock": run(hundred, conditions=Conditions(100_000, 10)),
        "all clock": run(hundred, layers_us=(300, 0), conditions=Conditions(window_ns=200)),
        "a recorder that costs": alternating(0.05),
        "outside of the phases": make_training(100, outside_us=200),
        "one thread is faster": faster,
        "one was chosen": chosen("mkl"),
        "one was chosen, any library": chosen("flexiblas"),
        "threads not compared": run(hundred, environment=blas(4)),
        "held back": run(hundred, environment=Environment(blas=nehalem, variables=held)),
        "busy": run(hundred, conditions=busy, environment=two),
        "busy, cores not known": run(hundred, conditions=busy),
        "taken from the processor": counted(cpu_us=90, preemptions=2, waits=1, **QUIET),
        "waited": counted(cpu_us=90, preemptions=1, waits=2, **QUIET),
        # Lost are 10 us in each of the others: 20 of 39 us and 20 of 41 us.
        **{f"waited, {100 - us} us in a layer": _second_place(us, 99) for us in (81, 79)},
        "taken for 4 %": counted(cpu_us=96, preemptions=1, **QUIET),
        "several threads": replace(counted(cpu_us=50, waits=9, **QUIET), environment=blas(2)),
        "no held trials": make_device_recording(n_held=0),
        "lowered clocks": on_gpu(conditions=Conditions(gpu_before=STATE, gpu_after=hot)),
        "clocks that fell": on_gpu(
            conditions=Conditions(gpu_before=replace(STATE, sm_mhz=1900),
                                  gpu_after=replace(STATE, sm_mhz=1804))
        ),
        "the resolution of events": make_device_recording(
            ((10_000, 9), (900, 900), (5, 5), (9800, 9)), wait_us=7400
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
        **{f"a window of {ns}": run(hundred, conditions=Conditions(window_ns=ns))
           for ns in (None, 0)},
        **{f"a recorder that costs {part}": alternating(part) for part in (-0.1, 0.0199, 0.021)},
        # Beside 3,650 us of phases.
        "180 us outside of the phases": make_training(100, outside_us=180),
        "no phases": make_training(100, outside_us=1000, phases=(), framework_ns=None),
        "phases alone": make_training(100, outside_us=1000, **untimed),
        **{f"one thread takes {us} us": probed([(1000, us)] * 6, 4) for us in (975, 1000, 1500)},
        "one thread": run(hundred, environment=blas(1)),
        "threads not known": run(hundred, environment=Environment()),
        **{f"threads {name}": run(hundred, environment=blas(4), settings=one) for name, one in (
            ("as asked", Settings(threads=4)), ("of a GPU's", Settings(device="gpu:0")))},
        **{f"others of {cpu}": run(hundred, conditions=Conditions(other_cpu=cpu))
           for cpu in (None, 0.24, 0.25)},
        "a GPU, blas threads": on_gpu(environment=replace(blas(4), gpu=GPU)),
        "a GPU, stopped before them": on_gpu(n_held=0, ended="interrupted by the user"),
    }  # fmt: skip
    capped, set_ = ("power cap",), ("clocks set by an application",)
    for before, after in (
        (GpuState(throttle=capped), None),
        # That somebody has set them is no fault.
        (clock(1950, *set_), clock(1950, *set_)),
        *((clock(1900), clock(mhz)) for mhz in (1805, 1995)),
        *((clock(mhz), clock(1950)) for mhz in (345, 0, None)),
    ):
        state = Conditions(gpu_before=before, gpu_after=after)
        said = (one and f"{one.sm_mhz} {', '.join(one.throttle)}" for one in (before, after))
        cases[" to ".join(map(str, said))] = on_gpu(conditions=state)
    few = (make_training(5, environment=blas(4), settings={"command": one})
           for one in (OURS, "python train.py"))  # fmt: skip
    cases |= zip(("a training", "a training of one's own"), few, strict=True)
    return cases


def _bounded(flops: int, nbytes: int, gpu: Any = GPU, dtype: str = "float32") -> Recording:
    """A device-bound run whose first layer has this work: 10 ms, at 100 GFLOP/s or 20 GB/s."""
    more = {"environment": Environment(gpu=gpu), "settings": {"dtype": dtype}}
    recording = make_device_recording(DEVICE_BOUND, wait_us=26_300, **more)
    work = {"flops": flops, "macs": flops // 2, "nbytes_read": nbytes, "nbytes_written": 0}
    first = replace(recording.layers[0], **work)
    limits = replace(LIMITS, device="gpu:0", half_flops_per_s=2e11)
    return replace(recording, layers=(first, *recording.layers[1:]), limits=limits)


def _below(*verdicts: str) -> Summary:
    """Three convolutions that reach no limit, for these reasons."""
    summary = summarise(with_work(make_recording(9)))
    layers = summary.layers.assign(verdict=BELOW)
    layers.loc[layers["function"] == CONV, "verdict"] = verdicts
    return replace(summary, findings=tuple(steps_of(replace(summary, layers=layers))))


@listed(lambda one: _findings(*one))
def steps() -> dict[str, tuple[Recording | Summary, str]]:
    """What may take less time: of each case the steps of a code."""
    passes = (("/a", "A", "forward", 900), ("/a", "A", "backward", 900))
    step = (*passes, ("/a", "SGD", "update", 200))
    conv, loop = ["Convolution2DFunction", "ReLU"], {"framework_ns": 25_000}
    alike = make_device_recording()
    named = [replace(one, function=CONV) if at in (0, 2, 3) else one
             for at, one in enumerate(alike.layers)]  # fmt: skip
    data = ("data", "SerialIterator", "data")

    def hooked(us: int, *names: str) -> Recording:
        hooks = (("optimizer", name, "update", us) for name in names)
        return phased(*passes, ("/a", "SGD", "update", 200 - us * len(names)), *hooks)

    def updates(times_us: tuple[int, ...], *calls: int) -> Recording:
        rows = ((f"/l{at}", "SGD", "update", us) for at, us in enumerate(times_us))
        return phased(*passes, *rows, calls=dict(enumerate(calls, 2)))

    def loaded(*rows: tuple[str, int]) -> Recording:
        return phased(*(("data", name, "data", us) for name, us in rows), *passes)

    def trained(command: str, **settings: Any) -> Recording:
        return make_training(settings={"command": command, "batchsize": 8} | settings)

    def of_program(one: Recording) -> Recording:
        calls, iteration = np.ones_like(one.self_ns), np.arange(one.n_trials) + 1
        return replace(one, calls=calls, iteration=iteration)

    def looped(flops: int) -> Recording:
        """A program that multiplies matrices for a third of its time, at most at 100 GFLOP/s."""
        run = phased(("/l", "LinearFunction", "forward", 1000), *step)
        first = replace(
            run.layers[0], flops=flops, macs=flops // 2, nbytes_read=0, nbytes_written=0
        )
        run = replace(run, layers=(first, *run.layers[1:]), environment=blas(2), limits=LIMITS)
        return of_program(run)

    return {
        "two layers are half": (scaled([40, 30, 20, 10], list("ABAC"), 100_000), "most-time"),
        "most of half are": (scaled([30, 33, 31, 60, 60, 60], list("AAABBC")), "most-time"),
        "one layer is half": (scaled([90, 10], list("AB")), "most-time"),
        "one layer alone": (scaled([90], ["A"]), "most-time"),
        "a training": (make_training(), "most-time"),
        "backward of a training": (make_training(), "backward"),
        "a small function has the gap": (phased(
            ("/a", "A", "forward", 400), ("/b", "B", "forward", 10),
            ("/a", "A", "backward", 420), ("/b", "B", "backward", 170)), "backward"),
        "a quick backward": (phased(passes[0], ("/a", "A", "backward", 100)), "backward"),
        "a backward of others": (phased(passes[0], ("/a", "B", "backward", 800)), "backward"),
        "update of a training": (make_training(settings={"batchsize": 1}), "update"),
        "update of 90 us": (phased(*passes, ("/a", "SGD", "update", 90)), "update"),
        "update of 100 us": (phased(*passes, ("/a", "SGD", "update", 100)), "update"),
        "update of a batch of 128": (phased(*step, batchsize=128), "update"),
        "decay of 30 us": (hooked(30, "WeightDecay"), "update"),
        "decay of 10 us": (hooked(10, "WeightDecay"), "update"),
        "two hooks": (hooked(20, "WeightDecay", "GradientNoise"), "update"),
        "calls that take as long": (updates((100, 100), 10, 10), "update"),
        "one that is large": (updates((10, 190), 1, 2), "update"),
        "one call": (updates((200,), 1), "update"),
        "data by an iterator": (loaded((data[1], 150), ("concat_examples", 50)), "data"),
        "data by processes": (loaded(("MultiprocessIterator", 200)), "data"),
        "data by conversion": (loaded((data[1], 50), ("concat_examples", 150)), "data"),
        "little data": (loaded((data[1], 90)), "data"),
        "little accumulation": (phased(*passes, ("/a", "gradient_accumulation", "backward", 80),
                                       calls={2: 3}), "accumulation"),
        "accumulation": (phased(*passes, ("/a", "gradient_accumulation", "backward", 200),
                                calls={2: 3}), "accumulation"),
        "normalisations": (scaled([50, 20, 10, 20], [CONV, BN, "ReLU", BN]), "normalisations"),
        "quick normalisations": (scaled([98, 2, 1, 2], [CONV, BN, "ReLU", BN]), "normalisations"),
        "batch of 1": (scaled([50, 50], list("AB"), 100_000, batchsize=1), "framework"),
        "batch of 128": (scaled([50, 50], list("AB"), 100_000, batchsize=128), "framework"),
        "little between": (scaled([50, 50], list("AB"), 5_000), "batch"),
        "a GPU": (scaled([80, 20], conv, **loop, command="profile.py"), "gpu"),
        "on a GPU": (scaled([80, 20], conv, **loop, device="gpu:0"), "gpu"),
        "no GPU for ReLU": (scaled([20, 80], conv, **loop), "gpu"),
        "a GPU for two": (scaled([60, 40], [CONV, "LinearFunction"]), "gpu"),
        "a GPU loads no data": (phased((*data, 500), *(("/c", CONV, phase, 1000) for phase in
                                ("forward", "backward")), framework_us=500), "gpu"),
        **{f"{way}: {command}": (trained(command), way) for way in ("kernels", "gpu")
           for command in (OURS, "python train.py", PROGRAM)},
        **{f"words of {shape}, {calls} calls": (_embedded(shape, calls), code)
           for shape, calls, code in (((1000, 100), 1, "kernels"), ((20, 30, 100), 1, "kernels"),
                                      ((1000, 129), 1, "kernels"), ((20, 100), 35, "embedding"),
                                      ((20, 100), 1, "embedding"), ((1000, 100), 2, "embedding"))},
        "words whose gradients are added up": (_embedded((20, 100), 35, 40, 60), "embedding"),
        "kernels of a program": (of_program(trained(PROGRAM)), "kernels"),
        "small products of a program": (looped(10**6), "threads"),
        "large products of a program": (looped(10**8), "threads"),
        "engines of a program": (
            of_program(make_recording(settings=Settings(command=PROGRAM))), "engines"),
        "halves": (trained(OURS, dtype="float16"), "dtype"),
        "engines": (scaled([60, 30, 10], [CONV, BN, "ReLU"], command="profile.py"), "engines"),
        "no time": (make_training(self_ns=np.zeros((40, 25), np.int64)), "most-time"),
        "page faults": (counted(system_us=9), "page-faults"),
        **{f"page faults, {faults} of them in a layer": (_second_place(0, faults), "page-faults")
           for faults in (99, 101)},
        "few page faults": (counted(system_us=4), "page-faults"),
        "system time alone": (counted(system_us=9, page_faults=0), "page-faults"),
        **{f"page faults, {kept}": (counted(system_us=9, variables=kept), "page-faults") for kept
           in ({"fast": "numpy"}, {"keep_memory": True}, {"engine": "other 1.0"})},
        "page faults, own command": (counted(system_us=9, variables={"command": "profile.py"}),
                                     "page-faults"),
        "below, for several reasons": (_below("copying", "page faults", "waiting"), "matrix-rate"),
        "below, by copies": (_below("copying", "waiting", "copying"), "matrix-rate"),
        "launching": (alike, "launch-bound"),
        "launching of a function": (replace(alike, layers=tuple(named)), "launch-bound"),
        "launching, it seems": (make_device_recording(n_held=0), "launch-bound"),
        "launching in a training": (make_device_training(settings={"command": "a.py"}),
                                    "launch-bound"),
        "most time on a busy GPU": (_bounded(1000, 1000), "most-time"),
        "compute bound": (_bounded(900_000_000, 1000), "compute-bound"),
        "compute bound, TF32": (_bounded(900_000_000, 1000, replace(GPU, tf32=True)),
                                "compute-bound"),
        "compute bound, halves": (_bounded(900_000_000, 1000, dtype="mixed16"), "compute-bound"),
        "memory bound": (_bounded(1000, 180_000_000), "memory-bound"),
        "no cuDNN": (_bounded(1_000_000, 1000, replace(GPU, cudnn="")), "matrix-rate"),
    }  # fmt: skip
