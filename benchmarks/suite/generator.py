"""Builds the load generator with mypyc into a cache folder and runs it, one process per scenario.

The cache key covers the generator's sources, the interpreter and the compiler: a changed line is compiled anew, an
unchanged one never. Without a C compiler the generator runs interpreted and says so.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parent.parent
SOURCES = BENCHMARKS / "load"
CACHE = BENCHMARKS / ".build"
COMPILE_TIMEOUT_S = 600
BUILD_KEPT_S = 3600

# Runs in the cache folder, in a process of its own: setuptools writes where it stands and talks a lot.
BUILD_SCRIPT = """
import sys
from mypyc.build import mypycify
from setuptools import setup

sys.argv = ["setup.py", "build_ext", "--inplace"]
setup(name="benchmarks-load", packages=[], ext_modules=mypycify(sys.argv_files, opt_level="3"))
"""


@dataclass(frozen=True)
class Recipe:
    """What a generator is made of: the modules that are compiled, and the one that is its entry."""

    compiled: tuple[str, ...]
    entry: str = "__main__"
    mark: str = ""  # tells its builds from those of others


MQTT_LOAD = Recipe(
    ("flood", "frames", "idle", "job", "link", "pairs", "peers", "slow", "throughput", "usage")
)
QUEUE_LOAD = Recipe(
    (
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
    ),
    entry="queue_main",
    mark="-queues",
)


class GeneratorFault(Exception):
    """The generator could not be started or gave no figure."""


class Generator:
    """A ready-to-run generator: where its modules are, and whether they are compiled."""

    def __init__(self, folder: Path, is_compiled: bool, note: str) -> None:
        self.folder = folder
        self.is_compiled = is_compiled
        self.note = note

    def run(self, job: Mapping[str, object], timeout_s: float) -> dict[str, object]:
        """The measured facts of one scenario; raises `GeneratorFault` with one sentence otherwise."""
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        try:
            finished = subprocess.run(
                [sys.executable, "-m", "benchmarks.load"],
                cwd=self.folder,
                env=environment,
                input=json.dumps(job),
                capture_output=True,
                text=True,
                timeout=timeout_s,
                # As the broker has: schedulers that share by session give a client what one elsewhere would have,
                # whatever else this benchmark runs beside it.
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            raise GeneratorFault(f"no result within {timeout_s:.0f} s") from None
        lines = finished.stdout.strip().splitlines()
        if not lines:
            last = finished.stderr.strip().splitlines()[-1:] or ["no output"]
            raise GeneratorFault(f"the generator failed: {last[0]}")
        answer: dict[str, object] = json.loads(lines[-1])
        if "fault" in answer:
            raise GeneratorFault(str(answer["fault"]))
        if self.is_compiled and not answer["is_compiled"]:
            raise GeneratorFault("the compiled generator is gone; run the benchmark again")
        return answer


def find_generator(force_interpreted: bool = False) -> Generator:
    return make_generator(MQTT_LOAD, force_interpreted)


def find_queue_generator(force_interpreted: bool = False) -> Generator:
    return make_generator(QUEUE_LOAD, force_interpreted)


def make_generator(recipe: Recipe, force_interpreted: bool) -> Generator:
    """The compiled generator, built when needed; an interpreted copy when it cannot be compiled."""
    if force_interpreted:
        return Generator(copy_sources(recipe), False, "interpreted on request")
    try:
        key = source_key()
    except importlib.metadata.PackageNotFoundError:
        note = "mypyc is not installed: pip install mypy, then run again"
        return Generator(copy_sources(recipe), False, note)
    folder = CACHE / f"{key}{recipe.mark}"
    if not folder.exists():
        made = copy_sources(recipe)
        fault = compile_sources(recipe, made)
        if fault:
            shutil.rmtree(made, ignore_errors=True)
            return Generator(copy_sources(recipe), False, fault)
        settle(made, folder)
    return Generator(folder, True, f"compiled, {folder.relative_to(BENCHMARKS.parent)}")


def source_key() -> str:
    digest = hashlib.sha256(f"{sys.version} {importlib.metadata.version('mypy')}".encode())
    for path in sorted(SOURCES.glob("*.py")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def copy_sources(recipe: Recipe) -> Path:
    """A folder in the cache that holds the package `benchmarks.load` and nothing else."""
    remove_old_builds()
    CACHE.mkdir(exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="making-", dir=CACHE))
    package = made / "benchmarks" / "load"
    package.mkdir(parents=True)
    shutil.copy(BENCHMARKS / "__init__.py", made / "benchmarks")
    for path in SOURCES.glob("*.py"):
        shutil.copy(path, package)
    if recipe.entry != "__main__":
        shutil.copy(SOURCES / f"{recipe.entry}.py", package / "__main__.py")
    return made


def compile_sources(recipe: Recipe, folder: Path) -> str:
    """An empty text, or why it could not be done."""
    files = [f"benchmarks/load/{name}.py" for name in recipe.compiled]
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
    log = CACHE / f"build{recipe.mark}.log"
    log.write_text(finished.stdout + finished.stderr)
    if finished.returncode != 0:
        last = (finished.stderr.strip() or finished.stdout.strip()).splitlines()[-1:]
        return f"compiling failed ({' '.join(last)}); see {log.relative_to(BENCHMARKS.parent)}"
    shutil.rmtree(folder / "build", ignore_errors=True)
    return ""


def settle(made: Path, folder: Path) -> None:
    """Renamed when whole, so that two benchmarks may start at the same moment."""
    try:
        made.rename(folder)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)  # another benchmark was first, with the same sources


def remove_old_builds() -> None:
    """Builds of other sources, unless they are young enough to be in use."""
    if CACHE.is_dir():
        for path in CACHE.iterdir():
            if path.is_dir() and time.time() - path.stat().st_mtime > BUILD_KEPT_S:
                shutil.rmtree(path, ignore_errors=True)
