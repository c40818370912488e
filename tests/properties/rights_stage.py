"""A broker on which rights are tried out: what is asked of it, what came of it, and what the oracle says of both."""

from __future__ import annotations

import random

from amqp091_traffic import publish
from amqp091_world import AmqpPeer
from both_world import BothWorld
from fakes import FakeOutlet, MqttPeer, make_message
from rights_oracle import Oracle, Rule, make_rules, to_document

from millstream.protocols.amqp091.policies import Policy
from millstream.protocols.amqp091.wire.methods import ChannelClose, ChannelCloseOk, Method
from millstream.protocols.amqp091.wire.properties import BasicProperties
from millstream.protocols.mqtt.wire.packets import ConnAck, Connect, Will
from millstream.queues.definition import WORK, Definition
from millstream.queues.queue import Queue
from millstream.routing.subscription import Subscription
from millstream.security.acl import parse_acl

REFUSED = 403


class Stage:
    """A broker with queues, exchanges and somebody who watches; the client that is judged is anonymous."""

    def __init__(self, chance: random.Random, policies: list[Policy] | None = None) -> None:
        self.chance = chance
        self.rules = make_rules(chance)
        self.oracle = Oracle(self.rules)
        self.world = BothWorld(rules=to_document(self.rules), policies=policies)
        self.account = self.world.account
        self.watcher = FakeOutlet()
        self.account.router.subscribe(Subscription(self.watcher, b"#", b"", 2, False, False, 0))
        for name in ("q", "d", "a/b", "$dlq/q"):
            self.account.queues.catalog.declare(name, Definition(WORK))
        self.kind = chance.choice(("direct", "fanout", "topic"))
        self.account.exchanges.declare("x", self.kind, True, False, False, {})
        self.account.exchanges.declare("y", "fanout", True, False, False, {})
        self.cases: list[tuple[str, object, object]] = []
        self._channel = 0
        self._peer: AmqpPeer | None = None

    def case(self, what: str, wanted: object, found: object) -> None:
        self.cases.append((what, wanted, found))

    def change(self, rules: list[Rule] | None = None) -> None:
        """Other rules, from now on."""
        self.rules = make_rules(self.chance) if rules is None else rules
        self.oracle = Oracle(self.rules)
        self.world.authorizer.replace(parse_acl(to_document(self.rules)))
        self.account.on_rights_changed()
        self.world.context.on_rights_changed()
        self.world.settle_down()

    # --- clients

    def amqp(self) -> AmqpPeer:
        if self._peer is None:
            self._peer = self.world.client()
        return self._peer

    def channel(self) -> int:
        self._channel += 1
        self.amqp().open_channel(self._channel)
        return self._channel

    def ask(self, method: Method) -> bool:
        """Whether it is granted; on a channel of its own, because a refusal ends it."""
        number = self.channel()
        return not self.is_refused(self.amqp().say(method, number), number)

    def code(self, method: Method) -> int:
        """With which the channel is closed; 0: it is not."""
        number = self.channel()
        return self.code_of(self.amqp().say(method, number), number)

    def code_of(self, answers: list[Method], number: int) -> int:
        for answer in answers:
            if isinstance(answer, ChannelClose):
                self.amqp().say(ChannelCloseOk(), number)
                return answer.reply_code
        return 0

    def is_refused(self, answers: list[Method], number: int) -> bool:
        return self.code_of(answers, number) == REFUSED

    def send(
        self,
        key: bytes,
        exchange: bytes = b"",
        properties: BasicProperties | None = None,
        refusal: int = REFUSED,
    ) -> bool:
        number = self.channel()
        peer = self.amqp()
        peer.take()
        peer.receive(publish(key, b"x", exchange, properties, number))
        return self.code_of(peer.take(), number) != refusal

    def mqtt(self, version: int, will: Will | None = None) -> tuple[MqttPeer, int]:
        peer = self.world.mqtt_peer(version)
        answer = peer.send(Connect(version, f"c{len(self.account.sessions)}", True, 0, will=will))[0]
        assert isinstance(answer, ConnAck)
        return peer, answer.reason

    # --- what came of it

    def ready(self, name: str) -> int:
        self.world.settle_down()
        found = self.account.queues.catalog.find(name)
        return 0 if found is None else int(found.ready())

    def queue(self, name: str) -> Queue:
        return self.account.queues.catalog.get(name)

    def publish(self, topic: str) -> None:
        self.world.broker.publish_internal(self.account, make_message(topic.encode(), b"x", 1), None)
        self.world.settle_down()

    def publish_to(self, exchange: str, key: bytes, headers: dict[bytes, object] | None = None) -> None:
        """By the operator, so that only what was set up decides."""
        access = self.account.exchanges
        topic = access.topic_of(exchange, key)
        route = access.find_route(exchange, key, topic, headers, "")
        self.world.broker.publishing.publish(self.account, route, make_message(topic, b"x", 1), None)
        self.world.settle_down()

    def watched(self) -> list[str]:
        found = [message.topic.decode() for message in self.watcher.messages]
        self.watcher.messages.clear()
        return found
