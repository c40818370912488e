"""Reads one job as JSON from standard input, runs it pinned to its core, prints one line of JSON."""

from __future__ import annotations

import sys

from benchmarks.load import frames
from benchmarks.load.entry import print_answer
from benchmarks.load.flood import Flood
from benchmarks.load.frames import FrameFault
from benchmarks.load.idle import Idle
from benchmarks.load.job import Job, Result
from benchmarks.load.pairs import Pairs, Steady
from benchmarks.load.slow import SlowConsumers
from benchmarks.load.throughput import Throughput


def run_job(job: Job) -> Result:
    if job.kind == "throughput":
        return Throughput(job).run()
    if job.kind == "pairs":
        return Pairs(job).run()
    if job.kind == "steady":
        return Steady(job).run()
    if job.kind == "idle":
        return Idle(job).run()
    if job.kind == "flood":
        return Flood(job).run()
    if job.kind == "slow":
        return SlowConsumers(job).run()
    raise FrameFault(f"no kind of load is called {job.kind}")


def main() -> int:
    job = Job(sys.stdin.read())
    return print_answer(job.core, lambda: run_job(job), frames.__file__)


if __name__ == "__main__":
    sys.exit(main())
