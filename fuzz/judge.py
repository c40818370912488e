"""Runs one target on one input and keeps the score: executions, failures, the slowest inputs.

Under a guided fuzzer every line of the target reports where it went, which costs several times its own run time.
So the slowest inputs are kept and timed again afterwards, without the fuzzer and more than once: that time counts.
Memory stays bounded: only a few inputs are kept.
"""

from __future__ import annotations

import heapq
import time
import traceback
from pathlib import Path

from target import Target

from millstream.protocols.amqp091.wire.violation import Violation as AmqpViolation
from millstream.protocols.mqtt.wire.violation import Violation as MqttViolation

VIOLATIONS = (AmqpViolation, MqttViolation)

SLOWEST_KEPT = 10
REPEATS = 7
FAILURES_MAX = 5
SHOWN_BYTES = 200


class Judge:
    def __init__(self, target: Target, executions_max: int) -> None:
        self.executions = 0
        self.failures: list[str] = []
        self._target = target
        self._executions_max = executions_max
        self._slowest: list[tuple[int, bytes]] = []  # a heap: the least slow first

    def try_input(self, data: bytes) -> None:
        self.executions += 1
        started_ns = time.perf_counter_ns()
        try:
            result = self._target.run(data)
        except VIOLATIONS:
            taken_ns = time.perf_counter_ns() - started_ns
        except Exception:
            self._fail(data)
            return
        else:
            taken_ns = time.perf_counter_ns() - started_ns
            self._check(data, result)
        if len(self._slowest) < SLOWEST_KEPT:
            heapq.heappush(self._slowest, (taken_ns, data))
        elif taken_ns > self._slowest[0][0]:
            taken_ns = min(taken_ns, int(measure_ms(self._target, data) * 1e6))  # it may have been a pause
            if taken_ns > self._slowest[0][0]:
                heapq.heapreplace(self._slowest, (taken_ns, data))

    def is_done(self) -> bool:
        return self.executions >= self._executions_max or len(self.failures) >= FAILURES_MAX

    def keep_slowest(self, folder: Path) -> None:
        for number, (_, data) in enumerate(self._slowest):
            (folder / f"{number}").write_bytes(data)

    def _check(self, data: bytes, result: object) -> None:
        if self._target.check is not None:
            try:
                self._target.check(data, result)
            except Exception:
                self._fail(data)

    def _fail(self, data: bytes) -> None:
        self.failures.append(f"{describe(data)}\n{traceback.format_exc()}")


def describe(data: bytes) -> str:
    return f"input of {len(data)} bytes: {data[:SHOWN_BYTES].hex()}"


def measure_ms(target: Target, data: bytes) -> float:
    """The best of several runs: what another process did to the machine is not the decoder's fault."""
    best_ns = 0
    for _ in range(REPEATS):
        started_ns = time.perf_counter_ns()
        try:
            target.run(data)
        except VIOLATIONS:
            pass
        taken_ns = time.perf_counter_ns() - started_ns
        best_ns = taken_ns if best_ns == 0 else min(best_ns, taken_ns)
    return best_ns / 1e6
