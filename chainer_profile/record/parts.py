"""The parts of a recording: layers, links, settings and environment.

Import them from :mod:`chainer_profile.record.recording`.
"""

from __future__ import annotations

from dataclasses import dataclass

Shape = tuple[int, ...]


class Escaped:
    """A part that is saved: bytes in its texts that are no UTF-8, as in file names, are escaped."""

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
            (``/res4/0/conv1``); ``/`` for the network itself. In communication, path of the moved
            parameter (``/res4/0/conv1/W``), or of the link whose parameters move together.
        function: Chainer's name of the function (``Convolution2DFunction``).
        phase: ``forward``, ``backward``, ``communication`` (moving gradients, or parameters, among
            ranks), ``update``, or ``data`` (loading it).
        input_shapes: Shapes of the input arrays, parameters included; in backward of the
            gradients that come in, in update of the parameters, in communication of the buffer.
        output_shapes: Shapes of the output arrays; in backward of the gradients that go out.
        dtype: Data type of the first output.
        parent: Index of the call within which this one was made, if any.
        forward: In backward, index of the forward call whose gradients this computes, if known.
        calls: Number of calls in a trial that count for this row; in a program the mean over its
            iterations.
        flops: Floating-point operations of all calls, a multiply-add being two; None without a
            formula (see :mod:`chainer_profile.costs.work`, which says what is counted).
        macs: Multiply-adds of convolutions and matrix products among them; None likewise.
        nbytes_read: Bytes that the calls must read at least; None likewise.
        nbytes_written: Bytes that they must write at least; None likewise.
        work_is_about: Whether these four are approximate: a fixed number of operations for each
            element of the largest array, and each array once.
        input_nbytes: In forward, bytes of the input arrays without the network's parameters; an
            array that is passed twice counts once. In communication, bytes of the buffer that one
            call moves. None in other phases.
        parameter_nbytes: In forward, bytes of the parameters among the inputs; else None.
        output_nbytes: In forward, bytes of the output arrays; None in other phases.
        covers: In the recording of another engine, indices of Chainer's layers that this node of
            the engine computes, ascending; the row's function names all of them. Empty for a node
            without a layer of Chainer's, and in recordings of Chainer itself.
        node: In such a recording, the engine's type and name of the node.

    Beside functions there are rows for the other parts of a training step. Their paths have no
    slash: ``loss`` for functions that the loss function calls outside of the network's links,
    ``cleargrads``, ``optimizer`` for its hooks, ``data`` for the loading of data. In communication
    a row is named after the collective, as MPI calls it (``Allreduce``, ``Bcast``). A row named
    ``gradient_accumulation`` adds up gradients of a variable that several functions use. In update
    a row is named after the optimizer, and covers the parameters of one link.
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
    """One link of the network."""

    #: Its path, as ``namedlinks()`` gives it; ``/`` for the network itself. A link that is shared
    #: by several goes by its first path.
    path: str
    kind: str  #: Name of its class.
    #: How often a trial calls it (the mean of a program's iterations); 0 for a link whose
    #: ``forward`` or parameters are used without calling it.
    calls: int | float
    #: Number of its own parameters, without those of links below. One that several links share
    #: (tied weights) counts for the first of them alone.
    parameters: int


@dataclass(frozen=True)
class Settings(Escaped):
    """The settings of a run: the network, its input and the number of trials."""

    model: str = ""  #: Name of the network.
    input: str = ""  #: The input, in words.
    input_shape: Shape = ()  #: Shape of the input array, batch included.
    batchsize: int = 1  #: Images per trial; 0 where that is not known.
    device: str = "cpu"  #: ``cpu`` or ``gpu:0``.
    phase: str = "forward"  #: The work of a trial: ``forward``, ``forward-backward`` or ``train``.
    loss: str = ""  #: Name of the loss, where there is one.
    optimizer: str = ""  #: Name of the optimizer, where there is one.
    train_mode: bool = False  #: Whether ``chainer.config.train`` was on.
    #: Whether a forward pass made the graph, because the network fails without one.
    with_graph: bool = False
    trials: int = 0  #: Profiled trials asked for (an upper bound with max_seconds or until_ci).
    clean_trials: int = 0  #: Trials without any hook asked for.
    warmups: int = 0  #: Warm-up trials asked for.
    #: BLAS threads asked for; None lets a few trials choose, or the library.
    threads: int | None = None
    seed: int | None = None  #: Seed of the initial weights and of a random input.
    weights: str = ""  #: File the weights were loaded from; empty for initial weights.
    max_seconds: float | None = None  #: Time limit of all passes in seconds, if any.
    #: Wanted half width of the 95 % interval of the median trial, as a fraction, if any.
    until_ci: float | None = None
    command: str = ""  #: The command line that started the run, if it was one.
    dtype: str = "float32"  #: Chainer's ``config.dtype``: ``float32``, ``float16`` or ``mixed16``.
    #: Kernels that :func:`~chainer_profile.accelerate` put under Chainer's functions; empty for
    #: Chainer's own.
    fast: str = ""
    keep_memory: bool = False  #: Whether freed memory was kept in the process.
    #: The engine that ran the network, with its version (``onnxruntime 1.20.1``); empty for Chainer
    #: itself.
    engine: str = ""
    #: Whether the time of a call includes the calls within it, so that the times do not add up to a
    #: trial; see :func:`~chainer_profile.fold_call_history`.
    inclusive: bool = False


@dataclass(frozen=True)
class BlasLibrary:
    """A BLAS library in the process."""

    name: str  #: Name of the library.
    version: str  #: Its version.
    threads: int  #: Its number of threads.
    #: Architecture whose kernels it runs, by its own name (``Haswell``); empty where not known.
    kernels: str = ""


@dataclass(frozen=True)
class Gpu:
    """A GPU, and the libraries for it."""

    number: int = 0  #: Its number among CUDA's devices.
    name: str = ""  #: Its name.
    compute_capability: str = ""  #: Such as ``9.0``.
    memory_nbytes: int | None = None  #: Its memory.
    driver: str = ""  #: Version of the driver, where NVML is installed.
    driver_cuda: str = ""  #: CUDA version that the driver knows.
    cuda: str = ""  #: Version of the CUDA runtime.
    cudnn: str = ""  #: Version of cuDNN; empty where Chainer has none, as with CuPy 14.
    #: Whether CuPy's float32 matrix products may round their inputs to TF32; None where that is not
    #: known.
    tf32: bool | None = None


@dataclass(frozen=True)
class GpuState:
    """State of a GPU at one moment, by NVML; None for what NVML does not report."""

    sm_mhz: int | None = None  #: Clock of its processors, in MHz.
    most_sm_mhz: int | None = None  #: Its highest possible clock.
    memory_mhz: int | None = None  #: Clock of its memory, in MHz.
    temperature_c: int | None = None  #: Its temperature in degrees Celsius.
    power_w: float | None = None  #: Its power, in watts.
    throttle: tuple[str, ...] = ()  #: Why its clocks are lower than they could be, in words.


@dataclass(frozen=True)
class Environment(Escaped):
    """The machine and the software of a run."""

    started: str = ""  #: Start of the run (UTC).
    system: str = ""  #: Operating system and architecture.
    processor: str = ""  #: Name of the processor.
    physical_cores: int | None = None  #: Its cores.
    usable_cores: int | None = None  #: Logical cores that the process may use.
    memory_nbytes: int | None = None  #: Main memory.
    python: str = ""  #: Python and its version.
    chainer: str = ""  #: Version of Chainer.
    numpy: str = ""  #: Version of NumPy.
    cupy: str = ""  #: Version of CuPy; empty without one.
    profiler: str = ""  #: Version of chainer-profile.
    commit: str = ""  #: Commit of chainer-profile's sources, where they are a git repository.
    blas: tuple[BlasLibrary, ...] = ()  #: The BLAS libraries in the process.
    gpu: Gpu | None = None  #: The GPU of the run.
    #: Variables of the process, with their values, that make a library compute differently than by
    #: default on this processor (``OPENBLAS_CORETYPE=Nehalem``).
    variables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rank:
    """The rank of this process in a training with ChainerMN."""

    number: int  #: Its rank in the optimizer's communicator, from 0.
    size: int  #: Number of ranks in it.
    host: str  #: Name of its host. The ranks of one host have one clock.


@dataclass(frozen=True)
class Calibration:
    """Times of fixed work: how fast the machine itself was at one moment."""

    product_s: float  #: Median time of a matrix product of a fixed size, in seconds.
    copy_s: float  #: Median time of a copy of a fixed size, in seconds.


@dataclass(frozen=True)
class Denormals(Escaped):
    """An array with denormal numbers, which are closer to zero than 1.2e-38 (float32)."""

    name: str  #: ``/conv1/W``, or what it is in words.
    path: str  #: Path of its link.
    function: str = ""  #: The function that gets it; empty for all of the link.
    phase: str = ""  #: The phase in which it is used; empty for all.
    part: float = 0.0  #: The part of its numbers that are denormal.
    dtype: str = "float32"  #: Its data type.
    #: How many times as long a product of matrices takes with so many denormal numbers as with
    #: zeros in their place.
    slowdown: float = 1.0


@dataclass(frozen=True)
class Conditions:
    """Resolution and overhead of the measurement, speed and load of the machine."""

    clock_resolution_ns: float | None = None  #: Smallest step of the clock that was seen.
    #: Time that the recorder shows for a function that does nothing.
    window_ns: float | None = None
    #: Time that recording adds to a call, where rows are by link; None elsewhere.
    call_ns: float | None = None
    #: Processor cores that other programs kept busy on average during the trials.
    other_cpu: float | None = None
    gpu_before: GpuState | None = None  #: State of the GPU before the trials; None without NVML.
    gpu_after: GpuState | None = None  #: The same after them.
    #: How fast the machine was before the trials, and after them; empty where that was not
    #: measured.
    calibrations: tuple[Calibration, ...] = ()
    not_finite: tuple[str, ...] = ()  #: Parts of the network with NaN or infinities.
    denormals: tuple[Denormals, ...] = ()  #: Arrays of the network with denormal numbers.


@dataclass(frozen=True)
class MachineLimits:
    """The measured peak rates of a machine: the roofs of the roofline model."""

    key: str  #: The things that the limits depend on: processor or GPU, libraries, threads.
    device: str  #: ``cpu`` or ``gpu:0``.
    measured: str  #: When they were measured (UTC).
    threads: int  #: BLAS threads in use; 0 where that is not known.
    #: Operations a second of the fastest float32 matrix product; a multiply-add is two.
    flops_per_s: float
    half_flops_per_s: float | None  #: The same in float16; None on a CPU.
    #: Bytes a second, read and written, of a pass over a large array in place.
    copy_nbytes_per_s: float
    #: The same for a copy into newly allocated memory, as functions write their outputs: the
    #: system provides such memory page by page.
    fresh_nbytes_per_s: float
    copied_nbytes: int  #: Size of that array.
    #: Whether other programs kept the machine busy meanwhile: the rates may be too low.
    busy: bool = False

    @property
    def ridge(self) -> float:
        """Operations a byte from which arithmetic and not memory is the bound, in float32."""
        return self.flops_per_s / self.copy_nbytes_per_s


@dataclass(frozen=True)
class Counted:
    """One counter in the trials of the counters pass."""

    #: ``wall_ns``; ``cpu_ns`` and ``system_ns``, CPU time of the thread and the part of it that the
    #: system ran for it; ``page_faults``; ``waits`` and ``preemptions``, how often the thread gave
    #: its processor up, and how often it was taken from it.
    name: str
    #: Sum over the trials of every layer, without calls within it. Empty for ``system_ns``, which
    #: is right only for whole trials.
    layers: tuple[int, ...]
    #: The same between the layers of every phase whose own framework time is known.
    framework: tuple[int, ...]
    trial: tuple[int, ...]  #: Of every trial as a whole.
    #: The mean count of a function that does nothing: that of reading the counters.
    window: float = 0.0


@dataclass(frozen=True)
class Counters:
    """Counts of the thread that calls the network, by layer, from the counters pass.

    BLAS's other threads are not in them.
    """

    trials: int  #: Number of its trials, which are of the recording's kind.
    counted: tuple[Counted, ...]  #: The counters that this machine has.
    #: CPU time that a page fault takes at least: for a small page of memory, and not for a huge
    #: one. None where it was not measured.
    fault_ns: float | None = None

    def __getitem__(self, name: str) -> Counted | None:
        return next((counted for counted in self.counted if counted.name == name), None)


@dataclass(frozen=True)
class PhaseMemory:
    """Memory that one phase of a trial allocates, in its rows and between them."""

    phase: str  #: Its name, as the layers have it.
    #: The most bytes that were allocated while it ran, above what was allocated when the trial
    #: started; negative where it ran with less than that.
    high_nbytes: int
    #: Bytes that were allocated in it and not freed in it; negative where it freed more.
    retained_nbytes: int


@dataclass(frozen=True)
class MemoryUse:
    """Memory that the layers of a trial allocate, from the memory pass. All sizes are bytes.

    When a trial starts, gradients and what else the step before left are allocated, and are freed
    in it. In a training that may be the whole graph of the iteration before: where the network
    keeps its loss, as Chainer's Classifier does, the forward phase frees it.
    """

    #: Of each layer, the most that was allocated within it above what was allocated when it
    #: started, in nested calls too; over several calls, of the one with the highest peak.
    peak_nbytes: tuple[int, ...]
    #: Of each layer, what it left allocated at its end, summed over its calls and without that of
    #: nested calls; negative where it freed more.
    retained_nbytes: tuple[int, ...]
    parameter_nbytes: int  #: All parameters and persistent arrays of the network.
    input_nbytes: int  #: The inputs of the trial.
    #: The most that was allocated in the trial above what was allocated when it started.
    high_water_nbytes: int
    high_water_layer: int | None  #: Index of the layer where that was; None outside of all layers.
    #: What the forward phase left for the backward phase, above the least that was allocated
    #: within it; None where it is not known which part of the trial the forward phase is, and
    #: without a backward phase.
    kept_for_backward_nbytes: int | None = None
    #: The same by phase, in the order of the phases' first rows. What was allocated outside all
    #: phases belongs to none of them; in a trial of a single phase, which has no known framework,
    #: it belongs to that phase. Empty in recordings of older versions.
    phases: tuple[PhaseMemory, ...] = ()
    #: On a GPU, what CuPy's memory pool had handed out after the trial; None on a CPU.
    pool_used_nbytes: int | None = None
    #: What the pool had taken from the GPU by then, used and free.
    pool_total_nbytes: int | None = None
    #: The gradients of the parameters. Chainer makes them with the parameters, so they are there in
    #: inference too; when a training step begins they are those of the step before. None in
    #: recordings of older versions.
    gradient_nbytes: int | None = None
    #: What the optimizer keeps for the parameters, such as momenta; None likewise.
    state_nbytes: int | None = None

    @property
    def there_nbytes(self) -> int | None:
        """Bytes of network, optimizer and inputs when the trial starts; None if not known."""
        if self.gradient_nbytes is None or self.state_nbytes is None:
            return None
        parameters = self.parameter_nbytes + self.gradient_nbytes + self.state_nbytes
        return parameters + self.input_nbytes
