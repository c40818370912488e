"""Fuzz every decoder: `./dev fuzz [--executions N] [--target NAME] [--seed S]`.

Each target runs in a process of its own, guided by coverage (atheris). Where atheris is not installed, the seeds
are mutated blindly instead, and that is said. Exit code 1 when anything failed: an exception that is no protocol
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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # the packet tables are the seeds
sys.path.append(str(ROOT / "src"))  # last: a build that was chosen by the caller goes first

SLOW_MS = 10.0
INPUT_SIZE_MAX = 1024  # larger seeds are tried once and not mutated: they would cost all the speed
MEMORY_MAX_MB = 1024
INPUT_TIMEOUT_S = 10


def main() -> int:
    options = read_options()
    if options.worker:
        return work(options)
    if options.engine == "atheris" and importlib.util.find_spec("atheris") is None:
        print(
            "atheris is not installed: the seeds are mutated blindly instead; type: pip install atheris==3.0.0"
        )
        options.engine = "random"
    from targets import TARGETS

    names = options.target or list(TARGETS)
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        print(f"there is no target {unknown[0]}; choose from: {', '.join(TARGETS)}")
        return 2
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        passed = list(pool.map(lambda name: run_target(name, options), names))
    failed = [name for name, good in zip(names, passed, strict=True) if not good]
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fuzz every decoder.")
    parser.add_argument("--executions", type=int, default=100_000, help="inputs per target")
    parser.add_argument("--target", action="append", help="only this one; may be given again")
    parser.add_argument("--engine", choices=["atheris", "random"], default="atheris")
    parser.add_argument("--seed", type=int, default=1, help="where chance begins")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


# ------------------------------------------------------------- the process that watches


def run_target(name: str, options: argparse.Namespace) -> bool:
    command = [sys.executable, __file__, "--worker", name, "--executions", str(options.executions)]
    command += ["--seed", str(options.seed), "--engine", options.engine]
    started_ns = time.monotonic_ns()
    with tempfile.TemporaryDirectory() as temporary, tempfile.TemporaryFile("w+") as noise:
        folder = Path(temporary)
        (folder / "corpus").mkdir()
        (folder / "slowest").mkdir()
        command += ["--folder", temporary]
        code = subprocess.run(command, stdout=noise, stderr=noise, cwd=folder, check=False).returncode
        if code != 0:
            noise.seek(0)
            print(f"{name}: the fuzzer ended with code {code}\n{noise.read()[-4000:]}")
            return False
        result = json.loads((folder / "result.json").read_text())
        slowest_ms, failures = judge_slowest(name, folder / "slowest", result["failures"])
    seconds = (time.monotonic_ns() - started_ns) / 1e9
    numbers = f"{result['executions']} executions, slowest {slowest_ms:.3f} ms, {len(failures)} failures"
    print(f"{name}: {numbers} ({seconds:.0f} s)", *failures, sep="\n", flush=True)
    return not failures


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

    def finish() -> None:
        judge.keep_slowest(options.folder / "slowest")
        result = {"executions": judge.executions, "failures": judge.failures}
        (options.folder / "result.json").write_text(json.dumps(result))

    if options.engine == "random":
        mutate_blindly(judge.try_input, judge.is_done, seeds, options.seed)
        finish()
        return 0

    def try_one(data: bytes) -> None:
        judge.try_input(data)
        if judge.is_done():
            finish()
            os._exit(0)  # the fuzzing loop has no other way out

    corpus = options.folder / "corpus"
    for number, seed in enumerate(seeds):
        (corpus / f"{number:04d}").write_bytes(seed)
    limits = [f"-max_len={INPUT_SIZE_MAX}", f"-rss_limit_mb={MEMORY_MAX_MB}", f"-timeout={INPUT_TIMEOUT_S}"]
    atheris.Setup([sys.argv[0], str(corpus), f"-seed={options.seed}", *limits], try_one)
    atheris.Fuzz()
    return 1


def mutate_blindly(
    try_input: Callable[[bytes], None], is_done: Callable[[], bool], seeds: list[bytes], seed: int
) -> None:
    """Bytes changed, cut, doubled and joined; the same seed gives the same inputs."""
    chance = random.Random(seed)
    while not is_done():
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.randrange(5)):
            place = chance.randrange(len(data) + 1)
            action = chance.randrange(5)
            if action == 0 and place < len(data):
                data[place] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            elif action == 1:
                data.insert(place, chance.randrange(256))
            elif action == 2:
                del data[place : place + chance.randrange(1, 5)]
            elif action == 3:
                data[place:place] = data[place : place + chance.randrange(1, 9)]
            else:
                data[place:] = chance.choice(seeds)
        try_input(bytes(data[:INPUT_SIZE_MAX]))


if __name__ == "__main__":
    sys.exit(main())
