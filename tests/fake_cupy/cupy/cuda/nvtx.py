"""NVTX ranges, which are only noted in ``cupy.fake.log``."""
# ruff: noqa: N802

from __future__ import annotations

from cupy import fake

available = True


def RangePush(message: str, id_color: int = -1) -> None:
    fake.log.append(f"RangePush {message}")


def RangePop() -> None:
    fake.log.append("RangePop")


def Mark(message: str, id_color: int = -1) -> None:
    fake.log.append(f"Mark {message}")
