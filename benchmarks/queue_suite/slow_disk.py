"""A slower disk for all brokers of a run: every sync of a child process takes longer (benchmarks/load/slow_sync.c).

NATS makes its own system calls and is not slowed; it is never compared where syncs count.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).resolve().parent.parent / "load" / "slow_sync.c"
LIBRARY: Final = SOURCE.parent.parent / ".build" / "slow_sync.so"
VARIABLE: Final = "SLOW_SYNC_US"


def slow_down(sync_us: int) -> None:
    """For every process started from here on."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("--sync-us needs a C compiler (apt-get install gcc)")
    LIBRARY.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(LIBRARY), str(SOURCE), "-ldl"], check=True)
    os.environ[VARIABLE] = str(sync_us)
    os.environ["LD_PRELOAD"] = str(LIBRARY)
