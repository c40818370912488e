"""What `bench amqp091` reports: its tables, and the text of docs/benchmarks-amqp091.md around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.amqp_suite.brokers import KINDS
from benchmarks.amqp_suite.chart import draw_chart
from benchmarks.amqp_suite.scenarios import PERSISTENT_BYTES, PREFETCH, STEADY, TRANSIENT_BYTES
from benchmarks.suite.report import (
    Report,
    Section,
    brokers_of,
    generator_shares,
    rate_header,
    rate_row,
    ratio_cell,
    read_seconds,
    read_table,
    trip_row,
    version_lines,
)
from benchmarks.suite.results import Check, Figure, Summary
from benchmarks.suite.scenarios import Scenario

METHOD = """\
# Benchmarks: AMQP 0.9.1

Written by `./dev bench amqp091`; do not edit. Every figure below comes from one run on one machine.

## Method

- Millstream and RabbitMQ (Debian's package, without plugins) run one after another, alone, on loopback, each pinned to one core; the load generator has the other core. Every scenario has a fresh broker.
- Every round takes both brokers in turn; a window in which other programs held the cores for over a tenth of the time is measured once more; a figure is the median of {rounds} rounds of {seconds:g} s each, after a warm-up.
- The generator (`benchmarks/load/`, compiled) sends frames encoded beforehand and handles them in batches; it is the same for both.
- *Transient*: {transient} bytes unless stated, delivery mode 1, one queue in memory, consumers without acknowledgements. It begins with a proof: every delivery is parsed and compared, so
  that lost, repeated or swapped messages void the figure; then deliveries are counted, and messages sent must equal messages received, to the last one.
- *Persistent*: {persistent} bytes, delivery mode 2, one durable queue, publisher confirms with so many messages unconfirmed at most, one publisher, one consumer with a prefetch of {prefetch} that acknowledges every
  delivery by itself. A message counts when it was delivered; every one is followed by its number. Millstream syncs to disk before it confirms; RabbitMQ syncs a classic queue by its own rule.
- *CPU* is the broker's processor time per million messages, with system calls. *Generator* is the part of the window in which the generator was busy or waited for its core.
  At 95 % the rate says more about the generator than about the broker, and when other programs used more than a tenth of the broker's core it says more about them: such a
  rate is shown as ">=", proves a promise if it can, and is never used against a peer.
- One in flight: 50 pairs with a queue each and a single message on the way, so every message is a wake-up. 1,000 messages/s: open loop, timed from the moment a message was due. With a window of one message, the time is from publish to confirm.
- Millstream runs with access rules, counters and all listeners on.
"""

REPEAT = """\
```
./dev bench amqp091                                     # all of the above, about ten minutes
./dev bench amqp091 --quick                             # one short round
./dev bench amqp091 --scenario confirmed-100 --rounds 5 # one scenario
./dev bench amqp091 --list                              # their names
```
"""


def make_report(
    scenarios: Sequence[Scenario],
    summary: Summary,
    checks: Sequence[Check],
    document: Mapping[str, object],
) -> Report:
    names = brokers_of(summary, KINDS)
    machine = "{cores} cores, {processor}, {system}, Python {python}, files on {filesystem}"
    return Report(
        name="amqp091",
        page_name="benchmarks-amqp091.md",
        method=METHOD.format(
            rounds=document["rounds"],
            seconds=read_seconds(document),
            transient=TRANSIENT_BYTES,
            persistent=PERSISTENT_BYTES,
            prefetch=PREFETCH,
        ),
        place="Machine and versions",
        machine=machine.format(**read_table(document, "machine")),
        versions=version_lines(document, KINDS),
        sections=sections(scenarios, summary, names),
        picture="Messages per second and CPU per message, by scenario and broker",
        draw=lambda path: draw_chart(scenarios, summary, names, path),
        checks=checks,
        repeat=REPEAT,
        document=document,
        brokers=names,
    )


def sections(scenarios: Sequence[Scenario], summary: Summary, names: Sequence[str]) -> list[Section]:
    """The tables of the report, only those with rows."""
    rated = [scenario for scenario in scenarios if scenario.kind != STEADY]
    timed = [scenario for scenario in scenarios if any(is_timed(summary, scenario, name) for name in names)]
    found: list[Section] = []
    if rated:
        header = [*rate_header(names, KINDS), "x RabbitMQ", "CPU, x less", "Generator"]
        body = [compared_row(scenario, summary, names) for scenario in rated]
        found.append(("Messages per second, and broker CPU seconds per million", header, body))
    if timed:
        header = ["Scenario", *(KINDS[name].title for name in names)]
        body = [trip_row(scenario, summary, names) for scenario in timed]
        found.append(("Round trips, p50 / p99 in microseconds", header, body))
    return found


def is_timed(summary: Summary, scenario: Scenario, name: str) -> bool:
    figure = summary.find(scenario.name, name)
    return figure is not None and figure.p50_us > 0


def compared_row(scenario: Scenario, summary: Summary, names: Sequence[str]) -> list[str]:
    ours, theirs = summary.find(scenario.name, "millstream"), summary.find(scenario.name, "rabbitmq")
    shares = generator_shares(scenario, summary, names)
    return [
        *rate_row(scenario, summary, names),
        ratio_cell(ours, theirs),
        cost_cell(ours, theirs),
        " / ".join(f"{share:.0%}" for share in shares),
    ]


def cost_cell(ours: Figure | None, theirs: Figure | None) -> str:
    if ours is None or theirs is None or not ours.cpu_us:
        return ""
    return f"{theirs.cpu_us / ours.cpu_us:.1f}"
