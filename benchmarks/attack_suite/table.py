"""All attacks: importing the modules enters them into the table."""

from __future__ import annotations

from benchmarks.attack_suite import (
    amqp_consumers,
    amqp_queues,
    amqp_topology,
    doors,
    mqtt_clients,
    mqtt_routing,
)
from benchmarks.attack_suite.attack import ATTACKS, Attack

__all__ = ["ATTACKS", "MODULES", "Attack"]

MODULES = (amqp_queues, amqp_consumers, amqp_topology, mqtt_routing, mqtt_clients, doors)
