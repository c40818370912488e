"""The first attacks of the suite, measured in depth by the compiled generator, on any broker of `bench mqtt`.

Connections that never finish their CONNECT, and subscribers that stop reading.
"""

from __future__ import annotations

import json
from statistics import median

from rich.console import Console

from benchmarks.mqtt_suite.brokers import KINDS
from benchmarks.suite.bench import as_numbers
from benchmarks.suite.generator import Generator, find_generator
from benchmarks.suite.report import RESULTS
from benchmarks.suite.results import Check, Facts, verdict

MEBIBYTE = 1024 * 1024
FLOOD_CONNECTIONS = 10_000
SUBSCRIBERS = 100
STOPPED = 10
UNSENT_CAP = 8 * MEBIBYTE  # session.max_send_queue_bytes: what one stopped subscriber may hold
TIMEOUT_S = 180.0
WINDOW_MS = 6000


def run_classic(console: Console, cores: list[int], name: str = "millstream", rounds: int = 3) -> list[Check]:
    generator = find_generator()
    console.print(f"{FLOOD_CONNECTIONS:,} unfinished connections ...")
    flood = run_load(generator, name, cores, flood_job(FLOOD_CONNECTIONS))
    record: dict[str, object] = {"broker": name, "flood": flood}
    checks = check_flood(flood)
    for qos in (0, 1):
        found: list[Facts] = []
        for number in range(1, rounds + 1):
            console.print(
                f"{STOPPED} of {SUBSCRIBERS} subscribers stop reading, QoS {qos}, round {number} ..."
            )
            found.append(run_load(generator, name, cores, slow_job(qos, WINDOW_MS)))
        record[f"slow_qos{qos}"] = found
        checks += check_slow(qos, found)
    record["checks"] = [vars(check) for check in checks]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"attack-{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    return checks


def flood_job(connections: int) -> dict[str, object]:
    return {"kind": "flood", "connections": connections}


def slow_job(qos: int, window_ms: int) -> dict[str, object]:
    """200 messages/s of 16 KiB: a stopped subscriber reaches its cap within a few seconds."""
    return {
        "kind": "slow",
        "qos": qos,
        "subscribers": SUBSCRIBERS,
        "stopped": STOPPED,
        "payload_bytes": 16 * 1024,
        "rate": 200,
        "warmup_ms": 1000,
        "measure_ms": window_ms,
    }


def run_load(generator: Generator, name: str, cores: list[int], job: dict[str, object]) -> Facts:
    with KINDS[name](cores[0]) as broker:
        pids = ",".join(str(pid) for pid in broker.pids())
        answer = generator.run({**job, "port": broker.port, "broker_pids": pids, "core": cores[1]}, TIMEOUT_S)
    return as_numbers(answer)


def check_flood(facts: Facts) -> list[Check]:
    growth = (facts["rss_after_bytes"] - facts["rss_before_bytes"]) / MEBIBYTE
    longest = facts["legitimate_longest_s"]
    refused = int(facts["legitimate_refused"])
    open_left = int(facts["still_open"])
    closed = f"{open_left:,} still open" if open_left else f"{facts['closed_after_s']:.1f} s"
    entered = f"{longest * 1000:.0f} ms at most, {refused} refused of {facts['legitimate_attempts']:.0f}"
    all_closed = open_left == 0 and facts["closed_after_s"] <= 15
    return [
        Check("flood", "memory growth", f"{growth:.1f} MiB", "<= 200 MiB", verdict(growth <= 200)),
        Check("flood", "all closed after the last was opened", closed, "<= 15 s", verdict(all_closed)),
        Check(
            "flood", "a legitimate client connects", entered, "<= 1 s", verdict(longest <= 1 and refused == 0)
        ),
    ]


def check_slow(qos: int, rounds: list[Facts]) -> list[Check]:
    name = f"slow, QoS {qos}"
    growth = median(facts["rss_after_bytes"] - facts["rss_before_bytes"] for facts in rounds) / MEBIBYTE
    cap = STOPPED * UNSENT_CAP * 1.1 / MEBIBYTE
    before = median(facts["p99_before_us"] for facts in rounds)
    after = median(facts["p99_after_us"] for facts in rounds)
    settled = median(facts["p99_settled_us"] for facts in rounds)
    missing = int(sum(facts["expected_total"] - facts["delivered_total"] for facts in rounds))
    measured = f"{after:,.0f} us (settled {settled:,.0f} us)"
    target = f"<= {before * 1.2:,.0f} us (before {before:,.0f} us)"
    dropped = median(facts["stopped_missed"] for facts in rounds)
    closed = median(facts["stopped_closed"] for facts in rounds)
    is_held = dropped > 0 or closed > 0 or growth > 1
    held = f"{dropped:,.0f} dropped or late for the stopped, {closed:.0f} closed"
    return [
        Check(name, "the stopped ones filled their queues", held, "some, or memory grew", verdict(is_held)),
        Check(name, "memory growth", f"{growth:.1f} MiB", f"<= {cap:.0f} MiB", verdict(growth <= cap)),
        Check(name, "p99 of the others", measured, target, verdict(after <= before * 1.2)),
        Check(name, "messages the others missed", str(missing), "0", verdict(missing == 0)),
    ]
