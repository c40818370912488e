"""The two brokers of `bench flood`, each with AMQP 0.9.1 and MQTT."""

from __future__ import annotations

import json
import os
from pathlib import Path

from benchmarks.amqp_suite.brokers import AmqpMillstream
from benchmarks.flood_suite.newcomer import connect_mqtt
from benchmarks.queue_suite.brokers import QueueBroker, Rabbit, is_served
from benchmarks.suite.brokers import find_free_port, read_port

MIB = 1024 * 1024
MEMORY_LIMIT = 1024 * MIB
HIGH_MARK = MEMORY_LIMIT * 70 // 100  # the default of memory.high_watermark
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class FloodBroker(QueueBroker):
    """With a port for each protocol. `port` is that of AMQP."""

    mqtt_port = 0

    def resident_bytes(self) -> int:
        total = 0
        for pid in self.pids():
            try:
                total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
            except OSError:
                continue  # it has ended
        return total


class FloodMillstream(AmqpMillstream, FloodBroker):
    topics = ("$queue/#", "flood/#")

    def settings(self) -> dict[str, str]:
        return super().settings() | {"memory.limit": str(MEMORY_LIMIT)}

    def is_ready(self) -> bool:
        if not super().is_ready():
            return False
        self.mqtt_port = read_port(json.loads((self.folder / "ready.json").read_text()), "mqtt")
        return self.mqtt_port > 0


class FloodRabbit(Rabbit, FloodBroker):
    def command(self) -> list[str]:
        command = super().command()
        self.mqtt_port = find_free_port()
        with (self.folder / "rabbitmq.conf").open("a") as config:
            config.write(f"mqtt.listeners.tcp.1 = 127.0.0.1:{self.mqtt_port}\nmqtt.allow_anonymous = true\n")
        (self.folder / "enabled_plugins").write_text("[rabbitmq_mqtt].\n")
        return command

    def is_ready(self) -> bool:
        return super().is_ready() and is_served(lambda: connect_mqtt(self.mqtt_port, "ready"))


KINDS: dict[str, type[FloodBroker]] = {kind.name: kind for kind in (FloodMillstream, FloodRabbit)}
