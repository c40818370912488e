"""A broker inside a program: start it, publish, receive, stop it. For tests and for tools that need one of their own.

Run it with: python examples/embed.py
"""

from __future__ import annotations

import asyncio

from millstream.app.server import Millstream
from millstream.client.mqtt_client import MqttClient
from millstream.config.load import config_of

# Port 0 lets the system choose; the keys are those of the configuration file.
CONFIG = config_of(
    {
        "mqtt": {"port": 0},
        "websocket": {"enabled": False},
        "amqp": {"enabled": False},
        "storage": {"durability": "memory"},
    }
)


async def main() -> None:
    async with Millstream(CONFIG) as millstream:
        host, port = millstream.addresses["mqtt"]

        subscriber = await MqttClient.connect(host, port, client_id="reader")
        await subscriber.subscribe([("plant/#", 1)])

        publisher = await MqttClient.connect(host, port, client_id="sensor-7")
        await publisher.publish("plant/hall1/temperature", b"21.5", qos=1)  # returns when it is confirmed

        async for message in subscriber.messages():
            print(message.topic.decode(), message.payload.decode())
            break

        await publisher.disconnect()
        await subscriber.disconnect()


if __name__ == "__main__":
    asyncio.run(main())
