"""`./dev bench attack`: connections that never finish their CONNECT, and subscribers that stop reading.

Runs against Millstream, or another broker by name, started here on loopback.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the project, so that `benchmarks` is a package

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from benchmarks.mqtt_suite.brokers import KINDS  # noqa: E402
from benchmarks.suite.bench import as_numbers  # noqa: E402
from benchmarks.suite.brokers import BrokerFault  # noqa: E402
from benchmarks.suite.command import find_cores, open_console  # noqa: E402
from benchmarks.suite.generator import Generator, GeneratorFault, find_generator  # noqa: E402
from benchmarks.suite.report import RESULTS  # noqa: E402
from benchmarks.suite.results import FAILED, PASSED, Check, Facts, verdict  # noqa: E402

MEBIBYTE = 1024 * 1024
FLOOD_CONNECTIONS = 10_000
SUBSCRIBERS = 100
STOPPED = 10
UNSENT_CAP = 8 * MEBIBYTE  # session.max_send_queue_bytes: what one stopped subscriber may hold
TIMEOUT_S = 180.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench attack", description=__doc__)
    parser.add_argument("--broker", default="millstream", choices=list(KINDS))
    parser.add_argument("--connections", type=int, default=FLOOD_CONNECTIONS, help="of the flood")
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds of the slow consumers to take medians of"
    )
    parser.add_argument("--window-ms", type=int, default=6000, help="length of each window of round trips")
    parser.add_argument("--check", action="store_true", help="end with code 1 when a promise does not hold")
    parsed = parser.parse_args()
    console = open_console(130)
    cores = find_cores(console)
    if not cores:
        return 2
    generator = find_generator()
    checks: list[Check] = []
    record: dict[str, object] = {"broker": parsed.broker}
    try:
        console.print(f"{parsed.connections:,} unfinished connections ...")
        flood = run_load(generator, parsed.broker, cores, flood_job(parsed.connections))
        record["flood"] = flood
        checks += check_flood(flood)
        for qos in (0, 1):
            rounds: list[Facts] = []
            for number in range(1, parsed.rounds + 1):
                console.print(
                    f"{STOPPED} of {SUBSCRIBERS} subscribers stop reading, QoS {qos}, round {number} ..."
                )
                rounds.append(run_load(generator, parsed.broker, cores, slow_job(qos, parsed.window_ms)))
            record[f"slow_qos{qos}"] = rounds
            checks += check_slow(qos, rounds)
    except (BrokerFault, GeneratorFault) as fault:
        console.print(f"[red]{fault}[/red]", highlight=False)
        return 1
    print_checks(console, KINDS[parsed.broker].title, checks)
    record["checks"] = [vars(check) for check in checks]
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"attack-{parsed.broker}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    console.print(f"written: benchmarks/results/{path.name}", highlight=False)
    return 1 if parsed.check and any(check.verdict == FAILED for check in checks) else 0


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


def print_checks(console: Console, title: str, checks: list[Check]) -> None:
    table = Table(title=f"Attack on {title}", title_justify="left")
    for column in ("Part", "Promise", "Measured", "Target", "Verdict"):
        table.add_column(column)
    for check in checks:
        colour = "green" if check.verdict == PASSED else "red"
        table.add_row(
            check.scenario, check.claim, check.measured, check.target, f"[{colour}]{check.verdict}[/{colour}]"
        )
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
