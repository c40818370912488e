"""What all MQTT endpoints of a broker share."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from millstream.broker.broker import Broker
from millstream.broker.observer import Observer
from millstream.model.outbox import OutboxPool
from millstream.protocols.endpoint import Entropy
from millstream.protocols.mqtt.machine.terms import Terms
from millstream.security.authentication import Authenticator


@final
class RouteCount:
    """How many routes all connections remember."""

    def __init__(self) -> None:
        self.count: i64 = 0


@final
class MqttContext:
    def __init__(
        self,
        broker: Broker,
        authenticator: Authenticator,
        pool: OutboxPool,
        observer: Observer,
        entropy: Entropy,
        scram_key: bytes,
        server_reference: str,
    ) -> None:
        self.broker = broker
        self.limits = broker.limits
        self.authenticator = authenticator
        self.pool = pool
        self.route_count = RouteCount()
        self.terms = Terms(broker.limits, pool)
        self.observer = observer
        self.entropy = entropy
        self.scram_key = scram_key
        self.server_reference = server_reference.encode()
