"""accelerate() and keeping_memory() in any order, cut short anywhere: the last brings all back."""

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
#: Their first lines are outside of every ``try``: Python has nothing that guards them.
_ENTRIES = {"undo", "__enter__", "__exit__"}


class Process:
    """What ``accelerate()`` changes in a process, with a glibc and a PyTorch that note it."""

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
        """How many kernels stand around Chainer's own convolution."""
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
        patch.setattr(module, "kernels_named", lambda _: kernels)
        try:
            yield here
            assert not module._ACTIVE
            assert not replacements.Replacements._all
        finally:  # where a check failed the next example begins anew
            for keeper in (*module._ACTIVE, *memory._KEEPERS):
                is_fast = isinstance(keeper, module.Accelerated)
                keeper.undo() if is_fast else memory.give_back(keeper)


def _is_guarded(code, line):
    """Whether an interrupt may come there: none does between a block's end and its lock's."""
    if linecache.getline(code.co_filename, line).lstrip().startswith("with "):
        return False
    return code.co_filename != module.__file__ or code.co_name not in _ENTRIES


def interrupted(at, does):
    """Do it, with an interrupt at so many lines of the code under test, if it has as many."""
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
        return does()
    finally:
        sys.settrace(before)


def in_thread(does):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(does).result()


#: What opens one, whether it keeps memory, and its threads: None where it is not fast.
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
        st.sampled_from([lambda does: does(), in_thread]),
        st.one_of(st.just(0), st.integers(1, 120)),
    ),
    max_size=12,
)


@given(STEPS)
def test_any_nesting(steps):
    """Opened where the place is negative, otherwise the one at that place is closed."""
    with process() as here:
        opened = []

        def check():
            fast = [threads for _, _, threads in opened if threads is not None]
            wanted = [threads for threads in fast if threads]
            assert here.wrapped == len(fast)
            assert here.keeps == is_kept() == any(keep for _, keep, _ in opened)
            assert here.threads == (wanted[-1] if wanted else OWN_THREADS)

        for (make, keep, threads), place, where, at in steps:
            if place < 0:

                def enter(make=make):
                    keeper = make()
                    if make is keeping_memory:  # accelerate() takes effect at once
                        keeper.__enter__()
                    return keeper

                with suppress(KeyboardInterrupt):
                    keeper = where(partial(interrupted, at, enter))
                    opened.append((keeper, keep, threads))
            elif opened:
                keeper, *_ = opened.pop(place % len(opened))
                error = (ValueError, ValueError(), None) if place == 1 else (None, None, None)
                with suppress(KeyboardInterrupt, ValueError):
                    where(partial(interrupted, at, partial(keeper.__exit__, *error)))
            check()
        for keeper, *_ in opened:
            keeper.__exit__(None, None, None)
        opened.clear()
        check()
        if not any(keep for (_, keep, _), place, *_ in steps if place < 0):
            assert here.mallopts == []


def test_a_glibc_that_refuses_is_as_it_was(monkeypatch):
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
