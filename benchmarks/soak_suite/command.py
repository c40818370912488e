"""The command line of `./dev bench soak`: the broker, its clients, the samples, the verdicts."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.console import Console

from benchmarks.attack_suite.broker import ConfinedBroker
from benchmarks.attack_suite.confinement import Confinement
from benchmarks.attack_suite.target import Target
from benchmarks.soak_suite import amqp_lanes, mqtt_lanes
from benchmarks.soak_suite.churn import CHURNS, Churn
from benchmarks.soak_suite.lane import Lane
from benchmarks.soak_suite.sampling import MEBIBYTE, Sample, take_sample
from benchmarks.soak_suite.verdicts import check_soak
from benchmarks.suite.brokers import BrokerFault, Millstream
from benchmarks.suite.command import describe_machine, find_cores, open_console
from benchmarks.suite.report import RESULTS
from benchmarks.suite.results import FAILED, Check

LIMIT_BYTES: Final = 1 << 30
DRAIN_S: Final = 30.0
# caches and files that would take hours to reach their bounds reach them within the warm-up, and then come and go
SETTINGS: Final = (
    "broker.route_cache_size=2000",  # the churn publishes to ten new topics a second
    "storage.log_file_size=4MiB",
    "storage.segment_size=4MiB",
    "storage.stall_timeout=30s",  # the disk is shared with whatever else the machine does
)
WHOLE_MINUTES: Final = 60.0
LINES: Final = 20  # progress on the terminal


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=WHOLE_MINUTES, help="of load")
    parser.add_argument("--warm-up", type=float, help="minutes that do not count (a quarter of all)")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two samples")
    parser.add_argument("--only", action="append", help="this lane or churn; may be repeated")
    parser.add_argument("--set", action="append", default=[], help="a setting of the broker, KEY=VALUE")
    parser.add_argument("--check", action="store_true", help="end with code 1 when a promise does not hold")
    return parser.parse_args()


def main() -> int:
    parsed = parse()
    console = open_console(200)
    cores = find_cores(console)
    if not cores:
        return 2
    os.sched_setaffinity(0, {cores[1]})
    try:
        with (
            Confinement(LIMIT_BYTES) as confinement,
            ConfinedBroker(cores[0], confinement, (*SETTINGS, *parsed.set), ("tls",)) as broker,
        ):
            assert isinstance(broker, ConfinedBroker)
            soak = Soak(broker, parsed, console)
            checks = soak.run()
    except BrokerFault as fault:
        console.print(f"[red]{fault}[/red]", highlight=False)
        return 1
    for check in checks:
        console.print(
            f"{check.verdict:9} {check.claim}: {check.measured} ({check.target or 'told'})", highlight=False
        )
    document = {
        "machine": describe_machine(cores),
        "version": Millstream(cores[0]).version(),
        "minutes": parsed.minutes,
        "warm_up_minutes": soak.warm_up_s / 60,
        "checks": [asdict(check) for check in checks],
        **soak.document(),
    }
    RESULTS.mkdir(exist_ok=True)
    name = "soak.json" if parsed.minutes >= WHOLE_MINUTES and not parsed.only else "soak-partial.json"
    (RESULTS / name).write_text(json.dumps(document, indent=1) + "\n")
    console.print(f"written: benchmarks/results/{name}", highlight=False)
    return 1 if parsed.check and any(check.verdict == FAILED for check in checks) else 0


class Soak:
    def __init__(self, broker: ConfinedBroker, parsed: argparse.Namespace, console: Console) -> None:
        target = Target(broker.ports)
        chosen = parsed.only or ()
        kinds = [*mqtt_lanes.LANES, *amqp_lanes.LANES]
        self._lanes: list[Lane] = [kind(target) for kind in kinds if not chosen or kind.name in chosen]
        self._churns: list[Churn] = [kind(target) for kind in CHURNS if not chosen or kind.name in chosen]
        self._broker = broker
        self._console = console
        self._seconds = parsed.minutes * 60
        self._every = parsed.every
        self.warm_up_s = self._seconds / 4 if parsed.warm_up is None else parsed.warm_up * 60
        self._samples: list[Sample] = []
        self._events: dict[str, int] = {}
        self._accounts: dict[str, dict[str, Any]] = {}

    def run(self) -> list[Check]:
        for lane in self._lanes:
            lane.start()
        for churn in self._churns:
            churn.start()
        self._watch()
        for part in (*self._lanes, *self._churns):
            part.stop()
        deadline = time.monotonic() + DRAIN_S
        for lane in self._lanes:
            lane.drain(deadline)
        self._events = count_events(self._broker.log_lines())
        self._accounts = self._summarize()
        return check_soak(self._samples, self.warm_up_s, self._accounts, self._events)

    def _watch(self) -> None:
        started = time.monotonic()
        step = max(1, int(self._seconds / self._every / LINES))
        while (now := time.monotonic()) < started + self._seconds:
            time.sleep(max(0.0, started + len(self._samples) * self._every - now))
            if self._broker.ending() is not None:
                raise BrokerFault(f"the broker ended: {self._broker.last_words()}")
            sample = take_sample(self._broker.pid, self._broker.folder / "data", started)
            self._samples.append(sample)
            if len(self._samples) % step == 0:
                self._print(sample)

    def _print(self, sample: Sample) -> None:
        lost = sum(lane.account.lost for lane in self._lanes)  # or on its way
        sent = sum(lane.account.sent for lane in self._lanes)
        faults = sum(part.account.faults for part in (*self._lanes, *self._churns))
        self._console.print(
            f"{sample.seconds / 60:6.1f} min  rss {sample.rss_bytes / MEBIBYTE:.1f} MiB (anonymous "
            f"{sample.anonymous_bytes / MEBIBYTE:.1f}, child {sample.child_rss_bytes / MEBIBYTE:.1f})  fds {sample.descriptors}  threads {sample.threads}  data "
            f"{sample.data_bytes / MEBIBYTE:.1f} MiB  cpu {sample.cpu_s:.0f} s  sent {sent:,}  under way {lost}  "
            f"visits {sum(churn.rounds for churn in self._churns):,}  faults {faults}",
            highlight=False,
        )

    def _summarize(self) -> dict[str, dict[str, Any]]:
        parts: Sequence[Lane | Churn] = (*self._lanes, *self._churns)
        return {
            part.name: {
                **part.account.summary(),
                "may_repeat": isinstance(part, Lane) and part.may_repeat,
                "is_delayed": isinstance(part, Lane) and part.is_delayed,
                "visits": part.rounds if isinstance(part, Churn) else 0,
            }
            for part in parts
        }

    def document(self) -> dict[str, Any]:
        return {
            "lanes": self._accounts,
            "log": self._events,
            "samples": [asdict(sample) for sample in self._samples],
        }


def count_events(lines: Sequence[str]) -> dict[str, int]:
    events: dict[str, int] = {}
    for line in lines:
        try:
            event = str(json.loads(line).get("event", ""))
        except (ValueError, AttributeError):
            continue  # what it says on the terminal before its log begins
        events[event] = events.get(event, 0) + 1
    return events
