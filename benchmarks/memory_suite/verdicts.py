"""From what a run of floods was to verdicts. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.memory_suite.policies import Policies
from benchmarks.suite.results import FAILED, REFUSED, Check, verdict

P99_MAX_MS: Final = 250.0
LIVE: Final = ("QoS 0", "QoS 1")  # connections that are there; newcomers may be refused by a stated policy
SCENARIO: Final = "memory"
DISTURBED: Final = 0.15


@dataclass
class MemoryRun:
    minutes: float = 0.0
    floods: int = 0
    rounds_least: int = 0  # how often the least frequent flood ran
    is_alive: bool = False
    killed: int = 0  # by the kernel
    group_peak_mib: int = 0
    limit_mib: int = 0
    resident_after_mib: int = 0
    windows: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    counters: dict[str, str] = field(default_factory=dict)
    policies: Policies = field(default_factory=Policies)
    disturbed: float = 0.0  # the part of the time in which other programs held the broker's core


def check_memory_run(found: MemoryRun) -> list[Check]:
    return [
        check_survived(found),
        check_rounds(found),
        check_served(found),
        check_p99(found),
        check_told(found),
        check_normal(found),
    ]


def check_survived(found: MemoryRun) -> Check:
    text = f"{found.minutes} minutes, {found.killed} killed by the kernel, peak {found.group_peak_mib} MiB"
    if not found.is_alive:
        text = f"gone after {text}"
    if found.policies.failures:
        text += f", {len(found.policies.failures)} failures of its own in the log"
    is_well = found.is_alive and not found.killed and not found.policies.failures
    return Check(SCENARIO, "survives", text, f"in {found.limit_mib} MiB", verdict(is_well))


def check_rounds(found: MemoryRun) -> Check:
    text = f"{found.floods} floods, each at least {found.rounds_least} times"
    return Check(SCENARIO, "every flood ran", text, "at least once", verdict(found.rounds_least > 0))


def check_served(found: MemoryRun) -> Check:
    measures = found.windows.get("all", {})
    failed = {name: int(figures["failed"]) for name, figures in measures.items() if figures["failed"]}
    text = ", ".join(f"{name}: {count} failed" for name, count in failed.items()) or "0 failed"
    is_served = all(name in measures for name in LIVE) and not any(name in failed for name in LIVE)
    return Check(SCENARIO, "ordinary clients are served", text, "0 of connected ones", verdict(is_served))


def check_p99(found: MemoryRun) -> Check:
    measures = found.windows.get("all", {})
    claim, target = "ordinary clients' p99", f"<= {P99_MAX_MS:.0f} ms"
    if not measures:
        return Check(SCENARIO, claim, "no figure", target, FAILED)
    slowest = max(measures, key=lambda name: float(measures[name]["p99_ms"]))
    worst = max(float(figures["max_ms"]) for figures in measures.values())
    p99 = float(measures[slowest]["p99_ms"])
    text = f"{p99:,.0f} ms ({slowest}), worst answer {worst:,.0f} ms"
    judged = verdict(p99 <= P99_MAX_MS)
    if judged == FAILED and found.disturbed > DISTURBED:
        judged = REFUSED
        text += f"; other programs held the core for {found.disturbed:.0%}"
    return Check(SCENARIO, claim, text, target, judged)


def slowest_floods(found: MemoryRun) -> list[str]:
    """The p99 of its slowest measure for each flood, the worst of all its rounds, the slowest first."""
    worst: dict[str, float] = {}
    for window, measures in found.windows.items():
        number, _, name = window.partition("-")
        if number.isdigit() and measures:
            p99 = max(float(figures["p99_ms"]) for figures in measures.values())
            worst[name] = max(p99, worst.get(name, 0.0))
    return [f"{name} {worst[name]:,.0f} ms" for name in sorted(worst, key=worst.__getitem__, reverse=True)]


def check_told(found: MemoryRun) -> Check:
    policies = found.policies
    offenders = ", ".join(f"{count} {kind}s" for kind, count in policies.offenders.items())
    began = ", ".join(f"{name} {count} times" for name, count in policies.began.items())
    text = f"{began or 'no watermark reached'}; made to let go: {offenders or 'nobody'}"
    claim, target = "policies are told", "every state that began has ended"
    if not policies.began:
        return Check(SCENARIO, claim, text, target, REFUSED)
    left = policies.still_held()
    if left:
        text += f"; not over: {', '.join(left)}"
    return Check(SCENARIO, claim, text, target, verdict(not left))


def check_normal(found: MemoryRun) -> Check:
    state = found.counters.get("memory/state", "unknown")
    text = f"{state}, {found.resident_after_mib} MiB resident"
    return Check(SCENARIO, "memory afterwards", text, "normal", verdict(state == "normal"))
