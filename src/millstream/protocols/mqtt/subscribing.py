"""SUBSCRIBE and UNSUBSCRIBE: filters checked one by one, answered together, retained messages after the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.broker.session import Session
from millstream.model.errors import Refused
from millstream.model.queue_topic import is_queue_topic
from millstream.model.topic import find_filter_fault, split_share
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
from millstream.protocols.mqtt.wire.properties import Properties
from millstream.routing.subscription import Subscription
from millstream.security.rate import Bucket

if TYPE_CHECKING:
    from millstream.protocols.mqtt.endpoint import MqttEndpoint


def subscribe(endpoint: MqttEndpoint, context: MqttContext, packet: Subscribe) -> None:
    session = endpoint.session
    assert session is not None
    if len(packet.entries) > context.limits.filters_per_subscribe_max:
        text = "the packet holds more filters than the broker takes at once"
        endpoint.end_with(code.QUOTA_EXCEEDED, text)
        return
    if _end_unanswerable(endpoint, SubAck(packet.packet_id, [0] * len(packet.entries))):
        return
    identifier = 0
    properties = packet.properties
    if properties is not None and properties.subscription_identifiers:
        identifier = properties.subscription_identifiers[0]
    reasons: list[int] = []
    replays: list[Replay] = []
    for entry in packet.entries:
        if entry.no_local and entry.filter.startswith(b"$share/"):  # [MQTT-3.8.3-4]
            text = "a shared subscription cannot be no-local"
            endpoint.end_with(code.PROTOCOL_ERROR, text)
            return
        reasons.append(_subscribe_one(endpoint, context, session, entry, identifier, properties, replays))
    if endpoint.machine.version < 5:
        reasons = [reason if reason < 0x80 else 0x80 for reason in reasons]
    is_stored = session.expiry_s != 0 or any(is_queue_topic(entry.filter) for entry in packet.entries)
    endpoint.confirm(SubAck(packet.packet_id, reasons), replays, is_stored)


def _subscribe_one(
    endpoint: MqttEndpoint,
    context: MqttContext,
    session: Session,
    entry: SubscribeEntry,
    identifier: int,
    properties: Properties | None,
    replays: list[Replay],
) -> int:
    """The reason code for one filter; what is retained for it is added to `replays`."""
    limits = context.limits
    broker = context.broker
    share = split_share(entry.filter)
    group, filter = (b"", entry.filter) if share is None else share
    if share is not None and not group:
        return code.TOPIC_FILTER_INVALID
    if find_filter_fault(filter, limits.topic_length_max, limits.topic_levels_max) is not None:
        return code.TOPIC_FILTER_INVALID
    if not endpoint.take_subscribe_token():
        return code.QUOTA_EXCEEDED
    if not broker.authorizer.can_subscribe(session.principal, session.key.client_id, filter):
        session.account.counters.subscribes_denied += 1
        context.observer.denied(session.key.client_id, session.principal.name, "subscribe", entry.filter)
        return code.NOT_AUTHORIZED
    guarantee = min(entry.qos, limits.guarantee_max)
    if guarantee == 2 and limits.downgrade_qos2_subscribe:
        guarantee = 1
    is_queue = is_queue_topic(filter)
    if is_queue and guarantee == 2:
        guarantee = 1  # a queue settles what it hands out; exactly once is its group's business
    subscription = Subscription(
        session, filter, group, guarantee, entry.no_local, entry.retain_as_published, identifier
    )
    try:
        if is_queue:
            wish = make_wish(endpoint.machine.version, session, group, guarantee, identifier, properties)
            broker.consume(session, subscription, wish)
            return guarantee
        existed = broker.subscribe(session, subscription)
    except Refused as refused:
        reason = REASON_CODES[refused.reason]
        return code.TOPIC_FILTER_INVALID if reason == code.TOPIC_NAME_INVALID else reason
    # [MQTT-3.3.1-9 .. 11]; a shared subscription never gets retained messages
    if not group and (entry.retain_handling == 0 or (entry.retain_handling == 1 and not existed)):
        messages = session.account.retained.match(filter, broker.clock.now_ns)
        if messages:
            replays.append(Replay(messages, subscription))
    return guarantee


def unsubscribe(endpoint: MqttEndpoint, context: MqttContext, packet: Unsubscribe) -> None:
    session = endpoint.session
    assert session is not None
    limits = context.limits
    if len(packet.filters) > limits.filters_per_subscribe_max:
        text = "the packet holds more filters than the broker takes at once"
        endpoint.end_with(code.QUOTA_EXCEEDED, text)
        return
    if _end_unanswerable(endpoint, UnsubAck(packet.packet_id, [0] * len(packet.filters))):
        return
    reasons: list[int] = []
    for name in packet.filters:
        share = split_share(name)
        filter = name if share is None else share[1]
        if find_filter_fault(filter, limits.topic_length_max, limits.topic_levels_max) is not None:
            reasons.append(code.TOPIC_FILTER_INVALID)
        elif context.broker.unsubscribe(session, name):
            reasons.append(code.SUCCESS)
        else:
            reasons.append(code.NO_SUBSCRIPTION_EXISTED)
    endpoint.confirm(UnsubAck(packet.packet_id, reasons), [], session.expiry_s != 0)


def make_subscribe_bucket(context: MqttContext) -> Bucket | None:
    limits = context.limits
    return Bucket(limits.subscribe_rate, limits.subscribe_burst) if limits.subscribe_rate > 0 else None


def _end_unanswerable(endpoint: MqttEndpoint, answer: Packet) -> bool:
    """One that asks for more than its own limit lets us answer [MQTT-3.1.2-24, MQTT-3.8.4-1, MQTT-3.10.4-4]."""
    outbound = endpoint.machine.outbound
    if outbound.packet_size_max == 0 or outbound.encode(answer):
        return False
    text = "the answer would be larger than the client takes"
    endpoint.end_with(code.PACKET_TOO_LARGE, text)
    return True
