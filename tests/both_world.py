"""One broker with both protocols on fake links: packets and frames in, packets and frames out."""

from __future__ import annotations

from amqp091_world import AmqpWorld
from fakes import CountingEntropy, MqttPeer

from millstream.protocols.amqp091.policies import Policy
from millstream.protocols.mqtt.context import MqttContext
from millstream.security.users import UserTable
from millstream.storage.store import Store


class BothWorld(AmqpWorld):
    def __init__(
        self,
        store: Store | None = None,
        rules: object = None,
        users: UserTable | None = None,
        policies: list[Policy] | None = None,
    ) -> None:
        super().__init__(None, store, rules, users=users, policies=policies)
        self.mqtt_context = MqttContext(
            self.broker, self.authenticator, self.pool, self.observer, CountingEntropy(), b"s" * 32, ""
        )

    def mqtt_peer(self, version: int = 5) -> MqttPeer:
        return MqttPeer(self, self.mqtt_context, version, "192.0.2.1")
