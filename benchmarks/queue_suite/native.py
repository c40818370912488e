"""Builds the C sources of benchmarks/load, each time a run needs one: they are small."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).resolve().parent.parent / "load"
CACHE: Final = SOURCES.parent / ".build"


class CompilerFault(Exception):
    """There is no C compiler, or it does not take the source."""


def build_native(source: str, target: str, *options: str) -> Path:
    """Renamed when whole, so that two benchmarks may start at the same moment."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise CompilerFault("a C compiler is needed; type: apt-get install gcc")
    CACHE.mkdir(exist_ok=True)
    made = CACHE / f"{target}.{os.getpid()}"
    command = [compiler, "-O2", "-o", str(made), str(SOURCES / source), *options]
    finished = subprocess.run(command, capture_output=True, text=True)
    if finished.returncode != 0:
        last = (finished.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise CompilerFault(f"{source} could not be compiled: {last}")
    return made.replace(CACHE / target)
