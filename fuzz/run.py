"""Fuzz every decoder: `./dev fuzz [--executions N] [--target NAME] [--engine atheris|hypothesis|both] [--seed S]`.

Each target runs twice, in processes of its own: guided by coverage (atheris), and on valid packets that are cut,
changed and joined (hypothesis). Where atheris is not installed, the seeds are mutated blindly instead, and that is
said. An execution is one call of the target. Exit code 1 when anything failed: an exception that is no protocol
violation, a check that does not hold, or an input that takes over 10 ms.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from mutation import INPUT_SIZE_MAX, mutate

if TYPE_CHECKING:
    from judge import Judge

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # the packet tables are the seeds
sys.path.insert(0, str(ROOT / "tests" / "properties"))  # the strategies make packets
sys.path.append(str(ROOT / "src"))  # last: a build that was chosen by the caller goes first

ENGINES = {
    "atheris": ["atheris"],
    "hypothesis": ["hypothesis"],
    "both": ["atheris", "hypothesis"],
    "random": ["random"],
}
SLOW_MS = 10.0
PROGRESS_S = 30.0
PROGRESS_EXECUTIONS = 20_000
MEMORY_MAX_MB = 1024
INPUT_TIMEOUT_S = 10


def main() -> int:
    options = read_options()
    if options.worker:
        return work(options)
    engines = ENGINES[options.engine]
    if "atheris" in engines and importlib.util.find_spec("atheris") is None:
        print(
            "atheris is not installed: the seeds are mutated blindly instead; type: pip install atheris==3.0.0"
        )
        engines = ["random" if engine == "atheris" else engine for engine in engines]
    if "hypothesis" in engines and importlib.util.find_spec("hypothesis") is None:
        print("hypothesis is not installed; type: pip install hypothesis, or choose --engine atheris")
        return 2
    from targets import TARGETS

    names = options.target or list(TARGETS)
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        print(f"there is no target {unknown[0]}; choose from: {', '.join(TARGETS)}")
        return 2
    jobs = [(name, engine) for engine in engines for name in names]
    print(f"{len(jobs)} runs of {options.executions} executions, seed {options.seed}", flush=True)
    with ThreadPoolExecutor(options.processes) as pool:
        passed = list(pool.map(lambda job: run_target(job[0], job[1], options), jobs))
    failed = [f"{name} with {engine}" for (name, engine), good in zip(jobs, passed, strict=True) if not good]
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fuzz every decoder.")
    parser.add_argument("--executions", type=int, default=100_000, help="inputs per target and engine")
    parser.add_argument("--target", action="append", help="only this one; may be given again")
    parser.add_argument("--engine", choices=list(ENGINES), default="both")
    parser.add_argument("--seed", type=int, default=1, help="where chance begins")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="how many run at a time")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


# ------------------------------------------------------------- the process that watches


def run_target(name: str, engine: str, options: argparse.Namespace) -> bool:
    command = [sys.executable, __file__, "--worker", name, "--executions", str(options.executions)]
    command += ["--seed", str(options.seed), "--engine", engine]
    title = f"{name}, {engine}"
    started_ns = time.monotonic_ns()
    with tempfile.TemporaryDirectory() as temporary, tempfile.TemporaryFile("w+") as noise:
        folder = Path(temporary)
        (folder / "corpus").mkdir()
        (folder / "slowest").mkdir()
        command += ["--folder", temporary]
        with subprocess.Popen(command, stdout=noise, stderr=noise, cwd=folder) as process:
            code = wait_with_progress(process, title, folder / "progress", options.executions)
        if code != 0:
            noise.seek(0)
            print(f"{title}: the fuzzer ended with code {code}\n{noise.read()[-4000:]}")
            return False
        result = json.loads((folder / "result.json").read_text())
        slowest_ms, failures = judge_slowest(name, folder / "slowest", result["failures"])
    seconds = (time.monotonic_ns() - started_ns) / 1e9
    numbers = f"{result['executions']} executions, slowest {slowest_ms:.3f} ms, {len(failures)} failures"
    print(f"{title}: {numbers} ({seconds:.0f} s)", *failures, sep="\n", flush=True)
    return not failures


def wait_with_progress(process: subprocess.Popen[bytes], title: str, file: Path, executions: int) -> int:
    while True:
        try:
            return process.wait(PROGRESS_S)
        except subprocess.TimeoutExpired:
            done = file.read_text() if file.exists() else "0"
            print(f"{title}: {done} of {executions} executions so far", flush=True)


def judge_slowest(name: str, folder: Path, failures: list[str]) -> tuple[float, list[str]]:
    from judge import describe, measure_ms
    from targets import TARGETS

    slowest_ms = 0.0
    for file in sorted(folder.iterdir()):
        data = file.read_bytes()
        taken_ms = measure_ms(TARGETS[name], data)
        slowest_ms = max(slowest_ms, taken_ms)
        if taken_ms > SLOW_MS:
            failures.append(f"{describe(data)}\ntook {taken_ms:.1f} ms, more than {SLOW_MS:.0f} ms")
    return slowest_ms, failures


# --------------------------------------------------------------- the process that fuzzes


def work(options: argparse.Namespace) -> int:
    if options.engine == "atheris":
        import atheris

        with atheris.instrument_imports(include=["millstream"]):
            from targets import TARGETS
    else:
        from targets import TARGETS
    from judge import Judge

    target = TARGETS[options.worker]
    judge = Judge(target, options.executions)
    seeds = [seed for seed in dict.fromkeys(target.seeds) if len(seed) <= INPUT_SIZE_MAX]
    for seed in target.seeds:
        if not judge.is_done():
            judge.try_input(seed)
    if options.engine == "atheris":
        fuzz_guided(judge, seeds, options)
        return 1  # the fuzzing loop ends the process itself
    if options.engine == "hypothesis":
        from structured import run_structured

        run_structured(
            options.worker, judge, seeds, options.seed, lambda done: note_progress(options.folder, done)
        )
    else:
        mutate_blindly(judge, seeds, options)
    write_result(judge, options.folder)
    return 0


def fuzz_guided(judge: Judge, seeds: list[bytes], options: argparse.Namespace) -> None:
    import atheris

    def try_one(data: bytes) -> None:
        judge.try_input(data)
        if judge.executions % PROGRESS_EXECUTIONS == 0:
            note_progress(options.folder, judge.executions)
        if judge.is_done():
            write_result(judge, options.folder)
            os._exit(0)  # the fuzzing loop has no other way out

    corpus = options.folder / "corpus"
    for number, seed in enumerate(seeds):
        (corpus / f"{number:04d}").write_bytes(seed)
    limits = [f"-max_len={INPUT_SIZE_MAX}", f"-rss_limit_mb={MEMORY_MAX_MB}", f"-timeout={INPUT_TIMEOUT_S}"]
    atheris.Setup([sys.argv[0], str(corpus), f"-seed={options.seed}", *limits], try_one)
    atheris.Fuzz()


def mutate_blindly(judge: Judge, seeds: list[bytes], options: argparse.Namespace) -> None:
    """No guide and no structure; the same seed gives the same inputs."""
    chance = random.Random(options.seed)
    while not judge.is_done():
        judge.try_input(mutate(chance, seeds))
        if judge.executions % PROGRESS_EXECUTIONS == 0:
            note_progress(options.folder, judge.executions)


def note_progress(folder: Path, executions: int) -> None:
    (folder / "progress").write_text(str(executions))


def write_result(judge: Judge, folder: Path) -> None:
    judge.keep_slowest(folder / "slowest")
    result = {"executions": judge.executions, "failures": judge.failures}
    (folder / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main())
