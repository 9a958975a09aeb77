"""IPython: ``%load_ext chainer_profile`` gives ``%layerprofile`` and ``%%layerprofile``."""

from __future__ import annotations

import argparse
import ast
import keyword
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from threading import get_ident
from types import CodeType
from typing import Any

import chainer

from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.errors import ProfileError, UsageError, one_line
from chainer_profile.basics.parsing import Parser
from chainer_profile.basics.words import GROUPS, PHASES
from chainer_profile.cli.options import add_count_options, settings_of
from chainer_profile.cli.output_options import add_hotspots_option, add_tree_option
from chainer_profile.integrations.script import without_our_frames
from chainer_profile.measure import calibration, observers, patches, runner
from chainer_profile.measure.arguments import Arguments, FunctionLink, as_network, network_name
from chainer_profile.measure.clock import Clock
from chainer_profile.measure.configuration import current_configuration
from chainer_profile.measure.devices import clock_of, device_name, only_device_of
from chainer_profile.measure.hooks import WalkHook
from chainer_profile.measure.interrupts import interrupts_that_stop
from chainer_profile.measure.loop import Loop, networks, optimizers
from chainer_profile.measure.progress import ProgressBar
from chainer_profile.measure.state import preserved_state
from chainer_profile.measure.steps import make_step
from chainer_profile.record.recording import Recording, Settings
from chainer_profile.report.views import NOTEBOOK_LIMIT, summary_html, summary_text

try:
    from IPython.core.error import UsageError as ShownError
    from IPython.display import display
except ImportError as error:
    raise ProfileError(
        f"the notebook extension needs IPython, which cannot be imported ({one_line(error)}): "
        "python -m pip install ipython"
    ) from None

NAME = "layerprofile"
#: Fewer than on the command line, because the user waits in the notebook.
DEFAULT_TRIALS, DEFAULT_WARMUPS = 100, 10
_ABOUT = """Profiles a Chainer network layer by layer.

%layerprofile [options] model(x) profiles the network or function `model` on its input `x`, as
chainer_profile.profile(model, x) does: its forward pass in test mode, or what --phase says. Any
arguments will do, as long as at least one contains an array.

%%layerprofile [options] profiles all Chainer functions that the cell calls. The cell is a trial and
runs many times. A row is a function of a link with all its calls in a trial, whose number may vary.
Variables keep the values of the last run; only the first run's output is shown. Links are named
after the variables that contain their networks.
"""


def load_ipython_extension(ipython: Any) -> None:
    """Register the magics; IPython calls this for ``%load_ext chainer_profile``."""

    def layerprofile(line: str, cell: str | None = None) -> None:
        # IPython omits frames with this variable, so that a traceback shows the user's code alone.
        __tracebackhide__ = True
        run_magic(ipython, line, cell)

    layerprofile.__doc__ = f"{_ABOUT}\n{_parser().format_help()}"
    ipython.register_magic_function(layerprofile, "line_cell", NAME)


def unload_ipython_extension(ipython: Any) -> None:
    """Remove the magics."""
    for kind in ("line", "cell"):
        ipython.magics_manager.magics[kind].pop(NAME, None)


def run_magic(ipython: Any, line: str, cell: str | None) -> None:
    """Profile a magic's call or cell, and show its summary, also after Ctrl-C."""
    __tracebackhide__ = True
    try:
        args, code = _parse_line(line)
        if args.help:
            print(f"{_ABOUT}\n{_parser().format_help()}")
            return
        if cell is None:
            recording = _profile_call(ipython, args, line, code)
        elif code:
            raise UsageError(f"%%{NAME} takes only options, not {code!r}: the code is the cell")
        else:
            recording = _profile_cell(ipython, args, line, cell)
        _show(ipython, args, recording)
    except ProfileError as error:
        raise ShownError(str(error)) from None
    except BaseException as error:  # raised by the user's code: hide the frames of this package
        kept = getattr(error, "recording", None) if isinstance(error, KeyboardInterrupt) else None
        if kept is not None:
            _show(ipython, args, kept)
        frames = without_our_frames(error.__traceback__) or error.__traceback__
        if isinstance(error, SyntaxError):
            frames = None  # all of them are the compiler's
        raise error.with_traceback(frames)  # noqa: B904  (it is the same error)


def _show(ipython: Any, args: argparse.Namespace, recording: Recording) -> None:
    """Show a recording's summary unless quiet, and store it in the variable of ``--output``."""
    summary = summarise(recording, args.hotspots)
    if args.output:
        ipython.user_ns[args.output] = summary
    if not args.quiet:
        views: dict[str, Any] = {"group_by": args.group_by or GROUPS[0]}
        if args.tree is not None:
            views |= {"tree": True, "depth": args.tree}
        width = shutil.get_terminal_size().columns
        text = summary_text(summary, width=width, limit=NOTEBOOK_LIMIT, **views)
        show: Any = display
        show({"text/plain": text, "text/html": summary_html(summary, **views)}, raw=True)


# -- options


def _parser() -> Parser:
    parser = Parser(prog=f"%{NAME}", add_help=False)
    add_count_options(parser, DEFAULT_TRIALS, DEFAULT_WARMUPS, clean_trials=False)
    about = f"a trial of %%{NAME}: forward (default), forward-backward or train"
    parser.add_argument("--phase", choices=PHASES, help=about)
    about = "show what each layer allocates, in two more trials"
    parser.add_argument("--memory", action="store_true", help=about)
    about = "groups of the second table (default: function)"
    parser.add_argument("--group-by", choices=GROUPS, help=about)
    add_tree_option(parser)
    add_hotspots_option(parser)
    about = "keep the Summary in this variable; its .recording is the Recording"
    parser.add_argument("-o", "--output", metavar="NAME", type=_variable, help=about)
    parser.add_argument("-q", "--quiet", action="store_true", help="show nothing")
    parser.add_argument("-h", "--help", action="store_true", help="show this")
    about = "the call to profile"
    parser.add_argument("code", nargs=argparse.REMAINDER, metavar="model(x)", help=about)
    return parser


def _variable(text: str) -> str:
    if not text.isidentifier() or keyword.iskeyword(text):
        raise argparse.ArgumentTypeError(f"must be the name of a variable, not {text[:40]!r}")
    return text


def _parse_line(line: str) -> tuple[argparse.Namespace, str]:
    """Parse the options of a magic; also return the code after them, with its spaces."""
    words = list(re.finditer(r"\S+", line))
    args = _parser().parse_args([word[0] for word in words])
    code = args.code[1:] if args.code[:1] == ["--"] else args.code
    return args, line[words[-len(code)].start() :].strip() if code else ""


# -- the line magic

_GATHER = ast.parse("lambda *args, **kwargs: (args, kwargs)", mode="eval").body


def _profile_call(ipython: Any, args: argparse.Namespace, line: str, code: str) -> Recording:
    model, given = _network_and_arguments(ipython, code)
    phase = args.phase or PHASES[0]
    original = model.function if isinstance(model, FunctionLink) else model
    with preserved_state(original, given.args, given.kwargs):
        device = only_device_of(model)
        settings = replace(
            _settings(args, f"%{NAME} {line}", given),
            model=network_name(model),
            phase=phase,
            device=device_name(device),
        )
        step = make_step(phase, model, given.args, keywords=given.kwargs)
        return _run(step, settings, clock_of(device), args)


def _network_and_arguments(ipython: Any, code: str) -> tuple[Any, Arguments]:
    """Evaluate the network or function and the arguments of a call such as ``model(x)``.

    Raises UsageError for other code, and for a call without an array.
    """
    hint = f"give a call of a network, such as %{NAME} model(x), or use %%{NAME} for any code"
    if not code:
        raise UsageError(hint)
    try:
        call = ast.parse(code, mode="eval").body
    except SyntaxError:
        raise UsageError(f"{code[:60]!r} is not an expression: {hint}") from None
    if not isinstance(call, ast.Call):
        raise UsageError(f"{code[:60]!r} is not a call: {hint}")
    name = ipython.compile.cache(code, ipython.execution_count, raw_code=code)
    # Call _GATHER with the called object and its arguments, and so evaluate them without the call.
    gathering = ast.Expression(ast.Call(_GATHER, [call.func, *call.args], call.keywords))
    gather = compile(ast.fix_missing_locations(gathering), name, "eval")
    (model, *inputs), keywords = eval(gather, ipython.user_ns)
    given = Arguments(tuple(inputs), keywords)
    if not given.arrays:
        raise UsageError(f"{code[:60]!r} has no array among its inputs: {hint}")
    return as_network(model, given.arrays), given


# -- the cell magic


def _profile_cell(ipython: Any, args: argparse.Namespace, line: str, cell: str) -> Recording:
    if args.phase:
        raise UsageError(f"--phase is for %{NAME}: a trial of %%{NAME} is the cell")
    code = _compile_cell(ipython, cell)
    first = FirstRun(code, ipython.user_ns)
    if not first.calls:
        raise ProfileError("the cell calls no Chainer function, so there is nothing to profile")
    only_arguments = first.arguments[0] if len(first.arguments) == 1 else None
    settings = replace(
        _settings(args, f"%%{NAME} {line}", only_arguments),
        model=first.networks[0] if len(set(first.networks)) == 1 else "a cell",
        train_mode=first.train_mode,
        device=device_name(first.device),
    )
    inputs = tuple(array for given in first.arguments for array in given.arrays)
    step = Cell(code, ipython.user_ns, inputs)
    try:
        recording = _run(step, settings, clock_of(first.device), args, by_link=True)
    except ProfileError as error:
        if step.error is None:
            raise ProfileError(str(error).replace("the network", "the cell", 1)) from None
    except KeyboardInterrupt as interrupt:
        kept = getattr(interrupt, "recording", None)
        if kept is not None:
            interrupt.recording = step.with_settings(kept)  # type: ignore[attr-defined]
        raise
    if step.error is not None:
        raise step.error
    return step.with_settings(recording)


def _compile_cell(ipython: Any, cell: str) -> Any:
    """Compile a cell as IPython does, magics and shell commands included."""
    source = ipython.transform_cell(cell)
    # Under this name IPython finds the lines that a traceback shows.
    name = ipython.compile.cache(source, ipython.execution_count, raw_code=cell)
    tree = ipython.transform_ast(ipython.compile.ast_parse(source, filename=name))
    return ipython.compile(tree, name, "exec")


class Cell(Loop):
    """Runs a cell's code; finds its networks and optimizers in the user's variables."""

    def __init__(
        self, code: CodeType, namespace: dict[str, Any], inputs: tuple[Any, ...] = ()
    ) -> None:
        super().__init__(networks(namespace), optimizers(namespace, code.co_names))
        self.inputs = inputs
        #: The exception that the cell raised.
        self.error: BaseException | None = None
        self._code, self._namespace = code, namespace

    def __call__(self) -> None:
        try:
            exec(self._code, self._namespace)
        except BaseException as error:
            self.error = error
            raise

    def with_settings(self, recording: Recording) -> Recording:
        """Add the phase and the optimizer of the trials to a recording's settings."""
        cell = self.settings(recording.layers)
        settings = replace(recording.settings, phase=cell.phase, optimizer=cell.optimizer)
        return replace(recording, settings=settings)

    @contextmanager
    def configured(self) -> Iterator[None]:
        """Discard the cell's output within the context, and keep the user's configuration."""
        with open(os.devnull, "w", errors="replace") as nowhere, redirect_stdout(nowhere):
            yield


class FirstRun:
    """Runs a cell once without profiling, shows its output, and notes its calls of functions."""

    def __init__(self, code: CodeType, namespace: dict[str, Any]) -> None:
        # Number of calls of functions; mode and device of the first call.
        self.calls, self.train_mode = 0, False
        self.device: Any = chainer.get_device("@numpy")
        # Class and arguments of each call of an outermost link, in order.
        self.networks: list[str] = []
        self.arguments: list[Arguments] = []
        self.thread = get_ident()
        with WalkHook(lambda function, arrays, *_: self._note(arrays)), patches.observing(self):
            exec(code, namespace)

    def _note(self, arrays: tuple[Any, ...]) -> None:
        if not self.calls:
            self.train_mode = bool(chainer.config.train)
            first = next((array for array in arrays if array is not None), None)
            if first is not None:
                self.device = chainer.backend.get_device_from_array(first)
        self.calls += 1

    # -- the interface of observers.Observer

    def begin_operation(self, operation: str, owner: Any, args: tuple[Any, ...]) -> None:
        if operation == observers.NETWORK:
            positional, keywords = args
            self.networks.append(type(owner).__name__)
            self.arguments.append(Arguments(tuple(positional), dict(keywords)))

    def begin_elsewhere(self, operation: str) -> None:
        """Ignore operations of other threads."""

    def fail(self, error: Exception) -> None:
        """Ignore an error: the calls until then are enough."""


# -- both magics


def _settings(args: argparse.Namespace, command: str, given: Arguments | None) -> Settings:
    """Make settings from the options, and from the arguments if the code has one outermost call."""
    inputs = given if given is not None and given.arrays else None
    return settings_of(
        args,
        input=inputs.description if inputs else "inputs of the cell",
        input_shape=inputs.shape if inputs else (),
        batchsize=inputs.batchsize if inputs else 0,
        clean_trials=runner.default_clean_trials(args.trials),
        command=command,
        **current_configuration(),
    )


def _run(
    step: Any, settings: Settings, clock: Clock, args: argparse.Namespace, by_link: bool = False
) -> Recording:
    """Run the trials with a progress bar; Ctrl-C ends them early."""
    bar = ProgressBar(args.quiet, args.max_seconds)
    with interrupts_that_stop(any_handler=True) as stop, bar as progress:
        return runner.run(
            step,
            settings,
            clock=clock,
            memory=args.memory,
            by_link=by_link,
            calibration=calibration.calibration_of(step, clock),
            progress=progress,
            say=bar.say,
            stop=stop,
        )
