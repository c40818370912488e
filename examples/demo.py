"""A short tour: a broker of its own, a few simulated devices, and a table of their readings while they come in.

Run it with: ./dev demo tour --seconds 10
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import time
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.table import Table

from millstream.app.server import Millstream
from millstream.client.mqtt_client import MqttClient
from millstream.config.load import config_of

CONFIG = config_of(
    {
        "mqtt": {"port": 0},
        "websocket": {"port": 0},
        "amqp": {"enabled": False},
        "broker": {"sys_interval": 1},
        "storage": {"durability": "memory"},
    }
)
PAUSE_S = 0.1  # between two readings of a device
REFRESH_S = 0.2
CATCH_UP_S = 5.0  # the most it waits, at the end, for readings still on their way


@dataclass
class Device:
    name: str
    quantity: str
    unit: str
    value: float
    step: float
    transport: str  # mqtt or websocket: the listener it connects to

    @property
    def topic(self) -> str:
        return f"plant/{self.name}/{self.quantity}"


DEVICES = (
    Device("hall-1", "temperature", "°C", 21.5, 0.2, "mqtt"),
    Device("hall-1", "humidity", "%", 44.0, 0.5, "websocket"),
    Device("hall-2", "temperature", "°C", 19.0, 0.2, "mqtt"),
    Device("pump-3", "pressure", "bar", 3.4, 0.05, "mqtt"),
    Device("press-4", "power", "kW", 12.0, 0.8, "websocket"),
)


@dataclass
class Readings:
    """What has been published and what has arrived so far."""

    published: int = 0
    received: int = 0
    last: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    broker: dict[str, str] = field(default_factory=dict)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def on_message(self, topic: str, payload: str) -> None:
        if topic.startswith("$SYS/broker/"):
            self.broker[topic.removeprefix("$SYS/broker/")] = payload
            return
        self.received += 1
        self.last[topic] = payload
        self.counts[topic] = self.counts.get(topic, 0) + 1
        self.arrived.set()

    async def wait_all(self) -> None:
        """Until everything published has arrived."""
        while self.received < self.published:
            self.arrived.clear()
            await self.arrived.wait()

    def table(self) -> Table:
        table = Table(title="Readings")
        table.add_column("topic")
        table.add_column("over")
        table.add_column("reading", justify="right")
        table.add_column("count", justify="right")
        for device in DEVICES:
            reading = f"{self.last.get(device.topic, '-')} {device.unit}"
            count = str(self.counts.get(device.topic, 0))
            table.add_row(device.topic, device.transport, reading, count)
        connected = self.broker.get("clients/connected", "-")
        table.caption = f"$SYS/broker/clients/connected: {connected}"
        return table


async def connect(millstream: Millstream, listener: str, client_id: str) -> MqttClient:
    host, port = millstream.addresses[listener]
    path = millstream.config.websocket.path if listener == "websocket" else None
    return await MqttClient.connect(host, port, client_id=client_id, websocket_path=path)


async def publish(millstream: Millstream, device: Device, readings: Readings, end_s: float) -> None:
    chance = random.Random(device.topic)  # the same walk every time
    client = await connect(millstream, device.transport, f"{device.name}-{device.quantity}")
    value = device.value
    while time.monotonic() < end_s:
        value += chance.uniform(-device.step, device.step)
        await client.publish(device.topic, f"{value:.2f}".encode(), qos=1, retain=True)
        readings.published += 1
        await asyncio.sleep(PAUSE_S)
    await client.disconnect()


async def receive(client: MqttClient, readings: Readings) -> None:
    async for message in client.messages():
        readings.on_message(message.topic.decode(), message.payload.decode())


async def show(live: Live, readings: Readings) -> None:
    while True:
        await asyncio.sleep(REFRESH_S)
        live.update(readings.table(), refresh=True)


async def run(seconds: float, console: Console) -> Readings:
    readings = Readings()
    async with Millstream(CONFIG) as millstream:
        for name, (host, port) in millstream.addresses.items():
            console.print(f"{name} listens on {host}:{port}", highlight=False)
        reader = await connect(millstream, "mqtt", "dashboard")
        await reader.subscribe([("plant/#", 1), ("$SYS/broker/clients/#", 0)])
        receiver = asyncio.create_task(receive(reader, readings))
        end_s = time.monotonic() + seconds
        # Without a terminal nothing is redrawn: the last table is printed once, at the end.
        with Live(readings.table(), console=console, auto_refresh=False) as live:
            shower = asyncio.create_task(show(live, readings))
            async with asyncio.TaskGroup() as devices:
                for device in DEVICES:
                    devices.create_task(publish(millstream, device, readings, end_s))
            with contextlib.suppress(TimeoutError):  # told at the end, by the two numbers
                await asyncio.wait_for(readings.wait_all(), CATCH_UP_S)
            shower.cancel()
            live.update(readings.table(), refresh=True)
        if not console.is_terminal:
            console.print()
        await reader.disconnect()
        await receiver
    return readings


def main() -> int:
    parser = argparse.ArgumentParser(description="A broker, some devices and a reader, for a few seconds.")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long the devices send (default: 10)")
    seconds = parser.parse_args().seconds
    console = Console()
    try:
        readings = asyncio.run(run(seconds, console))
    except KeyboardInterrupt:
        return 130
    console.print(f"{readings.published} readings published, {readings.received} received", highlight=False)
    return 0 if readings.received == readings.published else 1


if __name__ == "__main__":
    raise SystemExit(main())
