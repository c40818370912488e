"""All attacks: importing the modules enters them into the table."""

from __future__ import annotations

from benchmarks.attack_suite import amqp_queues, mqtt_routing
from benchmarks.attack_suite.attack import ATTACKS, Attack

__all__ = ["ATTACKS", "MODULES", "Attack"]

MODULES = (amqp_queues, mqtt_routing)
