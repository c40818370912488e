"""`millstream bench`: a quick load test with this package's own client, to see that a set-up carries its load."""

from __future__ import annotations

import asyncio
import os
import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final

import typer

from millstream.commands.connection import (
    DEFAULT_URL,
    REFUSAL_FIRST,
    CaFileOption,
    CertFileOption,
    KeyFileOption,
    MqttVersion,
    PasswordFileOption,
    QosOption,
    Target,
    UrlOption,
    UserOption,
    VersionOption,
    find_target,
    run,
)
from millstream.commands.outcome import CommandFailed, ExitCode
from millstream.commands.output import Output, OutputOption, print_json, print_rows

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from millstream.client.mqtt_client import MqttClient

STAMP: Final = struct.Struct("!Q")  # when the message left, in nanoseconds of this process's clock
LATENCIES_KEPT_MAX: Final = 1_000_000
SETTLE_TIMEOUT_S: Final = 10.0

EXAMPLES = """\b
Examples:
  millstream bench
  millstream bench --publishers 10 --subscribers 1 --qos 1 --count 100000
  millstream bench --size 1024 --duration 30 --url mqtts://broker.example --user alice -o json
\b
The Python client is the limit long before the broker is. For exact figures run `./dev bench mqtt` in the source
tree, which has a load generator of its own and compares with other brokers.
"""


@dataclass
class Plan:
    publishers: int
    subscribers: int
    size: int
    qos: int
    count: int
    duration_s: float
    window: int
    topic: str


@dataclass
class Tally:
    """What has been counted so far."""

    published: int = 0
    refused: int = 0
    received: int = 0
    latencies_ns: list[int] = field(default_factory=list)
    first_ns: int = 0
    published_ns: int = 0
    received_ns: int = 0


def bench(
    publishers: Annotated[
        int, typer.Option("--publishers", "-p", min=1, max=10_000, metavar="N", help="Publishing clients.")
    ] = 1,
    subscribers: Annotated[
        int,
        typer.Option(
            "--subscribers", "-s", min=0, max=10_000, metavar="N", help="Subscribing clients; each gets all."
        ),
    ] = 1,
    size: Annotated[
        int, typer.Option(min=8, max=256 * 1024 * 1024, metavar="BYTES", help="Payload size.")
    ] = 64,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, metavar="N", help="Messages in all.")
    ] = 10_000,
    duration: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Publish for so long instead of --count messages.")
    ] = 0,
    window: Annotated[
        int, typer.Option(min=1, max=65_535, metavar="N", help="Publishes in flight per publisher.")
    ] = 32,
    topic: Annotated[
        str, typer.Option(metavar="TOPIC", help="Topic; each publisher adds its number.")
    ] = "bench",
    qos: QosOption = 0,
    url: UrlOption = DEFAULT_URL,
    user: UserOption = None,
    password_file: PasswordFileOption = None,
    mqtt_version: VersionOption = MqttVersion.FIVE,
    ca_file: CaFileOption = None,
    cert_file: CertFileOption = None,
    key_file: KeyFileOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Publish and receive messages, and report rates and latencies."""
    target = find_target(url, user, password_file, mqtt_version, ca_file, cert_file, key_file)
    plan = Plan(publishers, subscribers, size, qos, count, duration, window, f"{topic}/{os.getpid()}")
    tally = Tally()
    run(target, _measure(target, plan, tally, shows_progress=output is Output.TABLE))
    if not tally.published:
        raise CommandFailed(ExitCode.REFUSED, f"The broker took none of the messages to {plan.topic}.")
    report = summarize(plan, tally)
    if output is Output.JSON:
        print_json(report)
    else:
        print_rows(
            [{"figure": name.replace("_", " "), "value": value} for name, value in report.items()],
            ("figure", "value"),
            output,
        )


async def _measure(target: Target, plan: Plan, tally: Tally, *, shows_progress: bool) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True), disable=not shows_progress, transient=True)
    clients: list[MqttClient] = []
    readers: list[asyncio.Task[None]] = []
    try:
        for _ in range(plan.subscribers):
            client = await target.connect()
            clients.append(client)
            reasons = await client.subscribe([(f"{plan.topic}/#", plan.qos)])
            if reasons[0] >= REFUSAL_FIRST:
                raise CommandFailed(
                    ExitCode.REFUSED, f"The broker refused the subscription to {plan.topic}/#."
                )
            readers.append(asyncio.create_task(_receive(client, tally)))
        sources = [await target.connect() for _ in range(plan.publishers)]
        clients += sources
        with progress:
            bar = progress.add_task("publishing", total=None if plan.duration_s else plan.count)
            watcher = asyncio.create_task(_watch(progress, bar, tally))
            await _publish_all(sources, plan, tally)
            await _wait_for_receivers(plan, tally, readers)
            watcher.cancel()
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)  # cancelled on purpose
        for client in clients:
            await client.disconnect()


async def _publish_all(sources: list[MqttClient], plan: Plan, tally: Tally) -> None:
    share, rest = divmod(plan.count, len(sources))
    tally.first_ns = time.monotonic_ns()
    deadline_ns = tally.first_ns + int(plan.duration_s * 1e9) if plan.duration_s else None
    try:
        async with asyncio.TaskGroup() as group:
            for index, source in enumerate(sources):
                own_count = None if deadline_ns else share + (index < rest)
                budget = _Budget(own_count, deadline_ns)
                for _ in range(plan.window if plan.qos else 1):
                    group.create_task(_publish(source, f"{plan.topic}/{index}", budget, plan, tally))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None  # the others failed for the same reason
    tally.published_ns = time.monotonic_ns()


class _Budget:
    """How many messages the tasks of one publisher may still send."""

    def __init__(self, count: int | None, deadline_ns: int | None) -> None:
        self._left = count
        self._deadline_ns = deadline_ns

    def take(self) -> bool:
        if self._deadline_ns is not None:
            return time.monotonic_ns() < self._deadline_ns
        assert self._left is not None
        self._left -= 1
        return self._left >= 0


async def _publish(source: MqttClient, topic: str, budget: _Budget, plan: Plan, tally: Tally) -> None:
    filling = b"x" * (plan.size - STAMP.size)
    while budget.take():
        payload = STAMP.pack(time.monotonic_ns()) + filling
        reason = await source.publish(topic, payload, qos=plan.qos, retain=False)
        if reason >= REFUSAL_FIRST:
            tally.refused += 1
        else:
            tally.published += 1
        if tally.published % 100 == 0:
            await asyncio.sleep(0)  # QoS 0 never waits by itself; let the receivers run


async def _receive(client: MqttClient, tally: Tally) -> None:
    async for message in client.messages():
        now_ns = time.monotonic_ns()
        tally.received += 1
        tally.received_ns = now_ns
        if len(tally.latencies_ns) < LATENCIES_KEPT_MAX and len(message.payload) >= STAMP.size:
            tally.latencies_ns.append(now_ns - STAMP.unpack_from(message.payload)[0])


async def _wait_for_receivers(plan: Plan, tally: Tally, readers: list[asyncio.Task[None]]) -> None:
    """Until all has arrived, or nothing has for a while: QoS 0 may be dropped by policy."""
    expected = tally.published * plan.subscribers
    seen, since = -1, time.monotonic()
    while tally.received < expected and any(not reader.done() for reader in readers):
        if tally.received != seen:
            seen, since = tally.received, time.monotonic()
        elif time.monotonic() - since > (SETTLE_TIMEOUT_S if plan.qos else 1.0):
            return
        await asyncio.sleep(0.01)


async def _watch(progress: Progress, bar: TaskID, tally: Tally) -> None:
    while True:
        progress.update(bar, completed=tally.published)
        await asyncio.sleep(0.1)


def summarize(plan: Plan, tally: Tally) -> dict[str, object]:
    """The figures of a run; rates are over the time each side was busy."""
    sent_s = max(tally.published_ns - tally.first_ns, 1) / 1e9
    received_s = max(tally.received_ns - tally.first_ns, 1) / 1e9
    ordered = sorted(tally.latencies_ns)
    report: dict[str, object] = {
        "publishers": plan.publishers,
        "subscribers": plan.subscribers,
        "qos": plan.qos,
        "payload_bytes": plan.size,
        "published": tally.published,
        "refused": tally.refused,
        "received": tally.received,
        "missing": tally.published * plan.subscribers - tally.received,
        "publish_rate_per_s": round(tally.published / sent_s),
        "receive_rate_per_s": round(tally.received / received_s) if tally.received else 0,
    }
    for name, fraction in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)):
        report[f"latency_{name}_ms"] = round(percentile(ordered, fraction) / 1e6, 3) if ordered else None
    return report


def percentile(ordered: list[int], fraction: float) -> int:
    """The smallest value that at least `fraction` of all do not exceed."""
    index = max(0, -(-len(ordered) * int(fraction * 1000) // 1000) - 1)
    return ordered[index]
