"""Builds the queue load generator: a copy of `benchmarks/load` with `queue_main` as its entry, compiled when possible.

The copy keeps the ordinary generator as it is; both are cached side by side under the key of their common sources.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.suite.generator import (
    BENCHMARKS,
    BUILD_SCRIPT,
    CACHE,
    COMPILE_TIMEOUT_S,
    SOURCES,
    Generator,
    remove_old_builds,
    source_key,
)

COMPILED = (
    "amqp_flow",
    "amqp_frames",
    "amqp_pairs",
    "disk_floor",
    "frames",
    "job",
    "link",
    "pairs",
    "peers",
    "queue_amqp",
    "queue_job",
    "queue_load",
    "queue_mqtt",
    "queue_nats",
    "queue_parties",
    "throughput",
    "usage",
)


def find_queue_generator(force_interpreted: bool = False) -> Generator:
    """The compiled generator, built when needed; an interpreted copy when it cannot be compiled."""
    remove_old_builds()
    try:
        key = source_key()
    except importlib.metadata.PackageNotFoundError:
        return make_interpreted("mypyc is not installed: pip install mypy, then run again")
    if force_interpreted:
        return make_interpreted("interpreted on request")
    folder = CACHE / f"{key}-queues"
    if not folder.exists():
        made = copy_sources()
        fault = compile_sources(made)
        if fault:
            shutil.rmtree(made, ignore_errors=True)
            return make_interpreted(fault)
        settle(made, folder)
    return Generator(folder, True, f"compiled, {folder.relative_to(BENCHMARKS.parent)}")


def make_interpreted(note: str) -> Generator:
    return Generator(copy_sources(), False, note)


def copy_sources() -> Path:
    """A folder in the cache that holds the package `benchmarks.load` and nothing else."""
    CACHE.mkdir(exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="making-", dir=CACHE))
    package = made / "benchmarks" / "load"
    package.mkdir(parents=True)
    shutil.copy(BENCHMARKS / "__init__.py", made / "benchmarks")
    for path in SOURCES.glob("*.py"):
        shutil.copy(path, package)
    shutil.copy(SOURCES / "queue_main.py", package / "__main__.py")
    return made


def compile_sources(folder: Path) -> str:
    """An empty text, or why it could not be done."""
    files = [f"benchmarks/load/{name}.py" for name in COMPILED]
    environment = {**os.environ, "CFLAGS": "-O3"}
    environment.pop("PYTHONPATH", None)
    try:
        finished = subprocess.run(
            [sys.executable, "-c", BUILD_SCRIPT.replace("sys.argv_files", repr(files))],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=COMPILE_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return f"compiling took longer than {COMPILE_TIMEOUT_S} s"
    log = CACHE / "build-queues.log"
    log.write_text(finished.stdout + finished.stderr)
    if finished.returncode != 0:
        last = (finished.stderr.strip() or finished.stdout.strip()).splitlines()[-1:]
        return f"compiling failed ({' '.join(last)}); see {log.relative_to(BENCHMARKS.parent)}"
    shutil.rmtree(folder / "build", ignore_errors=True)
    return ""


def settle(made: Path, folder: Path) -> None:
    try:
        made.rename(folder)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)  # another benchmark was first, with the same sources
