"""Memory that is free for this process, and a limit on its allocations."""

import mmap
import resource
import sys
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from chainer_profile.basics import free_memory
from chainer_profile.basics.free_memory import MemoryGrowth, free_nbytes, limit_to_free_memory

MIB = 1 << 20
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
V2 = ("memory.max", "memory.current", "")


@pytest.fixture
def process(tmp_path, monkeypatch):
    """Folder of a process without limits, on a system with 1000 MiB of free memory."""
    memory = SimpleNamespace(available=1000 * MIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    limits = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits)
    folder = tmp_path / "process"
    folder.mkdir()
    (folder / "status").write_text("VmSize:\t 102400 kB\nVmData:\t 51200 kB\n")
    (folder / "cgroup").write_text("5:cpu,cpuacct:/a\n4:cpuset,memory:/job/step\n0::/job/step\n")
    return folder


@pytest.mark.parametrize(("mount", "names"), [("memory", V1), (".", V2), ("unified", V2)])
def test_free_memory_is_the_smallest_rest_of_all_control_groups(mount, names, process, tmp_path):
    groups = tmp_path / "groups"
    limit_name, use_name, prefix = names

    def make_group(path, limit, used, files=0):
        folder = groups / mount / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / limit_name).write_text(f"{limit}\n")
        (folder / use_name).write_text(f"{used}\n")
        lines = (f"{prefix}{kind}_file {files}\n" for kind in ("inactive", "active"))
        (folder / "memory.stat").write_text("anon 7\n" + "".join(lines))

    make_group("job/step", "9223372036854771712" if names is V1 else "max", 0)
    assert free_nbytes(process, groups) == 1000 * MIB
    # The system frees cached pages of files when memory is short.
    make_group("job", 500 * MIB, 300 * MIB, 50 * MIB)
    assert free_nbytes(process, groups) == 300 * MIB
    make_group("job/step", 100 * MIB, 20 * MIB)
    assert free_nbytes(process, groups) == 80 * MIB
    # In a container the limit is at the mount, because the path is the host's.
    make_group("", 60 * MIB, 90 * MIB)
    assert free_nbytes(process, groups) == 0


def test_resource_limits_reduce_free_memory(process, tmp_path, monkeypatch):
    nowhere, none = tmp_path / "none", resource.RLIM_INFINITY
    assert free_nbytes(process, nowhere) == free_nbytes(nowhere, nowhere) == 1000 * MIB
    for kind, left in ((resource.RLIMIT_AS, 300), (resource.RLIMIT_DATA, 350)):
        limits = {kind: (400 * MIB, none)}
        monkeypatch.setattr(
            resource, "getrlimit", lambda kind, limits=limits: limits.get(kind, (none, none))
        )
        assert free_nbytes(process, nowhere) == left * MIB


def test_allocations_beyond_free_memory_fail_and_the_limit_is_restored(monkeypatch):
    before = resource.getrlimit(resource.RLIMIT_DATA)
    monkeypatch.setattr(free_memory, "free_nbytes", lambda: 200 * MIB)
    with limit_to_free_memory() as free:
        assert free == 180 * MIB
        assert np.ones(100 * MIB, np.int8).all()
        with pytest.raises(MemoryError):
            np.empty(2048 * MIB, np.int8)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux reports it")
def test_growth_counts_memory_in_use_and_its_peak():
    def allocate(nbytes):
        """Allocate new pages; malloc could reuse memory that other tests have freed."""
        block = mmap.mmap(-1, nbytes)
        np.frombuffer(block, np.uint8).fill(1)
        return block

    growth = MemoryGrowth()
    allocate(64 * MIB).close()
    in_use = allocate(32 * MIB)
    growth.settle()
    before = growth.nbytes()
    if before is None:
        pytest.skip("this system does not reset a process's peak memory")
    assert 30 * MIB < before < 48 * MIB
    allocate(40 * MIB).close()
    assert 70 * MIB < growth.nbytes() < 90 * MIB
    in_use.close()
