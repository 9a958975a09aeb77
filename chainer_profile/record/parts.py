"""The parts of a recording: its layers and links, what was asked for, and where it ran.

:mod:`chainer_profile.record.recording` gives them all, and is the module to import them from.
"""

from __future__ import annotations

from dataclasses import dataclass

Shape = tuple[int, ...]


class Escaped:
    """A part that files hold: bytes of names that are no UTF-8, as of files, are escaped in it."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, str) and not value.isascii():
                escaped = value.encode(errors="backslashreplace").decode()
                object.__setattr__(self, name, escaped)


@dataclass(frozen=True)
class Layer(Escaped):
    """One function call of a trial: one row of the profile.

    Attributes:
        index: Place in the order of the calls of one trial, from 0.
        path: Path of the link that made the call, as ``namedlinks()`` gives it
            (``/res4/0/conv1``); ``/`` for the network itself. In communication, path of the
            parameter that is moved (``/res4/0/conv1/W``), or of the link whose parameters are moved
            at once.
        function: Chainer's name of the function (``Convolution2DFunction``).
        phase: ``forward``, ``backward``, ``communication`` (moving gradients, or parameters, among
            ranks), ``update``, or ``data`` (loading it).
        input_shapes: Shapes of the input arrays, parameters included; in backward of the
            gradients that come in, in update of the parameters, in communication of the buffer.
        output_shapes: Shapes of the output arrays; in backward of the gradients that go out.
        dtype: Data type of the first output.
        parent: Index of the call within which this one was made, if any.
        forward: In backward, index of the call that this goes back through, where it is known.
        calls: Number of calls in a trial that count for this row: the mean of a program's
            iterations.
        flops: Floating-point operations of all calls, a multiply-add being two; None without a
            formula (see :mod:`chainer_profile.costs.work`, which says what is counted).
        macs: Multiply-adds of convolutions and matrix products among them; None likewise.
        nbytes_read: Bytes that the calls must read at least; None likewise.
        nbytes_written: Bytes that they must write at least; None likewise.
        work_is_about: Whether these four are approximate: so many operations for each element of
            the largest array, and each array once. False in recordings of older versions.
        input_nbytes: In forward, bytes of the input arrays that are no parameters of the network,
            an array that is passed twice counting once. In communication, bytes of the buffer that
            one call moves. None in other phases.
        parameter_nbytes: In forward, bytes of those that are; None in other phases.
        output_nbytes: In forward, bytes of the output arrays; None in other phases.
        covers: In the recording of another engine than Chainer, indices of Chainer's layers that
            this node of the engine does, ascending; the row's function names all of them. Empty for
            a node of the engine's own, and in recordings of Chainer itself.
        node: In such a recording, the engine's own words for the node: its kind, and its name.

    Beside functions there are rows for the other parts of a training step. Their paths have no
    slash: ``loss`` for functions that the loss function calls outside of the network's links,
    ``cleargrads``, ``optimizer`` for its hooks, ``data`` for the loading of data. In communication
    a row is named after the collective, as MPI calls it (``Allreduce``, ``Bcast``). A row named
    ``gradient_accumulation`` adds up gradients of a variable that several functions use. In update
    a row is named after the optimizer, and holds the parameters of one link.
    """

    index: int
    path: str
    function: str
    phase: str = "forward"
    input_shapes: tuple[Shape, ...] = ()
    output_shapes: tuple[Shape, ...] = ()
    dtype: str = ""
    parent: int | None = None
    forward: int | None = None
    calls: int | float = 1
    flops: int | None = None
    macs: int | None = None
    nbytes_read: int | None = None
    nbytes_written: int | None = None
    work_is_about: bool = False
    input_nbytes: int | None = None
    parameter_nbytes: int | None = None
    output_nbytes: int | None = None
    covers: tuple[int, ...] = ()
    node: str = ""

    @property
    def label(self) -> str:
        """Index and function name: ``21_Convolution2DFunction``."""
        return f"{self.index}_{self.function}"


@dataclass(frozen=True)
class LinkCalls(Escaped):
    """One link of the network.

    Attributes:
        path: Its path, as ``namedlinks()`` gives it; ``/`` for the network itself. A link that is
            shared by several goes by its first path.
        kind: Name of its class.
        calls: How often a trial calls it (the mean of a program's iterations); 0 for a link whose
            ``forward`` or parameters are used without calling it.
        parameters: Number of its own parameters, without those of links below. One that several
            links share (tied weights) counts for the first of them alone.
    """

    path: str
    kind: str
    calls: int | float
    parameters: int


@dataclass(frozen=True)
class Settings(Escaped):
    """What was asked for: the network, its input and the number of trials.

    Attributes:
        model: Name of the network.
        input: What the input was, in words.
        input_shape: Shape of the input array, batch included.
        batchsize: Images per trial.
        device: ``cpu`` or ``gpu:0``.
        phase: What a trial was: ``forward``, ``forward-backward`` or ``train``.
        loss: Name of the loss, where there is one.
        optimizer: Name of the optimizer, where there is one.
        train_mode: Whether ``chainer.config.train`` was on.
        with_graph: Whether a forward pass made the graph, because the network fails without one.
        trials: Profiled trials asked for (an upper bound with max_seconds or until_ci).
        clean_trials: Trials without any hook asked for.
        warmups: Warm-up trials asked for.
        threads: BLAS threads asked for; None lets a few trials choose, or the library.
        seed: Seed of the initial weights and of a random input.
        weights: File the weights were loaded from; empty for initial weights.
        max_seconds: Time limit of all passes in seconds, if any.
        until_ci: Wanted half width of the 95 % interval of the median trial, as a fraction, if any.
        command: The command line that started the run, if it was one.
        dtype: Chainer's ``config.dtype``: ``float32``, ``float16`` or ``mixed16``.
        fast: Kernels that :func:`~chainer_profile.accelerate` put under Chainer's functions; empty
            for Chainer's own.
        keep_memory: Whether freed memory was kept in the process, also by these.
        engine: The engine that ran the network, with its version (``onnxruntime 1.20.1``); empty
            for Chainer itself.
        precision: What that engine computed in: ``fp32``, ``bf16`` or ``fp16``; empty for Chainer.
        inclusive: Whether the time of a call holds those of the calls within it, so that the times
            add up to no trial; see :func:`~chainer_profile.fold_call_history`.
    """

    model: str = ""
    input: str = ""
    input_shape: Shape = ()
    batchsize: int = 1
    device: str = "cpu"
    phase: str = "forward"
    loss: str = ""
    optimizer: str = ""
    train_mode: bool = False
    with_graph: bool = False
    trials: int = 0
    clean_trials: int = 0
    warmups: int = 0
    threads: int | None = None
    seed: int | None = None
    weights: str = ""
    max_seconds: float | None = None
    until_ci: float | None = None
    command: str = ""
    dtype: str = "float32"
    fast: str = ""
    keep_memory: bool = False
    engine: str = ""
    precision: str = ""
    inclusive: bool = False


@dataclass(frozen=True)
class BlasLibrary:
    """A BLAS library in the process.

    Attributes:
        name: Name of the library.
        version: Its version.
        threads: Its number of threads.
        kernels: Architecture whose kernels it runs, by the library's own name (``Haswell``); empty
            where that is not known, and in recordings of older versions.
    """

    name: str
    version: str
    threads: int
    kernels: str = ""


@dataclass(frozen=True)
class Gpu:
    """A GPU, and the libraries for it.

    Attributes:
        number: Its number among CUDA's devices.
        name: Its name.
        compute_capability: Such as ``9.0``.
        memory_nbytes: Its memory.
        driver: Version of the driver, where NVML is installed.
        driver_cuda: CUDA version that the driver knows.
        cuda: Version of the CUDA runtime.
        cudnn: Version of cuDNN; empty where Chainer has none, as with CuPy 14.
        tf32: Whether CuPy's float32 matrix products may round their inputs to TF32; None where
            that is not known.
    """

    number: int = 0
    name: str = ""
    compute_capability: str = ""
    memory_nbytes: int | None = None
    driver: str = ""
    driver_cuda: str = ""
    cuda: str = ""
    cudnn: str = ""
    tf32: bool | None = None


@dataclass(frozen=True)
class GpuState:
    """How a GPU fared at one moment, by NVML; None for what it does not tell.

    Attributes:
        sm_mhz: Clock of its processors, in MHz.
        most_sm_mhz: The highest that this may be.
        memory_mhz: Clock of its memory, in MHz.
        temperature_c: Its temperature in degrees Celsius.
        power_w: What it draws, in watts.
        throttle: Why its clocks are lower than they could be, in words.
    """

    sm_mhz: int | None = None
    most_sm_mhz: int | None = None
    memory_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    throttle: tuple[str, ...] = ()


@dataclass(frozen=True)
class Environment(Escaped):
    """The machine and the software of a run.

    Attributes:
        started: Begin of the run (UTC).
        system: Operating system and architecture.
        processor: Name of the processor.
        physical_cores: Its cores.
        usable_cores: Logical cores that the process may use.
        memory_nbytes: Main memory.
        python: Python and its version.
        chainer: Version of Chainer.
        numpy: Version of NumPy.
        cupy: Version of CuPy; empty without one.
        profiler: Version of chainer-profile.
        commit: Commit of chainer-profile's sources, where they are a git repository.
        blas: The BLAS libraries in the process.
        gpu: The GPU of the run.
        variables: Variables of the process, with their values, that make a library compute in
            another way than it would on this processor (``OPENBLAS_CORETYPE=Nehalem``).
    """

    started: str = ""
    system: str = ""
    processor: str = ""
    physical_cores: int | None = None
    usable_cores: int | None = None
    memory_nbytes: int | None = None
    python: str = ""
    chainer: str = ""
    numpy: str = ""
    cupy: str = ""
    profiler: str = ""
    commit: str = ""
    blas: tuple[BlasLibrary, ...] = ()
    gpu: Gpu | None = None
    variables: tuple[str, ...] = ()


#: ``Rank.clock_error_ns`` where the clocks could not be compared.
UNKNOWN_NS = 2**62


@dataclass(frozen=True)
class Rank:
    """Which of the processes of a training with ChainerMN this one was.

    Attributes:
        number: Its rank in the optimizer's communicator, from 0.
        size: Number of ranks in it.
        host: Name of its host.
        clock_offset_ns: To be added to this rank's clock to have that of rank 0.
        clock_error_ns: How far that may be wrong: 0 on one host, where there is one clock; else
            half the smallest round trip between the two, or :data:`UNKNOWN_NS`.
    """

    number: int
    size: int
    host: str
    clock_offset_ns: int = 0
    clock_error_ns: int = 0


@dataclass(frozen=True)
class Calibration:
    """Times of fixed work: how fast the machine itself was at one moment; see :mod:`.calibration`.

    Attributes:
        product_s: Median time of a matrix product of a fixed size, in seconds.
        copy_s: Median time of a copy of a fixed size, in seconds.
    """

    product_s: float
    copy_s: float


@dataclass(frozen=True)
class Conditions:
    """What was measured about the measuring itself.

    Attributes:
        clock_resolution_ns: Smallest step of the clock that was seen.
        window_ns: Time that the recorder shows for a function that does nothing.
        call_ns: What recording really adds to a call, where rows are by link; None elsewhere.
        other_cpu: Processor cores that other programs kept busy on average during the trials.
        gpu_before: How the GPU fared before the trials; None without NVML.
        gpu_after: The same after them.
        calibrations: How fast the machine was before the trials, and after them; empty where that
            was not measured.
        not_finite: What of the network held NaN or an infinity.
    """

    clock_resolution_ns: float | None = None
    window_ns: float | None = None
    call_ns: float | None = None
    other_cpu: float | None = None
    gpu_before: GpuState | None = None
    gpu_after: GpuState | None = None
    calibrations: tuple[Calibration, ...] = ()
    not_finite: tuple[str, ...] = ()


@dataclass(frozen=True)
class MachineLimits:
    """What a machine can do at best, as measured; the roofs of the roofline model.

    Attributes:
        key: What the limits depend on: processor or GPU, libraries, threads.
        device: ``cpu`` or ``gpu:0``.
        measured: When they were measured (UTC).
        threads: BLAS threads in use; 0 where that is not known.
        flops_per_s: Operations a second of the fastest float32 matrix product; a multiply-add is
            two.
        half_flops_per_s: The same in float16; None on a CPU.
        copy_nbytes_per_s: Bytes a second, read and written, of a pass over a large array in place.
        fresh_nbytes_per_s: The same of a copy into newly allocated memory, which is what
            functions do that allocate their output: the system hands such memory out page by page.
        copied_nbytes: Size of that array.
        busy: Whether other programs kept the machine busy meanwhile: the rates may be too low.
    """

    key: str
    device: str
    measured: str
    threads: int
    flops_per_s: float
    half_flops_per_s: float | None
    copy_nbytes_per_s: float
    fresh_nbytes_per_s: float
    copied_nbytes: int
    busy: bool = False

    @property
    def ridge(self) -> float:
        """Operations a byte from which arithmetic and not memory is the bound, in float32."""
        return self.flops_per_s / self.copy_nbytes_per_s


@dataclass(frozen=True)
class Counted:
    """One counter in the trials of the counters pass.

    Attributes:
        name: ``wall_ns``; ``cpu_ns`` and ``system_ns``, CPU time of the thread and the part of it
            that the system ran for it; ``page_faults``; ``waits`` and ``preemptions``, how often
            the thread gave its processor up, and how often it was taken from it. Recordings of
            older versions may hold ``cycles``, ``instructions`` and ``cache_misses`` of the
            processor, which nothing reads.
        layers: Sum over the trials of every layer, without calls within it. Empty for
            ``system_ns``, which is right for whole trials alone; recordings of older versions hold
            it, and nothing reads it.
        framework: The same of what passed between the layers of every phase whose framework is
            known by itself.
        trial: Of every trial as a whole.
        window: What a function that does nothing shows on average: the reading of the counters.
    """

    name: str
    layers: tuple[int, ...]
    framework: tuple[int, ...]
    trial: tuple[int, ...]
    window: float = 0.0


@dataclass(frozen=True)
class Counters:
    """What the thread that calls the network does in every layer, from the counters pass.

    What BLAS's other threads do is not in it.

    Attributes:
        trials: Number of its trials, which are of the recording's kind.
        counted: The counters that this machine has.
        fault_ns: CPU time that a page fault takes at least: for a small page of memory, and not for
            a huge one. None where it was not measured, as in recordings of older versions.
    """

    trials: int
    counted: tuple[Counted, ...]
    fault_ns: float | None = None

    def __getitem__(self, name: str) -> Counted | None:
        return next((one for one in self.counted if one.name == name), None)


@dataclass(frozen=True)
class PhaseMemory:
    """What one phase of a trial allocates: its rows, and its framework between them.

    Attributes:
        phase: Its name, as the layers have it.
        high_nbytes: The most bytes that were allocated while it ran, beyond what was there when
            the trial began; negative where it ran with less than that.
        retained_nbytes: Bytes that were allocated in it and not freed in it; negative where it
            freed more.
    """

    phase: str
    high_nbytes: int
    retained_nbytes: int


@dataclass(frozen=True)
class MemoryUse:
    """What the layers of one trial allocate, from the memory pass. All sizes are bytes.

    When a trial begins, gradients and what else the step before left are there, and are freed in
    it. In a training that may be the whole graph of the iteration before: where the network keeps
    its loss, as Chainer's Classifier does, the forward phase frees it.

    Attributes:
        peak_nbytes: Of each layer, the most that was allocated within it beyond what was there at
            its begin, in nested calls too; over several calls, of the one with the highest peak.
        retained_nbytes: Of each layer, what it left allocated at its end, summed over its calls
            and without that of nested calls; negative where it freed more.
        parameter_nbytes: All parameters and persistent arrays of the network.
        input_nbytes: The inputs of the trial.
        high_water_nbytes: The most that was allocated in the trial beyond what was there at its
            begin.
        high_water_layer: Index of the layer where that was; None outside of all layers.
        kept_for_backward_nbytes: What the forward phase left for the backward phase, beyond the
            least that was allocated within it; None where it is not known which part of the trial
            the forward phase is, and without a backward phase.
        phases: The same by phase, in the order of the phases' first rows. What passed outside of
            all phases belongs to none of them, but in a trial of a single phase, which has no
            known framework, to that one. Empty in recordings of older versions.
        pool_used_nbytes: On a GPU, what CuPy's memory pool had handed out after the trial; None on
            a CPU.
        pool_total_nbytes: What the pool had taken from the GPU by then, used and free.
        gradient_nbytes: The gradients of the parameters. Chainer makes them with the parameters, so
            they are there in inference too; when a training step begins they are those of the step
            before. None in recordings of older versions.
        state_nbytes: What the optimizer keeps for the parameters, such as momenta; None likewise.
    """

    peak_nbytes: tuple[int, ...]
    retained_nbytes: tuple[int, ...]
    parameter_nbytes: int
    input_nbytes: int
    high_water_nbytes: int
    high_water_layer: int | None
    kept_for_backward_nbytes: int | None = None
    phases: tuple[PhaseMemory, ...] = ()
    pool_used_nbytes: int | None = None
    pool_total_nbytes: int | None = None
    gradient_nbytes: int | None = None
    state_nbytes: int | None = None

    @property
    def there_nbytes(self) -> int | None:
        """What network, optimizer and inputs have when the trial begins; None if not known."""
        if self.gradient_nbytes is None or self.state_nbytes is None:
            return None
        mine = self.parameter_nbytes + self.input_nbytes
        return mine + self.gradient_nbytes + self.state_nbytes
