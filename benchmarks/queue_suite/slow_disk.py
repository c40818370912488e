"""A slower disk for all brokers of a run: every sync of a child process takes longer (benchmarks/load/slow_sync.c).

NATS makes its own system calls and is not slowed; it is never compared where syncs count.
"""

from __future__ import annotations

import os
from typing import Final

from benchmarks.queue_suite.native import CompilerFault, build_native

VARIABLE: Final = "SLOW_SYNC_US"


def slow_down(sync_us: int) -> None:
    """For every process started from here on."""
    try:
        library = build_native("slow_sync.c", "slow_sync.so", "-shared", "-fPIC", "-ldl")
    except CompilerFault as fault:
        raise SystemExit(f"--sync-us: {fault}") from None
    os.environ[VARIABLE] = str(sync_us)
    os.environ["LD_PRELOAD"] = str(library)
