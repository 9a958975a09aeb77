"""accelerate() and keeping_memory() restore everything, in any order and after any interrupt."""

import linecache
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import product
from types import ModuleType

import pytest
from chainer.functions.connection.convolution_2d import Convolution2DFunction
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.basics import replacements
from chainer_profile.basics.errors import UsageError
from chainer_profile.kernels import accelerate as module
from chainer_profile.kernels import memory, numpy_kernels
from chainer_profile.kernels.accelerate import accelerate
from chainer_profile.kernels.memory import is_kept, keeping_memory

OWN_THREADS = 7
#: Functions whose first lines are outside every ``try``, where Python cannot guard them.
_ENTRIES = {"undo", "__enter__", "__exit__"}


class Process:
    """The state of a process that ``accelerate()`` changes, with a fake glibc and fake PyTorch."""

    def __init__(self):
        self.mallopts = []
        self.threads = OWN_THREADS
        self.gnu_get_libc_version = self.malloc_trim = lambda *_: None

    def mallopt(self, name, value):
        self.mallopts.append((name, value))
        return 1

    @property
    def keeps(self):
        return dict(self.mallopts).get(memory._M_MMAP_MAX) == 0

    @property
    def wrapped(self):
        """Number of wrappers around Chainer's own convolution."""
        method, depth = Convolution2DFunction._forward_cpu_core, 0
        while hasattr(method, "__wrapped__"):
            method, depth = method.__wrapped__, depth + 1
        return depth


@contextmanager
def process():
    here = Process()
    kernels = ModuleType("kernels")
    vars(kernels).update(vars(numpy_kernels))
    kernels.threads = lambda: here.threads
    kernels.set_threads = lambda count: setattr(here, "threads", count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "_glibc", lambda: here)
        patch.setattr(module, "import_kernels", lambda _: kernels)
        try:
            yield here
            assert not module._ACTIVE
            assert not replacements.Replacements._all
        finally:  # after a failed check, clean up for the next example
            for keeper in (*module._ACTIVE, *memory._KEEPERS):
                is_fast = isinstance(keeper, module.Accelerated)
                keeper.undo() if is_fast else memory.give_back(keeper)


def _is_guarded(code, line):
    """Whether the code must survive an interrupt at this line."""
    # CPython handles no signal between the end of a block and the release of its lock.
    if linecache.getline(code.co_filename, line).lstrip().startswith("with "):
        return False
    return code.co_filename != module.__file__ or code.co_name not in _ENTRIES


def interrupted(at, function):
    """Call a function, with an interrupt at the ``at``-th line of the code under test."""
    files = {memory.__file__, module.__file__, replacements.__file__}
    left = at

    def trace(frame, event, _):
        nonlocal left
        code = frame.f_code
        if code.co_filename not in files:
            return None
        if event == "line" and _is_guarded(code, frame.f_lineno):
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return function()
    finally:
        sys.settrace(before)


def in_thread(function):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


#: A function to open a context, whether it keeps memory, and its threads (None: not accelerated).
OPENINGS = [
    (keeping_memory, True, None),
    *(
        (partial(accelerate, keep_memory=keep, threads=threads), keep, threads or 0)
        for keep, threads in product([True, False], [None, 1, 2, 3])
    ),
]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(OPENINGS),
        st.integers(-3, 5),
        st.sampled_from([lambda function: function(), in_thread]),
        st.one_of(st.just(0), st.integers(1, 120)),
    ),
    max_size=12,
)


@given(STEPS)
def test_all_changes_are_undone_after_any_nesting_and_interrupt(steps):
    """A step opens a context if its index is negative, and otherwise closes that open one."""
    with process() as here:
        opened = []

        def check():
            fast = [threads for _, _, threads in opened if threads is not None]
            wanted = [threads for threads in fast if threads]
            assert here.wrapped == len(fast)
            assert here.keeps == is_kept() == any(keep for _, keep, _ in opened)
            assert here.threads == (wanted[-1] if wanted else OWN_THREADS)

        for (make, keep, threads), index, call, at in steps:
            if index < 0:

                def enter(make=make):
                    keeper = make()
                    if make is keeping_memory:  # accelerate() takes effect at once
                        keeper.__enter__()
                    return keeper

                with suppress(KeyboardInterrupt):
                    keeper = call(partial(interrupted, at, enter))
                    opened.append((keeper, keep, threads))
            elif opened:
                keeper, *_ = opened.pop(index % len(opened))
                error = (ValueError, ValueError(), None) if index == 1 else (None, None, None)
                with suppress(KeyboardInterrupt, ValueError):
                    call(partial(interrupted, at, partial(keeper.__exit__, *error)))
            check()
        for keeper, *_ in opened:
            keeper.__exit__(None, None, None)
        opened.clear()
        check()
        if not any(keep for (_, keep, _), index, *_ in steps if index < 0):
            assert here.mallopts == []


def test_settings_of_glibc_are_restored_if_it_refuses_one(monkeypatch):
    with process() as here:
        refused = memory._M_TRIM_THRESHOLD

        def mallopt(name, value):
            keeps = (name, value) in memory._KEEPING
            return 0 if name == refused and keeps else Process.mallopt(here, name, value)

        monkeypatch.setattr(here, "mallopt", mallopt, raising=False)
        with pytest.raises(UsageError, match="only glibc"), keeping_memory():
            pass
        with accelerate(threads=3) as fast, accelerate(threads=2):
            assert not fast.keeps_memory
            assert not is_kept()
            assert not here.keeps
            assert here.threads == 2
