"""The two brokers of `bench amqp091`, both spoken to over AMQP 0.9.1."""

from __future__ import annotations

import json

from benchmarks.queue_suite.brokers import QueueBroker, Rabbit, SyncedMillstream
from benchmarks.suite.brokers import read_port


class AmqpMillstream(SyncedMillstream):
    """Access rules, counters and all listeners on; what is durable is synced before it is confirmed."""

    protocol = "amqp"
    topics = ("$queue/#", "bench/#")

    def settings(self) -> dict[str, str]:
        """Without the queue: it is declared by its clients here."""
        return {key: value for key, value in super().settings().items() if not key.startswith("queues.")}

    def is_ready(self) -> bool:
        if not super().is_ready():
            return False
        self.port = read_port(json.loads((self.folder / "ready.json").read_text()), "amqp")
        return self.port > 0


KINDS: dict[str, type[QueueBroker]] = {kind.name: kind for kind in (AmqpMillstream, Rabbit)}
