"""What `bench queues` reports: its tables, and the text of docs/benchmarks-queues.md around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.queue_suite.brokers import KINDS
from benchmarks.queue_suite.chart import draw_chart
from benchmarks.queue_suite.results import bare_sign, find_floor, first_facts
from benchmarks.queue_suite.scenarios import PAIRS, RATES, QueueScenario
from benchmarks.suite.report import (
    TRUST,
    Report,
    Section,
    brokers_of,
    generator_shares,
    rate_header,
    rate_row,
    ratio_cell,
    read_seconds,
    read_table,
    short,
    trip_row,
)
from benchmarks.suite.results import Check, Run, Summary, number

MEBIBYTE = 1024 * 1024

METHOD = """\
# Benchmarks: queues

Written by `./dev bench queues`; do not edit. Every figure below comes from one run on one machine and one disk.

## Method

- The brokers run one after another, alone, on loopback, each pinned to one core, each scenario with a fresh one; the load generator has the other core. A figure is
  the median of {rounds} rounds; publishing is measured for {seconds:g} s after a warm-up. Messages have 256 bytes unless stated.
- Durable publishing is limited by the disk, so it is measured against the disk. *S* is the raw rate of fdatasync: a bare loop that writes one record of 256 bytes into a file
  written through before, and syncs. *R(b)* is the same loop with b records per sync. Both are measured on the same filesystem right before and after each figure of
  Millstream, and the figure is divided by their mean. When the two measures are more than 1.5 times apart, a promise that did not hold has no figure.
- The *bare server* is the control: the least program that does the same job, in C, on the broker's core, under the same load. It takes what one round of epoll has brought,
  appends it to a file written through before, syncs once and answers each PUBLISH; it has no topics, no queue, no checks. It is measured between the two measures of S and R;
  "x bare" is Millstream against it. With one publisher, what it misses of a promise went into sockets, wake-ups and the generator, not into a broker. With many it is no upper
  bound: it does not read while it syncs, and a server that does may pass it. It judges nothing.
- What a confirm means is part of every figure: see *durability* below. Ratios are taken only between brokers of one kind: who syncs before the confirm, and who does not.
  "x rabbitmq" is Millstream against RabbitMQ, "os x nats" is Millstream in `os` mode against JetStream. With one publisher and one message in flight the disk decides for all who sync, so their rates are not compared.
- Publishing: MQTT 3.1.1, QoS 1, to `$queue/bench` for Millstream; JetStream's own protocol with a reply subject; AMQP 0.9.1 with persistent messages and publisher confirms.
  A message counts when its confirm arrived. Wide windows are refilled by halves.
- Consuming: {fill:,} messages are stored and confirmed before; then one or ten consumers with a credit of 100 each take them, and every delivery is settled by itself (PUBACK; an
  empty publish to the reply subject; basic.ack). The first tenth is the warm-up. Every payload carries a number: what is missing or comes twice is seen. A broker that needs
  longer than 20 s is measured as far as it came.
- Replay: the same from a stream, by a group that did not exist before. RabbitMQ's stream is its queue type of that name, read with AMQP 0.9.1.
- Persistent session: 10 publishers with 256 in flight, QoS 1, one subscriber whose session outlives its connection. Online, every message is stored and delivered; offline, it is
  stored; on return, {fill:,} stored messages are delivered and acknowledged.
- Restart: {restart_messages:,} messages of 1 KiB are confirmed into a work queue, the broker is killed with SIGKILL and started again. Ready is when its ready file is there and its port answers.
- Memory: {messages:,} messages of 64 bytes are confirmed into a stream; resident memory and processor time per publish, after the first tenth and to the end.
- *CPU s* is the broker's processor time per million messages, with all its threads and system calls. *Generator* is the part of the window in which the generator was busy or waited for its core.
  At 95 % the rate says more about the generator than about the broker, and when other programs used more than a tenth of the broker's core it says more about them: such a
  rate is shown as ">=", proves a promise if it can, and is never used against a peer.
- Millstream runs with access rules, counters and all listeners on.
"""

REPEAT = """\
```
./dev bench queues                                    # all of the above, about half an hour
./dev bench queues --quick                            # one short round with small queues
./dev bench queues --scenario publish-16 --rounds 5   # one scenario
./dev bench queues --scenario memory --messages 50000000
./dev bench queues --folder FOLDER                    # on another disk
./dev bench queues --list                             # their names
```
"""


def make_report(
    scenarios: Sequence[QueueScenario],
    summary: Summary,
    runs: Sequence[Run],
    checks: Sequence[Check],
    document: Mapping[str, object],
) -> Report:
    names = brokers_of(summary, KINDS)
    sizes = {key: document[key] for key in ("rounds", "fill", "messages", "restart_messages")}
    machine = "{cores} cores, {processor}, {system}, {filesystem}, Python {python}"
    return Report(
        name="queues",
        page_name="benchmarks-queues.md",
        method=METHOD.format(seconds=read_seconds(document), **sizes),
        place="Machine, versions and durability",
        machine=machine.format(**read_table(document, "machine")),
        versions=durability_lines(document),
        sections=sections(scenarios, summary, runs),
        picture="Messages per second and CPU per message, by scenario and broker",
        draw=lambda path: draw_chart(scenarios, summary, names, path),
        checks=checks,
        repeat=REPEAT,
        document=document,
        brokers=names,
        trust=f"{TRUST} and its disk",
    )


def durability_lines(document: Mapping[str, object]) -> list[str]:
    versions, left_out = read_table(document, "versions"), read_table(document, "left_out")
    return [
        *(f"{KINDS[name].title}: {text}; {KINDS[name].durability}" for name, text in versions.items()),
        *(f"{KINDS[name].title}: left out, {reason}" for name, reason in left_out.items()),
    ]


def sections(scenarios: Sequence[QueueScenario], summary: Summary, runs: Sequence[Run]) -> list[Section]:
    """The tables of the report, only those with rows."""
    names = brokers_of(summary, KINDS)
    rated = [scenario for scenario in scenarios if scenario.kind in RATES]
    found: list[Section] = []
    body = floor_rows(scenarios, runs)
    if body:
        header = ["Scenario", "S", "R(b)", "Promised", "Millstream", "x promised", "x S"]
        header += ["Bare server", "Bare x promised", "x bare"]
        found.append(("Floors of the disk around each durable figure, per second", header, body))
    if rated:
        body = [compared_row(scenario, summary, names) for scenario in rated]
        found.append(
            ("Messages per second, and broker CPU seconds per million", compared_header(names), body)
        )
    body = [trip_row(scenario, summary, names) for scenario in scenarios if scenario.singles]
    if body:
        header = ["Scenario", *(KINDS[name].title for name in names)]
        found.append(("From publish to confirm, p50 / p99 in microseconds", header, body))
    body = single_rows(scenarios, runs)
    if body:
        found.append(("Restart and memory", ["What", "Millstream"], body))
    return found


def floor_rows(scenarios: Sequence[QueueScenario], runs: Sequence[Run]) -> list[list[str]]:
    rows: list[list[str]] = []
    for scenario in scenarios:
        floor = find_floor(scenario, "millstream", runs)
        if floor is not None:
            records = f"R({scenario.singles or scenario.batch}) = {floor.records:,.0f}"
            rate = f"{floor.share * floor.promised:,.0f}"
            syncs = f"{floor.syncs:,.0f}" if floor.is_steady else f"{floor.syncs:,.0f} (unsteady)"
            cells = [syncs, records, f"{floor.promised:,.0f}", rate]
            bare = ["", "", ""]
            if floor.bare:
                sign = bare_sign(floor)
                bare = [
                    f"{sign}{floor.bare:,.0f}",
                    f"{sign}{floor.bare_share:.2f}",
                    f"{floor.times_bare:.2f}",
                ]
            rows.append([scenario.title, *cells, f"{floor.share:.2f}", f"{floor.times_syncs:.2f}", *bare])
    return rows


def compared_header(names: Sequence[str]) -> list[str]:
    ratios = [
        f"{'os ' if own == 'millstream-os' else ''}x {peer}"
        for own, peer in PAIRS
        if own in names and peer in names
    ]
    return [*rate_header(names, KINDS), *ratios, "Generator"]


def compared_row(scenario: QueueScenario, summary: Summary, names: Sequence[str]) -> list[str]:
    ratios = [
        ratio_cell(summary.find(scenario.name, own), summary.find(scenario.name, peer))
        for own, peer in PAIRS
        if own in names and peer in names
    ]
    shares = generator_shares(scenario, summary, names)
    return [*rate_row(scenario, summary, names), *ratios, f"{max(shares):.0%}" if shares else ""]


def single_rows(scenarios: Sequence[QueueScenario], runs: Sequence[Run]) -> list[list[str]]:
    rows: list[list[str]] = []
    for scenario in scenarios:
        facts = first_facts(scenario.name, runs)
        if facts is None:
            continue
        if scenario.kind == "restart":
            stored = f"{number(facts, 'stored'):,.0f} x 1 KiB queued"
            rows.append([f"{stored}: kill -9 to ready", f"{number(facts, 'ready_s'):.2f} s"])
            rows.append(
                [f"{stored}: kill -9 to first delivery", f"{number(facts, 'first_delivery_s'):.2f} s"]
            )
        elif scenario.kind == "grow":
            stored = f"{number(facts, 'deliveries'):,.0f} x 64 B in a stream"
            before = number(facts, "rss_before_bytes") / MEBIBYTE
            after = number(facts, "rss_after_bytes") / MEBIBYTE
            rows.append(
                [f"{stored}: memory after the first tenth, and at most", f"{before:.0f}, {after:.0f} MiB"]
            )
            cost = f"{number(facts, 'cpu_first_us'):.2f}, {number(facts, 'cpu_last_us'):.2f} us"
            rows.append([f"{stored}: CPU per publish, first and last tenth", cost])
            rate = number(facts, "deliveries") / max(number(facts, "seconds"), 1e-9)
            rows.append([f"{stored}: confirmed per second", short(rate)])
    return rows
