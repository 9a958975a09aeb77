"""The time at which this package was imported, and the age of the process at that time."""

from __future__ import annotations

import os
import time

BEGAN_NS = time.perf_counter_ns()


def process_age_ns() -> int:
    """Age of the process at :data:`BEGAN_NS` (+/- 10 ms); 0 if the system does not report it."""
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0
    return max(0, int(age_s * 1e9) - (time.perf_counter_ns() - BEGAN_NS))
