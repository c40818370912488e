"""SUBSCRIBE and UNSUBSCRIBE: filters checked one by one, answered together, retained messages after the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.broker.conditions import LIMIT_REACHED
from millstream.model.errors import Refused
from millstream.model.queue_topic import is_queue_topic
from millstream.model.topic import find_filter_fault, split_share
from millstream.protocols.mqtt.backlog import Job
from millstream.protocols.mqtt.context import MqttContext
from millstream.protocols.mqtt.mapping import REASON_CODES
from millstream.protocols.mqtt.queueing import make_wish
from millstream.protocols.mqtt.replay import Replay
from millstream.protocols.mqtt.wire import reason_codes as code
from millstream.protocols.mqtt.wire.packets import (
    Packet,
    SubAck,
    Subscribe,
    SubscribeEntry,
    UnsubAck,
    Unsubscribe,
)
from millstream.routing.subscription import Subscription

if TYPE_CHECKING:
    from millstream.protocols.mqtt.endpoint import MqttEndpoint


STEPS_PER_FILTER: Final[i64] = 8
STEPS_PER_REMOVAL: Final[i64] = 4


def subscribe(endpoint: MqttEndpoint, context: MqttContext, packet: Subscribe) -> None:
    endpoint.link.count_filters(len(packet.entries))
    if _end_unanswerable(endpoint, SubAck(packet.packet_id, [0] * len(packet.entries))):
        return
    endpoint.backlog.start(Subscribing(endpoint, context, packet))


def unsubscribe(endpoint: MqttEndpoint, context: MqttContext, packet: Unsubscribe) -> None:
    endpoint.link.count_filters(len(packet.filters))
    if _end_unanswerable(endpoint, UnsubAck(packet.packet_id, [0] * len(packet.filters))):
        return
    endpoint.backlog.start(Unsubscribing(endpoint, context, packet))


@final
class Subscribing(Job):
    """One SUBSCRIBE, filter by filter; answered when all of them have been looked at."""

    def __init__(self, endpoint: MqttEndpoint, context: MqttContext, packet: Subscribe) -> None:
        session = endpoint.session
        assert session is not None
        self._endpoint = endpoint
        self._context = context
        self._session = session
        self._packet = packet
        self._identifier: i64 = 0
        self._reasons: list[int] = []
        self._replays: dict[bytes, Replay] = {}  # a filter that stands there twice is replayed once
        self._is_stored = session.expiry_s != 0
        self._limited = ""  # why a filter was not granted that goes beyond a limit
        self._unreported = ""  # the same, where the operator does not know yet
        properties = packet.properties
        if properties is not None and properties.subscription_identifiers:
            self._identifier = properties.subscription_identifiers[0]

    def run(self) -> bool:
        endpoint = self._endpoint
        entries = self._packet.entries
        at: i64 = len(self._reasons)
        while at < len(entries):
            entry = entries[at]
            if entry.no_local and entry.filter.startswith(b"$share/"):  # [MQTT-3.8.3-4]
                text = "a shared subscription cannot be no-local"
                endpoint.end_with(code.PROTOCOL_ERROR, text)
                return False
            self._reasons.append(self._subscribe_one(entry))
            at += 1
            endpoint.backlog.spend(STEPS_PER_FILTER)
            if at < len(entries) and endpoint.backlog.is_spent():
                return True
        reasons = self._reasons
        if endpoint.machine.version < 5:
            reasons = [reason if reason < 0x80 else 0x80 for reason in reasons]
        answer = SubAck(self._packet.packet_id, reasons)
        if self._limited:
            self._explain(answer)
        endpoint.confirm(answer, list(self._replays.values()), self._is_stored)
        return False

    def _explain(self, answer: SubAck) -> None:
        """A limit was met: said to the client, where there is room for it, and to the operator."""
        endpoint = self._endpoint
        outbound = endpoint.machine.outbound
        if endpoint.machine.version == 5 and outbound.packet_size_max == 0:
            answer.properties = outbound.explain(self._limited)
        endpoint.tell_limited(self._limited)
        if self._unreported:
            client = f"{self._session.key.client_id} at {endpoint.link.address}"
            self._context.broker.health.report(LIMIT_REACHED, f"{client}: {self._unreported}")

    def _subscribe_one(self, entry: SubscribeEntry) -> int:
        """The reason code for one filter; what is retained for it is replayed later."""
        context = self._context
        session = self._session
        limits = context.limits
        broker = context.broker
        share = split_share(entry.filter)
        group, filter = (b"", entry.filter) if share is None else share
        if share is not None and not group:
            return code.TOPIC_FILTER_INVALID
        if find_filter_fault(filter, limits.topic_length_max, limits.topic_levels_max) is not None:
            return code.TOPIC_FILTER_INVALID
        if not self._endpoint.rates.take_filter(broker.clock.now_ns):
            session.account.counters.subscribes_limited += 1
            self._limited = f"subscribe rate reached (ratelimit.subscribe.rate = {limits.subscribe_rate:g})"
            return code.QUOTA_EXCEEDED
        if not broker.authorizer.can_subscribe(session.principal, session.key.client_id, filter):
            session.account.counters.subscribes_denied += 1
            context.observer.denied(session.key.client_id, session.principal.name, "subscribe", entry.filter)
            return code.NOT_AUTHORIZED
        guarantee = min(entry.qos, limits.guarantee_max)
        if guarantee == 2 and limits.downgrade_qos2_subscribe:
            guarantee = 1
        is_queue = is_queue_topic(filter)
        if is_queue:
            self._is_stored = True
            if guarantee == 2:
                guarantee = 1  # a queue settles what it hands out; exactly once is its group's business
        subscription = Subscription(
            session, filter, group, guarantee, entry.no_local, entry.retain_as_published, self._identifier
        )
        try:
            if is_queue:
                self._consume(subscription, group, guarantee)
                return guarantee
            existed = broker.subscribe(session, subscription)
        except Refused as refused:
            reason = REASON_CODES[refused.reason]
            if reason == code.QUOTA_EXCEEDED:
                session.account.counters.subscribes_limited += 1
                self._limited = refused.text
                if not refused.is_reported:
                    self._unreported = refused.text
            return code.TOPIC_FILTER_INVALID if reason == code.TOPIC_NAME_INVALID else reason
        # [MQTT-3.3.1-9 .. 11]; a shared subscription never gets retained messages
        if not group:
            if entry.retain_handling == 0 or (entry.retain_handling == 1 and not existed):
                if session.account.retained.count:
                    self._replays[filter] = Replay(session, subscription)
            elif filter in self._replays:
                self._replays[filter] = Replay(session, subscription)
        return guarantee

    def _consume(self, subscription: Subscription, group: bytes, guarantee: int) -> None:
        session = self._session
        version = self._endpoint.machine.version
        request = make_wish(
            version, session, group, guarantee, int(self._identifier), self._packet.properties
        )
        self._context.broker.consume(session, subscription, request)


@final
class Unsubscribing(Job):
    def __init__(self, endpoint: MqttEndpoint, context: MqttContext, packet: Unsubscribe) -> None:
        session = endpoint.session
        assert session is not None
        self._endpoint = endpoint
        self._context = context
        self._session = session
        self._packet = packet
        self._reasons: list[int] = []

    def run(self) -> bool:
        endpoint = self._endpoint
        filters = self._packet.filters
        limits = self._context.limits
        at: i64 = len(self._reasons)
        while at < len(filters):
            name = filters[at]
            share = split_share(name)
            filter = name if share is None else share[1]
            if find_filter_fault(filter, limits.topic_length_max, limits.topic_levels_max) is not None:
                self._reasons.append(code.TOPIC_FILTER_INVALID)
            elif self._context.broker.unsubscribe(self._session, name):
                endpoint.drop_replay(name)
                self._reasons.append(code.SUCCESS)
            else:
                self._reasons.append(code.NO_SUBSCRIPTION_EXISTED)
            at += 1
            endpoint.backlog.spend(STEPS_PER_REMOVAL)
            if at < len(filters) and endpoint.backlog.is_spent():
                return True
        answer = UnsubAck(self._packet.packet_id, self._reasons)
        endpoint.confirm(answer, [], self._session.expiry_s != 0)
        return False


def _end_unanswerable(endpoint: MqttEndpoint, answer: Packet) -> bool:
    """One that asks for more than its own limit lets us answer [MQTT-3.1.2-24, MQTT-3.8.4-1, MQTT-3.10.4-4]."""
    outbound = endpoint.machine.outbound
    if outbound.packet_size_max == 0 or outbound.encode(answer):
        return False
    text = "the answer would be larger than the client takes"
    endpoint.end_with(code.PACKET_TOO_LARGE, text)
    return True
