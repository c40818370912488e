"""Messages to and from a broker over MQTT, as many as a test of a pipeline needs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from millstream.client.mqtt_client import MqttClient
from millstream.protocols.mqtt.wire.properties import Properties

AT_ONCE = 200
RECEIVE_TIMEOUT_S = 240.0


@dataclass(frozen=True)
class Sent:
    """One message; properties are MQTT user properties."""

    topic: str
    payload: str
    properties: dict[str, str] = field(default_factory=dict)


def publish_all(port: int, messages: Sequence[Sent], client_id: str = "sender") -> None:
    """In this order, over one connection; all are confirmed when it returns."""
    asyncio.run(_publish_all(port, messages, client_id))


async def _publish_all(port: int, messages: Sequence[Sent], client_id: str) -> None:
    client = await MqttClient.connect("127.0.0.1", port, client_id=client_id)
    for first in range(0, len(messages), AT_ONCE):
        block = messages[first : first + AT_ONCE]
        reasons = await asyncio.gather(*(_publish(client, message) for message in block))
        assert max(reasons) < 0x80, "the broker refused a message"
    await client.disconnect()


async def _publish(client: MqttClient, message: Sent) -> int:
    properties = Properties()
    pairs = message.properties.items()
    properties.user_properties.extend((name.encode(), value.encode()) for name, value in pairs)
    return await client.publish(message.topic, message.payload.encode(), qos=1, properties=properties)


def retained(port: int, filter: str, count: int) -> dict[str, bytes]:
    """What is retained under a filter, when there are so many topics of it."""
    return asyncio.run(asyncio.wait_for(_retained(port, filter, count), RECEIVE_TIMEOUT_S))


async def _retained(port: int, filter: str, count: int) -> dict[str, bytes]:
    client = await MqttClient.connect("127.0.0.1", port, client_id="retained")
    await client.subscribe([(filter, 1)])
    found: dict[str, bytes] = {}
    async for message in client.messages():
        assert message.retain
        found[message.topic.decode()] = message.payload
        if len(found) == count:
            break
    await client.disconnect()
    return found
