"""Devices, a broker, two pipelines on Spark, and a live picture of what comes back from them over MQTT.

Simulated devices publish to a broker of its own; a stream keeps their readings; rollup and alert read the stream on Spark
and publish what they find; the picture is made of plain MQTT subscriptions. It takes half a minute until Spark is there.

Run it with: ./dev demo --seconds 30
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from millstream.client.mqtt_client import MqttClient
from millstream.commands import pipeline_runs
from millstream.commands.outcome import CommandFailed, ExitCode
from millstream.protocols.mqtt.wire.properties import Properties
from millstream.runtime.control.client import SOCKET_NAME, ControlClient

DEVICES = ("boiler", "chiller", "furnace", "mixer", "press", "pump")
PAUSE_S = 0.2  # between two readings of a device
FAULT_EVERY = 60  # readings, from one broken reading of a device to its next
REFRESH_S = 0.25
START_TIMEOUT_S = 30.0
SPARK_TIMEOUT_S = 180.0  # to the first result
STOP_TIMEOUT_S = 60.0
MEANS_KEPT = 12
BARS = "▁▂▃▄▅▆▇█"


@dataclass
class Picture:
    """What has been published, and what came back."""

    published: int = 0
    windows: int = 0
    alerts: int = 0
    latest: dict[str, float] = field(default_factory=dict)
    rollups: dict[str, dict[str, float]] = field(default_factory=dict)
    means: dict[str, deque[float]] = field(default_factory=dict)
    told: deque[str] = field(default_factory=lambda: deque(maxlen=6))
    status: str = "Spark is starting"
    was_stopped: bool = False
    first_result: asyncio.Event = field(default_factory=asyncio.Event)

    def on_message(self, topic: str, payload: bytes) -> None:
        kind, device = topic.split("/")[:2]
        if kind == "plant":
            self.latest[device] = float(payload)
        elif kind == "rollup":
            self.windows += 1
            self.rollups[device] = json.loads(payload)
            self.means.setdefault(device, deque(maxlen=MEANS_KEPT)).append(
                self.rollups[device].get("mean", 0.0)
            )
            self.first_result.set()
        else:
            self.alerts += 1
            alert = json.loads(payload)
            reason = (
                alert.get("rule")
                or f"{alert.get('deviation', 0):.1f} deviations from {alert.get('mean', 0):.1f}"
            )
            self.told.appendleft(f"{alert['time'][11:19]}  {device}: {alert['value']:.1f}  ({reason})")

    def draw(self) -> Group:
        table = Table(title="Temperatures: what the devices send, and what Spark makes of it")
        for name in ("device", "reading", "window", "count", "min", "mean", "max", "late", "means"):
            table.add_column(name, justify="left" if name in ("device", "means") else "right")
        for device in DEVICES:
            found = self.rollups.get(device, {})
            figures = (f"{found[name]:.1f}" if name in found else "-" for name in ("min", "mean", "max"))
            window = str(found["window_start"])[11:19] if found else "-"
            counts = (str(found.get(name, "-")) for name in ("count", "late"))
            count, late = counts
            reading = f"{self.latest[device]:.1f}" if device in self.latest else "-"
            table.add_row(
                device, reading, window, count, *figures, late, spark_line(self.means.get(device, ()))
            )
        alerts = "\n".join(self.told) or "none yet"
        footer = (
            f"{self.published} readings published, {self.windows} windows and {self.alerts} alerts came back"
        )
        return Group(table, Text(f"Alerts\n{alerts}\n\n{self.status}\n{footer}"))


def spark_line(values: deque[float] | tuple[float, ...]) -> str:
    if not values:
        return ""
    low, high = min(values), max(values)
    steps = (int((value - low) / (high - low or 1) * (len(BARS) - 1)) for value in values)
    return "".join(BARS[step] for step in steps)


@contextlib.contextmanager
def started_broker(folder: Path) -> Iterator[dict[str, int]]:
    """A broker in a process of its own; gives its ports."""
    ready = folder / "ready.json"
    command = [sys.executable, "-m", "millstream", "serve", "--ready-file", str(ready)]
    for setting in (
        "mqtt.port=0",
        "websocket.enabled=false",
        "amqp.enabled=false",
        "reader.enabled=true",
        "reader.port=0",
        f"data_dir={folder / 'data'}",
    ):
        command += ["--set", setting]
    with (folder / "broker.txt").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise CommandFailed(
                    ExitCode.FAILED, f"The broker did not start: {(folder / 'broker.txt').read_text()}"
                )
            time.sleep(0.02)
        listeners = json.loads(ready.read_text(encoding="utf-8"))["listeners"]
        yield {name: listener["port"] for name, listener in listeners.items()}
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)


@contextlib.contextmanager
def started_pipelines(folder: Path, reader_port: int) -> Iterator[pipeline_runs.Run]:
    settings = {"uri": f"http://127.0.0.1:{reader_port}", "queues": "readings"}
    options = (
        "--master",
        "local[2]",
        "--conf",
        "spark.driver.memory=1g",
        "--conf",
        "spark.sql.shuffle.partitions=2",
    )
    file = str(Path(__file__).with_name("both.py"))
    run, process = pipeline_runs.start(folder / "runs", "both", file, settings, options)
    try:
        yield run
    finally:
        pipeline_runs.ask_to_stop(run)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            pipeline_runs.kill(run)


async def send(port: int, device: str, picture: Picture) -> None:
    """A walk around a level, with a broken reading now and then, and some that come late."""
    chance = random.Random(device)  # the same walk every time
    client = await MqttClient.connect("127.0.0.1", port, client_id=device)
    level = chance.uniform(40, 60)
    count = chance.randrange(FAULT_EVERY)
    while True:
        count += 1
        value = level + chance.gauss(0, 1) + (40 if count % FAULT_EVERY == 0 else 0)
        late_s = 8 if count % 25 == 0 else 0
        properties = Properties()
        properties.user_properties.append((b"event-time", str(int((time.time() - late_s) * 1000)).encode()))
        await client.publish(
            f"plant/{device}/temperature", f"{value:.2f}".encode(), qos=1, properties=properties
        )
        picture.published += 1
        await asyncio.sleep(PAUSE_S)


async def receive(port: int, picture: Picture) -> None:
    client = await MqttClient.connect("127.0.0.1", port, client_id="picture")
    await client.subscribe([("plant/#", 0), ("rollup/#", 1), ("alerts/#", 1)])
    async for message in client.messages():
        picture.on_message(message.topic.decode(), message.payload)


async def show(live: Live, run: pipeline_runs.Run, picture: Picture) -> None:
    while True:
        status = run.last_status()
        picture.status = f"Spark is {status['state']}"
        if "rows" in status:
            picture.status += f": {status['rows']} rows, {status['rate']} a second, {status['lag']} behind"
        if "error" in status or not run.is_running:
            raise CommandFailed(ExitCode.FAILED, f"The pipelines ended: {status.get('error', log_end(run))}")
        live.update(picture.draw(), refresh=True)
        await asyncio.sleep(REFRESH_S)


def log_end(run: pipeline_runs.Run) -> str:
    return " ".join(run.log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-3:])


async def watch(seconds: float | None, port: int, run: pipeline_runs.Run, console: Console) -> Picture:
    """Until the time is over or somebody has seen enough."""
    picture, enough = Picture(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, enough.set)
    with Live(picture.draw(), console=console, auto_refresh=False) as live:
        tasks = [asyncio.create_task(send(port, device, picture)) for device in DEVICES]
        tasks += [asyncio.create_task(receive(port, picture)), asyncio.create_task(show(live, run, picture))]
        ending = asyncio.create_task(wait_time(seconds, picture, enough))
        await asyncio.wait([*tasks, ending], return_when=asyncio.FIRST_COMPLETED)
        ended = [task for task in tasks if task.done()]
        for task in (*tasks, ending):
            task.cancel()
        await asyncio.gather(*tasks, ending, return_exceptions=True)  # cancelled on purpose
        picture.was_stopped = enough.is_set()
        live.update(picture.draw(), refresh=True)
        for task in ended:
            task.result()  # what broke it off is told
    return picture


async def wait_time(seconds: float | None, picture: Picture, enough: asyncio.Event) -> None:
    """The seconds count from the first result: before it there is nothing to look at."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(_first(picture.first_result, enough), SPARK_TIMEOUT_S)
        await asyncio.wait_for(enough.wait(), seconds)


async def _first(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def main() -> int:
    parser = argparse.ArgumentParser(description="Simulated devices, a broker, and pipelines on Spark.")
    parser.add_argument(
        "--seconds", type=float, help="how long to go on after the first result; else until Ctrl-C"
    )
    seconds = parser.parse_args().seconds
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="millstream-demo-"))
    try:
        pipeline_runs.need_spark()
        pipeline_runs.need_java()
        with started_broker(folder) as ports:
            with ControlClient(folder / "data" / SOCKET_NAME) as control:
                definition = {"kind": "stream", "bindings": ["plant/+/temperature"]}
                control.call("queue.create", {"name": "readings", "definition": definition})
            with started_pipelines(folder, ports["reader"]) as run:
                picture = asyncio.run(watch(seconds, ports["mqtt"], run, console))
    except CommandFailed as failure:
        print(f"error: {failure.sentence}", file=sys.stderr)
        if failure.next_step:
            print(f"next: {failure.next_step}", file=sys.stderr)
        return int(failure.code)
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not console.is_terminal:
        console.print(f"\n{picture.windows} windows, {picture.alerts} alerts", highlight=False)
    return 0 if picture.windows or picture.was_stopped else 1


if __name__ == "__main__":
    raise SystemExit(main())
