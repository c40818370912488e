"""Runs one attack: a broker in its limits, a witness, a quiet control, the attackers, and the time after them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.attack_suite.attack import Attack
from benchmarks.attack_suite.broker import PASSWORD, USER, ConfinedBroker, read_memory, read_others_share
from benchmarks.attack_suite.confinement import Confinement
from benchmarks.attack_suite.evidence import Evidence, read_counters
from benchmarks.attack_suite.mqtt import Closed
from benchmarks.attack_suite.target import Target
from benchmarks.suite.brokers import PROJECT, BrokerFault

LIMIT_BYTES: Final = 1 << 30
CONTROL_S: Final = 3.0
PREPARE_TIMEOUT_S: Final = 120.0
RECOVERY_S: Final = 60.0
GRACE_S: Final = 3.0  # what attackers may need to end
POLL_S: Final = 0.25
NICE: Final = 10  # attackers leave their core to the witness when both want it


@dataclass
class Observation:
    """What one attack did to the broker and its other clients."""

    attack: str
    seconds: float = 0.0
    recovery_s: float = RECOVERY_S
    confined_by: str = ""
    exit_code: int | None = None
    kernel_kills: int = 0
    memory_before: int = 0
    memory_peak: int = 0
    memory_after: int = 0
    recovered_s: float = -1.0  # -1: not within the time
    disturbed: float = 0.0  # the part of the attack in which other programs held the broker's core
    windows: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    facts: list[dict[str, float]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    evidence: Evidence = field(default_factory=Evidence)
    prepared_s: float = 0.0  # how long the preparation took, and the cleaning after it
    cleaned_s: float = 0.0


class AttackRun:
    def __init__(
        self,
        attack: Attack,
        cores: list[int],
        seconds: float,
        scale: float,
        recovery_s: float = RECOVERY_S,
        control_s: float = CONTROL_S,
    ) -> None:
        self._attack = attack
        self._cores = cores
        self._seconds = seconds
        self._scale = scale
        self._recovery_s = recovery_s
        self._control_s = control_s
        self._found = Observation(attack.name, seconds, recovery_s)
        self._prepared = 0  # lines of the log when the attack began

    def run(self) -> Observation:
        attack = self._attack
        with (
            Confinement(LIMIT_BYTES) as confinement,
            ConfinedBroker(self._cores[0], confinement, attack.settings, attack.wants) as broker,
        ):
            assert isinstance(broker, ConfinedBroker)
            self._found.confined_by = confinement.kind
            try:
                self._watch(broker)
            finally:
                self._found.exit_code = broker.ending()
                self._found.kernel_kills = confinement.kills()
                self._found.evidence.read_log(broker.log_lines(), self._prepared)
        return self._found

    def _watch(self, broker: ConfinedBroker) -> None:
        found = self._found
        if self._attack.prepare is not None:
            found.prepared_s = self._step(broker, "prepare")
        with self._start_witness(broker) as witness:
            counters = self._read_counters(broker)
            tell(witness, "window control")
            time.sleep(self._control_s)
            found.memory_before = read_memory(broker.pid)
            self._prepared = len(broker.log_lines())
            tell(witness, "window attack")
            self._run_attackers(broker)
            tell(witness, "window after")
            if broker.ending() is None:
                if self._attack.clean is not None:
                    found.cleaned_s = self._step(broker, "clean")
                self._await_memory(broker)
                found.evidence.compare(counters, self._read_counters(broker))
            tell(witness, "end")
            assert witness.stdout is not None
            found.windows = json.loads(witness.stdout.readline() or "{}")

    def _read_counters(self, broker: ConfinedBroker) -> dict[str, str]:
        try:
            return read_counters(broker.ports["mqtt"], has_users=bool(self._login()))
        except (OSError, Closed) as error:
            self._found.faults.append(f"no counters: {error}")
            return {}

    def _login(self) -> dict[str, str]:
        return {"user": USER, "password": PASSWORD} if "users" in self._attack.wants else {}

    def _target(self, broker: ConfinedBroker, part: int) -> Target:
        return Target(broker.ports, part, self._attack.processes, self._seconds, self._scale)

    # ---- processes

    def _start(self, module: str, *arguments: str, nice: int = 0) -> subprocess.Popen[str]:
        core = self._cores[1]

        def before_exec() -> None:
            os.sched_setaffinity(0, {core})
            os.nice(nice)

        return subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.attack_suite.{module}", *arguments],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=before_exec,
        )

    @contextlib.contextmanager
    def _start_witness(self, broker: ConfinedBroker) -> Any:
        witness = self._start("witness")
        try:
            tell(witness, json.dumps({"ports": broker.ports, **self._login()}))
            await_word(witness)
            yield witness
        finally:
            end(witness, 0)

    def _step(self, broker: ConfinedBroker, step: str) -> float:
        """How long it took."""
        began = time.monotonic()
        process = self._start("attacker", self._attack.name, step, nice=NICE)
        tell(process, self._target(broker, 0).to_json())
        try:
            answer, _ = process.communicate(timeout=PREPARE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self._found.faults.append(f"{step}: not done in {PREPARE_TIMEOUT_S:.0f} s")
            return time.monotonic() - began
        fault = json.loads(answer)["fault"]
        if fault:
            self._found.faults.append(f"{step}: {fault}")
        return time.monotonic() - began

    def _run_attackers(self, broker: ConfinedBroker) -> None:
        found = self._found
        attackers = []
        try:
            for part in range(self._attack.processes):
                attackers.append(self._start("attacker", self._attack.name, "run", nice=NICE))
                tell(attackers[-1], self._target(broker, part).to_json())
            for process in attackers:
                await_word(process)
            waited, others = read_others_share(broker.pid)
            started = time.monotonic()
            for process in attackers:
                tell(process, "begin")
            give_up = started + self._seconds + GRACE_S
            while any(process.poll() is None for process in attackers) and time.monotonic() < give_up:
                self._note_memory(broker)
                time.sleep(POLL_S)
            if broker.ending() is None:
                waited_after, others_after = read_others_share(broker.pid)
                foreign = max(0, waited_after - waited - (others_after - others))
                found.disturbed = foreign / 1e9 / (time.monotonic() - started)
        finally:
            for process in attackers:
                answer = end(process, 0)
                if answer:
                    found.facts.append(answer["facts"])
                    if answer["fault"]:
                        found.faults.append(answer["fault"])

    # ---- memory

    def _note_memory(self, broker: ConfinedBroker) -> int:
        memory = read_memory(broker.pid)
        self._found.memory_peak = max(self._found.memory_peak, memory)
        return memory

    def _await_memory(self, broker: ConfinedBroker) -> None:
        """Until it is back, or the time is over."""
        found = self._found
        ended = time.monotonic()
        while time.monotonic() - ended < self._recovery_s and broker.ending() is None:
            found.memory_after = self._note_memory(broker)
            if found.memory_after <= found.memory_before + memory_allowance(found.memory_before):
                found.recovered_s = time.monotonic() - ended
                break
            time.sleep(POLL_S)


def memory_allowance(before: int) -> int:
    return max(64 << 20, before // 5)


def tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(line + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        raise BrokerFault("a process of the bench ended early; its words are above") from None


def await_word(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    if process.stdout.readline().strip() != "ready":
        raise BrokerFault("a process of the bench did not start; its words are above")


def end(process: subprocess.Popen[str], patience_s: float) -> dict[str, Any] | None:
    """Its last words, if it came to them; else it is ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience_s or 0.001)
    if process.poll() is None:
        process.kill()
    process.wait()
    line = process.stdout.readline()
    with contextlib.suppress(OSError):
        process.stdin.close()
    process.stdout.close()
    answer: dict[str, Any] | None = json.loads(line) if line.startswith("{") else None
    return answer
