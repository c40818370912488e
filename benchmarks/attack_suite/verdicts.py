"""From what was observed to verdicts. Pure."""

from __future__ import annotations

from typing import Final

from benchmarks.attack_suite.runner import LIMIT_BYTES, Observation, memory_allowance
from benchmarks.suite.results import FAILED, PASSED, REFUSED, Check, verdict
from millstream.config.memory import Memory, to_bytes

P99_MAX_MS: Final = 250.0
HARMLESS_MS: Final = (
    100.0  # an attack that costs others no more, and no memory that counts, needs nobody to name who made it
)
DISTURBED: Final = 0.15
MEBIBYTE: Final = 1 << 20


def check_attack(found: Observation) -> list[Check]:
    return [check_alive(found), check_others(found), check_memory(found), check_named(found)]


def check_alive(found: Observation) -> Check:
    if found.exit_code is not None:
        text = f"ended with {found.exit_code}, {found.kernel_kills} killed by the kernel"
    elif found.kernel_kills:
        text = f"{found.kernel_kills} child processes killed by the kernel"
    elif found.evidence.failures:
        text = f"{len(found.evidence.failures)} failures of its own in the log"
    else:
        text = "alive"
    return Check(found.attack, "never killed", text, "alive", verdict(text == "alive"))


def check_others(found: Observation) -> Check:
    """The slowest of the four measures, beside the same measure in the quiet control."""
    window, control = found.windows.get("attack", {}), found.windows.get("control", {})
    claim, target = "other clients' p99", f"<= {P99_MAX_MS:.0f} ms"
    if not window:
        return Check(found.attack, claim, "no figure", target, FAILED)
    measure = max(window, key=lambda name: (window[name]["p99_ms"], window[name]["max_ms"]))
    p99 = float(window[measure]["p99_ms"])
    failed = sum(int(item["failed"]) for item in window.values())
    text = f"{p99:,.0f} ms ({measure}; quiet {control.get(measure, {}).get('p99_ms', 0):,.0f})"
    if failed:
        text += f", {failed} failed"
    judged = verdict(p99 <= P99_MAX_MS and not failed)
    if judged == FAILED and found.disturbed > DISTURBED and not failed:
        judged = REFUSED
        text += f"; other programs held the core for {found.disturbed:.0%}"
    return Check(found.attack, claim, text, target, judged)


def check_memory(found: Observation) -> Check:
    before, peak, after = (
        value / MEBIBYTE for value in (found.memory_before, found.memory_peak, found.memory_after)
    )
    text = f"{before:.0f} -> {peak:.0f} -> {after:.0f} MiB"
    is_back = found.recovered_s >= 0
    text += f" after {found.recovered_s:.1f} s" if is_back else f" after {found.recovery_s:.0f} s"
    allowed = memory_allowance(found.memory_before) / MEBIBYTE
    return Check(
        found.attack, "memory back", text, f"+{allowed:.0f} MiB in {found.recovery_s:.0f} s", verdict(is_back)
    )


def check_named(found: Observation) -> Check:
    evidence = found.evidence
    events = ", ".join(f"{event} x{count}" for event, count in list(evidence.events.items())[:3])
    counters = ", ".join(list(evidence.counters)[:3])
    text = f"log: {events or 'nothing'}; counters: {counters or 'nothing'}"
    is_named = bool(evidence.events) and bool(evidence.counters)
    if not is_named and is_harmless(found):
        text, is_named = f"{text}; nobody felt it", True
    return Check(found.attack, "attackers named", text, "log and counters", PASSED if is_named else FAILED)


def first_watermark() -> int:
    """Of a broker with its default limits in the memory that every attack gives it."""
    memory = Memory()
    return to_bytes(memory.limit, LIMIT_BYTES) * memory.high_watermark // 100


def is_harmless(found: Observation) -> bool:
    """Every client was served as usual, and memory stayed below the first watermark, where the broker begins to act."""
    window = found.windows.get("attack", {})
    if not window or found.memory_peak > first_watermark():
        return False
    return all(float(item["p99_ms"]) <= HARMLESS_MS and not int(item["failed"]) for item in window.values())
