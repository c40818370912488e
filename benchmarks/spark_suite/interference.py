"""Live publishing while Spark reads a backlog, beside the same while others use the processors: Spark reading the same rows
from Parquet files, which has nothing to do with the broker, and burners, which do nothing but use as much.

In each round Spark comes first, and what it used (Java, Python workers and the reader) is what the burners are told to use.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from benchmarks.spark_suite.meter import read_cpu_s
from benchmarks.spark_suite.plan import Plan
from benchmarks.spark_suite.world import SparkWorld
from benchmarks.suite.bench import as_numbers
from benchmarks.suite.brokers import PROJECT
from benchmarks.suite.generator import Generator, find_queue_generator

PAYLOAD_BYTES = 256
JOB_SLACK_S = 120.0
JOBS: dict[str, dict[str, object]] = {
    "throughput": {"publishers": 10, "window": 256},
    "answer": {"publishers": 16, "window": 1},
}
BURNERS = (
    6  # as Spark has it: two tasks, each a thread of Java, a worker of Python and a thread of the reader
)


class Interference:
    def __init__(self, world: SparkWorld, plan: Plan, reads: dict[str, Callable[[], None]]) -> None:
        self._world = world
        self._plan = plan
        self._reads = reads  # what Spark does again and again, by side
        self._generator: Generator | None = None
        self._used: dict[str, float] = {}  # processors Spark used, by job

    def measure(self, side: str) -> dict[str, float]:
        if self._generator is None:
            self._generator = find_queue_generator()
        facts: dict[str, float] = {}
        for name, job in JOBS.items():
            found = self._measure_job(side, name, job)
            facts.update({f"{name}_{key}": value for key, value in found.items()})
        facts["seconds"] = sum(facts[f"{name}_seconds"] for name in JOBS)
        facts["foreign_s"] = sum(facts[f"{name}_foreign_s"] for name in JOBS)
        facts["cores"] = float(len(self._world.cores))
        return facts

    def _measure_job(self, side: str, name: str, job: dict[str, object]) -> dict[str, float]:
        assert self._generator is not None, "the generator is made before"
        whole: dict[str, object] = {
            "kind": "publish",
            "protocol": "mqtt",
            "port": self._world.broker.port,
            "broker_pids": str(self._world.broker.pid),
            "core": -1,
            "warmup_ms": self._plan.publish_ms // 4,
            "measure_ms": self._plan.publish_ms,
            "payload_bytes": PAYLOAD_BYTES,
            "is_stream": True,
            **job,
        }
        with self._beside(side, name) as burners:
            meter = self._world.meter()
            burned_s = sum(read_cpu_s(pid) for pid in burners)
            answer = as_numbers(self._generator.run(whole, JOB_SLACK_S))
            burned_s = sum(read_cpu_s(pid) for pid in burners) - burned_s
            used = meter.take()
        spark_s = sum(used[f"{part}_cpu_s"] for part in ("jvm", "python", "reader"))
        cores = max(burned_s if burners else spark_s, 0.0) / used["seconds"]
        if side == "spark":
            self._used[name] = cores
        return {
            "rate": answer["deliveries"] / answer["seconds"],
            "p50_us": answer["round_trip_p50_us"],
            "p99_us": answer["round_trip_p99_us"],
            "broker_us": used["broker_cpu_s"] * 1e6 / max(answer["published_total"], 1.0),
            "used_cores": cores,
            "seconds": used["seconds"],
            "foreign_s": used["foreign_s"],
        }

    @contextmanager
    def _beside(self, side: str, name: str) -> Iterator[list[int]]:
        """Gives the processes of the foreign load."""
        if side in self._reads:
            with self._reading(self._reads[side]):
                yield []
        elif side == "foreign":
            with burning(self._used.get(name, 1.0)) as burners:
                yield burners
        else:
            yield []

    @contextmanager
    def _reading(self, read_all: Callable[[], None]) -> Iterator[None]:
        """Again and again."""
        is_over = threading.Event()
        has_read = threading.Event()

        def read() -> None:
            try:
                while not is_over.is_set():
                    read_all()
                    has_read.set()
            finally:
                has_read.set()

        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(read)
            has_read.wait()  # planned and running: what is measured is reading
            try:
                yield
            finally:
                is_over.set()
            reading.result()


@contextmanager
def burning(cores: float) -> Iterator[list[int]]:
    burners = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.spark_suite.burner", str(cores / BURNERS)],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
        )
        for _ in range(BURNERS)
    ]
    try:
        yield [burner.pid for burner in burners]
    finally:
        for burner in burners:
            assert burner.stdin is not None
            burner.stdin.close()  # which ends it
        for burner in burners:
            burner.wait()
