"""The parts of a recording: layers, links, settings and environment.

Import them from :mod:`chainer_profile.record.recording`.
"""

from __future__ import annotations

from dataclasses import dataclass

Shape = tuple[int, ...]


class Escaped:
    """A saved part of a recording. Escapes text that is not valid UTF-8, such as file names."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, str) and not value.isascii():
                escaped = value.encode(errors="backslashreplace").decode()
                object.__setattr__(self, name, escaped)


@dataclass(frozen=True)
class Layer(Escaped):
    """One function call of a trial: one row of the profile.

    Attributes:
        index: Position in the order of the calls of one trial, from 0.
        path: Path of the link that made the call, as ``namedlinks()`` gives it
            (``/res4/0/conv1``); ``/`` for the network itself. In communication, path of the moved
            parameter (``/res4/0/conv1/W``), or of the link if its parameters move together.
        function: Chainer's name of the function (``Convolution2DFunction``).
        phase: ``forward``, ``backward``, ``communication`` (of gradients or parameters among
            ranks), ``update``, or ``data`` (loading of data).
        input_shapes: Shapes of the input arrays, including parameters. In backward, of the
            incoming gradients; in update, of the parameters; in communication, of the buffer.
        output_shapes: Shapes of the output arrays; in backward, of the outgoing gradients.
        dtype: Data type of the first output.
        parent: Index of the call that contains this one; None for an outermost call.
        forward: In backward, index of the forward call, if known.
        calls: Number of calls in a trial that count for this row; in a program the mean over its
            iterations.
        flops: Floating-point operations of all calls; a multiply-add is two operations. None
            without a formula (see :mod:`chainer_profile.costs.work`).
        macs: Multiply-adds of convolutions and matrix products; None without a formula.
        nbytes_read: Fewest bytes that the calls read; None without a formula.
        nbytes_written: Fewest bytes that the calls write; None without a formula.
        work_is_about: Whether these four are approximate: a fixed number of operations for each
            element of the largest array, and one pass over each array.
        input_nbytes: In forward, bytes of the input arrays without the network's parameters; an
            array that is passed twice counts once. In communication, bytes of the buffer that one
            call moves. None in other phases.
        parameter_nbytes: In forward, bytes of the parameters among the inputs; else None.
        output_nbytes: In forward, bytes of the output arrays; None in other phases.
        covers: In the recording of another engine, ascending indices of the layers of Chainer that
            this node of the engine computes; ``function`` has all their names. Empty for a node
            without a layer of Chainer, and in recordings of Chainer itself.
        node: In such a recording, the engine's type and name of the node.

    The other operations of a training step have rows, too. Their paths have no slash: ``loss`` for
    functions that the loss function calls outside of the network's links, ``cleargrads``,
    ``optimizer`` for its hooks, ``data`` for the loading of data. In communication, the function of
    a row is the collective in MPI's terms (``Allreduce``, ``Bcast``). A row named
    ``gradient_accumulation`` adds up gradients of a variable that several functions use. In update,
    the function of a row is the optimizer, and the row covers the parameters of one link.
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

    #: Path, as ``namedlinks()`` gives it; ``/`` for the network itself. A link with several parents
    #: has its first path.
    path: str
    kind: str  #: Name of the class.
    #: Calls of the link in a trial, for a program the mean over its iterations. 0 for a link if
    #: only its ``forward`` or its parameters are used.
    calls: int | float
    #: Number of parameters, without parameters of child links. If several links share a parameter
    #: (tied weights), only the first link counts it.
    parameters: int


@dataclass(frozen=True)
class Settings(Escaped):
    """The settings of a run: the network, its input and the number of trials."""

    model: str = ""  #: Name of the network.
    input: str = ""  #: The input, in words.
    input_shape: Shape = ()  #: Shape of the input array, batch included.
    batchsize: int = 1  #: Inputs per trial; 0 if unknown.
    device: str = "cpu"  #: ``cpu`` or ``gpu:0``.
    phase: str = "forward"  #: The work of a trial: ``forward``, ``forward-backward`` or ``train``.
    loss: str = ""  #: Name of the loss, if any.
    optimizer: str = ""  #: Name of the optimizer, if any.
    train_mode: bool = False  #: Whether ``chainer.config.train`` was on.
    #: Whether a forward pass built the graph, because the network fails without one.
    with_graph: bool = False
    trials: int = 0  #: Requested profiled trials (an upper bound with max_seconds or until_ci).
    clean_trials: int = 0  #: Requested unprofiled trials.
    warmups: int = 0  #: Requested warm-up trials.
    #: Requested BLAS threads. If None, a few trials choose them, or the library does.
    threads: int | None = None
    seed: int | None = None  #: Seed of the initial weights and of a random input.
    weights: str = ""  #: File the weights were loaded from; empty for initial weights.
    max_seconds: float | None = None  #: Time limit of all passes in seconds, if any.
    #: Wanted half width of the 95 % interval of the median trial, as a fraction, if any.
    until_ci: float | None = None
    command: str = ""  #: The command line that started the run, if it was one.
    dtype: str = "float32"  #: Chainer's ``config.dtype``: ``float32``, ``float16`` or ``mixed16``.
    #: Kernels of :func:`~chainer_profile.accelerate`; empty for Chainer's kernels.
    fast: str = ""
    keep_memory: bool = False  #: Whether freed memory was kept in the process.
    #: The engine that ran the network, with its version (``onnxruntime 1.20.1``); empty for Chainer
    #: itself.
    engine: str = ""
    #: Whether the time of a call includes nested calls, so that times do not add up to a trial; see
    #: :func:`~chainer_profile.fold_call_history`.
    inclusive: bool = False


@dataclass(frozen=True)
class BlasLibrary:
    """A BLAS library in the process."""

    name: str  #: Name of the library.
    version: str  #: Its version.
    threads: int  #: Its number of threads.
    #: Architecture of its kernels, in the library's terms (``Haswell``); empty if unknown.
    kernels: str = ""


@dataclass(frozen=True)
class Gpu:
    """A GPU, and the libraries for it."""

    number: int = 0  #: Its number among CUDA's devices.
    name: str = ""  #: Its name.
    compute_capability: str = ""  #: Such as ``9.0``.
    memory_nbytes: int | None = None  #: Its memory.
    driver: str = ""  #: Version of the driver, if NVML is installed.
    driver_cuda: str = ""  #: Newest CUDA version that the driver supports.
    cuda: str = ""  #: Version of the CUDA runtime.
    cudnn: str = ""  #: Version of cuDNN; empty if Chainer cannot use it, as with CuPy 14.
    #: Whether CuPy's float32 matrix products may round their inputs to TF32; None if unknown.
    tf32: bool | None = None


@dataclass(frozen=True)
class GpuState:
    """State of a GPU at one moment, from NVML; None for a value that NVML does not report."""

    sm_mhz: int | None = None  #: Clock of its processors, in MHz.
    most_sm_mhz: int | None = None  #: Its highest possible clock.
    memory_mhz: int | None = None  #: Clock of its memory, in MHz.
    temperature_c: int | None = None  #: Its temperature in degrees Celsius.
    power_w: float | None = None  #: Its power, in watts.
    throttle: tuple[str, ...] = ()  #: Reasons for reduced clocks, in words.


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
    commit: str = ""  #: Commit of chainer-profile, if its sources are a git repository.
    blas: tuple[BlasLibrary, ...] = ()  #: The BLAS libraries in the process.
    gpu: Gpu | None = None  #: The GPU of the run.
    #: Environment variables, with values, that change a library's default kernels on this
    #: processor (``OPENBLAS_CORETYPE=Nehalem``).
    variables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rank:
    """The rank of this process in a training with ChainerMN."""

    number: int  #: Its rank in the optimizer's communicator, from 0.
    size: int  #: Number of ranks in it.
    host: str  #: Name of its host. The ranks of one host have one clock.


@dataclass(frozen=True)
class Calibration:
    """Times of fixed work, which show the speed of the machine at one moment."""

    product_s: float  #: Median time of a matrix product of a fixed size, in seconds.
    copy_s: float  #: Median time of a copy of a fixed size, in seconds.


@dataclass(frozen=True)
class Denormals(Escaped):
    """An array with denormal numbers, which are closer to zero than 1.2e-38 (float32)."""

    name: str  #: ``/conv1/W``, or a description.
    path: str  #: Path of its link.
    function: str = ""  #: The function that gets the array; empty for all functions of the link.
    phase: str = ""  #: The phase that uses the array; empty for all phases.
    part: float = 0.0  #: Fraction of its numbers that are denormal.
    dtype: str = "float32"  #: Its data type.
    #: Time of a matrix product with this fraction of denormal numbers, divided by the time with
    #: zeros instead.
    slowdown: float = 1.0


#: Cores that other programs use, from which they disturb a measurement; see ``other_cpu``.
BUSY_CORES = 0.25


@dataclass(frozen=True)
class Conditions:
    """Resolution and overhead of the measurement, speed and load of the machine."""

    clock_resolution_ns: float | None = None  #: Smallest observed step of the clock.
    #: Recorded time of a function that does nothing.
    window_ns: float | None = None
    #: Time that recording adds to a call, if rows are by link; else None.
    call_ns: float | None = None
    #: Processor cores that other programs kept busy on average during the trials.
    other_cpu: float | None = None
    gpu_before: GpuState | None = None  #: State of the GPU before the trials; None without NVML.
    gpu_after: GpuState | None = None  #: The same after them.
    #: Speed of the machine before and after the trials; empty if it was not measured.
    calibrations: tuple[Calibration, ...] = ()
    not_finite: tuple[str, ...] = ()  #: Arrays of the network with NaN or infinite numbers.
    denormals: tuple[Denormals, ...] = ()  #: Arrays of the network with denormal numbers.


@dataclass(frozen=True)
class MachineLimits:
    """The measured peak rates of a machine: the roofs of the roofline model."""

    key: str  #: Everything that the limits depend on: processor or GPU, libraries, threads.
    device: str  #: ``cpu`` or ``gpu:0``.
    measured: str  #: Time of the measurement (UTC).
    threads: int  #: BLAS threads; 0 if unknown.
    #: Operations per second of the fastest float32 matrix product; a multiply-add is two.
    flops_per_s: float
    half_flops_per_s: float | None  #: The same in float16; None on a CPU.
    #: Bytes read and written per second by an in-place operation on a large array.
    copy_nbytes_per_s: float
    #: Bytes read and written per second by a copy into newly allocated memory, as functions write
    #: their outputs. The system provides such memory page by page.
    fresh_nbytes_per_s: float
    copied_nbytes: int  #: Size of that array.
    #: Whether other programs used the processor during the measurement, so rates may be too low.
    busy: bool = False

    @property
    def ridge(self) -> float:
        """Operations per byte above which arithmetic, not memory, is the limit, in float32."""
        return self.flops_per_s / self.copy_nbytes_per_s


@dataclass(frozen=True)
class Counted:
    """One counter in the trials of the counters pass."""

    #: ``wall_ns``; ``cpu_ns``, the CPU time of the thread; ``system_ns``, its CPU time in the
    #: kernel; ``page_faults``; ``waits`` and ``preemptions``, its voluntary and involuntary context
    #: switches.
    name: str
    #: Count of each layer, without nested calls, summed over the trials. Empty for ``system_ns``,
    #: which is accurate only for whole trials.
    layers: tuple[int, ...]
    #: Count between the layers of each phase with a known framework time, summed over the trials.
    framework: tuple[int, ...]
    trial: tuple[int, ...]  #: Count of each whole trial.
    #: Mean count of a function that does nothing, which reading the counters causes.
    window: float = 0.0


@dataclass(frozen=True)
class Counters:
    """Counts of the thread that calls the network, by layer, from the counters pass.

    They exclude other threads of BLAS.
    """

    trials: int  #: Number of trials, which do the same work as the recording's other trials.
    counted: tuple[Counted, ...]  #: The counters that this machine supports.
    #: Smallest CPU time of a page fault: for a small page, not a huge one. None if it was not
    #: measured.
    fault_ns: float | None = None

    def __getitem__(self, name: str) -> Counted | None:
        return next((counted for counted in self.counted if counted.name == name), None)


@dataclass(frozen=True)
class PhaseMemory:
    """Memory that one phase of a trial allocates, in its rows and between them."""

    phase: str  #: Name of the phase, as in the layers.
    #: Peak of the allocated bytes during the phase, relative to the start of the trial; may be
    #: negative.
    high_nbytes: int
    #: Bytes allocated minus bytes freed in the phase; may be negative.
    retained_nbytes: int


@dataclass(frozen=True)
class MemoryUse:
    """Memory that the layers of a trial allocate, from the memory pass. All sizes are bytes.

    A trial starts with gradients and other arrays of the previous step, and frees them. In a
    training this may be the whole graph of the previous iteration: if the network stores its loss,
    as Chainer's Classifier does, the forward phase frees that graph.
    """

    #: For each layer, the peak of the allocated bytes during a call, including nested calls,
    #: relative to the start of the call. The highest peak counts if there are several calls.
    peak_nbytes: tuple[int, ...]
    #: For each layer, bytes allocated minus bytes freed, summed over its calls, without nested
    #: calls; may be negative.
    retained_nbytes: tuple[int, ...]
    parameter_nbytes: int  #: All parameters and persistent arrays of the network.
    input_nbytes: int  #: The inputs of the trial.
    #: Peak of the allocated bytes during the trial, relative to its start.
    high_water_nbytes: int
    high_water_layer: int | None  #: Index of the layer with this peak; None outside of all layers.
    #: Bytes allocated at the end of the forward phase, above the lowest level within it. None
    #: without a backward phase, or if the limits of the forward phase are unknown.
    kept_for_backward_nbytes: int | None = None
    #: Memory by phase, in the order of the phases' first rows. It excludes allocations outside all
    #: phases, except for a trial of a single phase, which includes them. Empty in recordings of
    #: older versions.
    phases: tuple[PhaseMemory, ...] = ()
    #: On a GPU, bytes in use in CuPy's memory pool after the trial; None on a CPU.
    pool_used_nbytes: int | None = None
    #: On a GPU, bytes of the pool after the trial, used and free; None on a CPU.
    pool_total_nbytes: int | None = None
    #: Gradients of the parameters. Chainer creates them with the parameters, so inference has them
    #: too. A training step begins with the gradients of the previous step. None in recordings of
    #: older versions.
    gradient_nbytes: int | None = None
    #: The optimizer's state, such as momenta. None in recordings of older versions.
    state_nbytes: int | None = None

    @property
    def initial_nbytes(self) -> int | None:
        """Bytes of network, optimizer and inputs at the start of the trial; None if unknown."""
        if self.gradient_nbytes is None or self.state_nbytes is None:
            return None
        parameters = self.parameter_nbytes + self.gradient_nbytes + self.state_nbytes
        return parameters + self.input_nbytes
