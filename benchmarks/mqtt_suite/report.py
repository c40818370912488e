"""What `bench mqtt` reports: its tables, and the text of docs/benchmarks.md around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks.mqtt_suite.brokers import KINDS
from benchmarks.mqtt_suite.chart import draw_chart
from benchmarks.suite.report import (
    Report,
    Section,
    brokers_of,
    rate_header,
    rate_row,
    ratio_cell,
    read_seconds,
    read_table,
    round_trip_cell,
    version_lines,
)
from benchmarks.suite.results import Check, Figure, Summary
from benchmarks.suite.scenarios import Scenario

PEERS = ("nats", "mosquitto")

METHOD = """\
# Benchmarks: MQTT

Written by `./dev bench mqtt`; do not edit. Every figure below comes from one run on one machine.

## Method

- Millstream, mosquitto and NATS run one after another, alone, on loopback, each pinned to one core; the load generator has the other core.
- Every round takes all brokers in turn; a window in which other programs held the cores for over a tenth of the time is measured once more; a figure is the median of {rounds} rounds of {seconds:g} s each, after a warm-up.
- The generator (`benchmarks/load/`, compiled) sends packets encoded beforehand and handles them in batches. Payloads are 64 bytes unless stated.
- A pipelined scenario begins with a proof: every delivery is parsed and compared, so that lost, repeated, swapped or altered messages void the figure. Then
  deliveries are counted: messages sent times subscribers must equal messages received, to the last one. In the measured window QoS 0 deliveries are counted by
  their bytes and one read in 64 is looked into; before and after it, every read is. QoS 1 and 2 are followed packet by packet throughout.
- The generator reads in batches: while little arrives per connection and the broker has much more waiting, it rests up to 4 ms before it reads again.
- QoS 1 and 2 publishers keep a window of 256 (32 for 64 KiB) and refill it by halves; every publisher stays a bounded way ahead of the deliveries. The same
  bounds hold for all brokers.
- *CPU* is the broker's processor time per million deliveries, with system calls. *Generator* is the part of the window in which the generator was busy or
  waited for its core. At 95 % the rate says more about the generator than about the broker; and when other programs held the cores for more than a tenth of
  the window, it says more about them. Such a rate is shown as ">=": it proves a promise if it can, and is never used against a peer.
- One in flight: 50 pairs, each with a single message on the way, so every message is a wake-up. 1,000 messages/s: open loop, timed from the moment a message was due.
- Idle connections: resident memory of the broker before and after {connections:,} clients, each with a session and one subscription.
- Millstream runs with access rules, counters and all listeners on; mosquitto and NATS without access rules, mosquitto without persistence and limits on queues.
- NATS speaks neither QoS 2 nor MQTT 5 in this version: those cells are empty.
"""

REPEAT = """\
```
./dev bench mqtt                                # all of the above, about ten minutes
./dev bench mqtt --quick                        # one short round
./dev bench mqtt --scenario q0-1to1 --rounds 5  # one scenario
./dev bench mqtt --list                         # their names
./dev bench router                              # cost of matching by number of subscriptions
./dev bench attack                              # attackers of 68 kinds in 1 GiB, about 25 minutes; --missing goes on with a run
./dev bench flood                               # publishers at full speed beside RabbitMQ, about 15 minutes
./dev bench builds --old ../old                 # what a message costs in an older checkout and in this one
./dev bench memory                              # floods in turn in 1 GiB, for 30 minutes
./dev bench turns                               # the longest turn of the loop that costly inputs cause
```
"""


def make_report(
    scenarios: Sequence[Scenario],
    summary: Summary,
    checks: Sequence[Check],
    document: Mapping[str, object],
) -> Report:
    names = brokers_of(summary, KINDS)
    connections = document["idle_connections"]
    machine = read_table(document, "machine")
    return Report(
        name="mqtt",
        page_name="benchmarks.md",
        method=METHOD.format(
            rounds=document["rounds"], seconds=read_seconds(document), connections=connections
        ),
        place="Machine and versions",
        machine="{cores} cores, {processor}, {system}, Python {python}".format(**machine),
        versions=version_lines(document, KINDS),
        sections=sections(scenarios, summary, names),
        picture="Deliveries per second and CPU per delivery, by scenario and broker",
        draw=lambda path: draw_chart(scenarios, summary, names, path),
        checks=checks,
        repeat=REPEAT,
        document=document,
        brokers=names,
    )


def sections(scenarios: Sequence[Scenario], summary: Summary, names: Sequence[str]) -> list[Section]:
    """The tables of the report: rates and CPU, round trips, memory; only those with rows."""
    titles = [KINDS[name].title for name in names]
    loaded = [scenario for scenario in scenarios if scenario.kind in ("throughput", "pairs")]
    timed = [scenario for scenario in scenarios if scenario.kind in ("pairs", "steady")]
    idle = [scenario for scenario in scenarios if scenario.is_idle]
    found: list[Section] = []
    if loaded:
        body = [compared_row(scenario, summary, names) for scenario in loaded]
        found.append(
            ("Deliveries per second, and broker CPU seconds per million", compared_header(names), body)
        )
    if timed:
        body = [plain_row(scenario, summary, names, round_trip_cell) for scenario in timed]
        found.append(("Round trips, p50 / p99 in microseconds", ["Scenario", *titles], body))
    if idle:
        body = [plain_row(scenario, summary, names, memory_cell) for scenario in idle]
        found.append(("Resident memory per idle connection", ["Scenario", *titles], body))
    return found


def compared_header(names: Sequence[str]) -> list[str]:
    columns = rate_header(names, KINDS)
    if "millstream" in names:
        columns += [f"x {KINDS[peer].title}" for peer in PEERS if peer in names]
        columns += ["Generator"]
    return columns


def compared_row(scenario: Scenario, summary: Summary, names: Sequence[str]) -> list[str]:
    row = rate_row(scenario, summary, names)
    if "millstream" in names:
        ours = summary.find(scenario.name, "millstream")
        for peer in PEERS:
            if peer in names:
                row.append(ratio_cell(ours, summary.find(scenario.name, peer)))
        row.append(f"{ours.generator_share:.0%}" if ours else "")
    return row


def plain_row(
    scenario: Scenario, summary: Summary, names: Sequence[str], describe: Callable[[Figure], str]
) -> list[str]:
    """One cell per broker."""
    row = [scenario.title]
    for name in names:
        figure = summary.figures.get((scenario.name, name))
        if figure is None:
            row.append("")
        else:
            row.append("failed" if figure.fault else describe(figure))
    return row


def memory_cell(figure: Figure) -> str:
    return f"{figure.bytes_per_connection / 1024:.2f} KiB"
