"""Reads one queue job as JSON from standard input, runs it pinned to its core, prints one line of JSON."""

from __future__ import annotations

import sys

from benchmarks.load import queue_load
from benchmarks.load.amqp_flow import AmqpFlow
from benchmarks.load.amqp_pairs import AmqpPairs, AmqpSteady
from benchmarks.load.disk_floor import measure_floors
from benchmarks.load.entry import print_answer
from benchmarks.load.frames import FrameFault
from benchmarks.load.job import Result
from benchmarks.load.queue_job import QueueJob
from benchmarks.load.queue_load import QueueLoad


def run_job(job: QueueJob) -> Result:
    if job.kind == "floor":
        return measure_floors(job)
    if job.kind == "amqp-flow":
        return AmqpFlow(job).run()
    if job.kind == "amqp-pairs":
        return AmqpPairs(job).run()
    if job.kind == "amqp-steady":
        return AmqpSteady(job).run()
    load = QueueLoad(job)
    if job.kind == "publish":
        return load.publish()
    if job.kind == "consume":
        return load.consume()
    if job.kind in ("session", "serve"):
        return load.serve()
    if job.kind == "fill":
        return load.fill()
    if job.kind == "first":
        return load.wait_first()
    if job.kind == "grow":
        return load.grow()
    raise FrameFault(f"no kind of queue load is called {job.kind}")


def main() -> int:
    job = QueueJob(sys.stdin.read())
    return print_answer(job.core, lambda: run_job(job), queue_load.__file__)


if __name__ == "__main__":
    sys.exit(main())
