"""aiomqtt: paho's codec under an asyncio face."""

from __future__ import annotations

import asyncio
import logging

import aiomqtt
from aiomqtt.exceptions import MqttConnectError
from foreign_client import TIMEOUT_S, Address, ForeignClient, Inbox, Options, Properties, RefusedError
from loop_thread import run_in_loop
from paho.mqtt.client import MQTT_CLEAN_START_FIRST_ONLY
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions
from paho_client import connect_properties, cut_socket, publish_properties, received_from

# aiomqtt gives paho's reason for a refused CONNECT, in words of MQTT 5 also for MQTT 3.1.1.
CODES_OF_3_1_1 = {0x86: 4, 0x87: 5, 0x85: 2, 0x88: 3}


class _PingWatch(logging.Handler):
    def __init__(self, inbox: Inbox) -> None:
        super().__init__()
        self._inbox = inbox

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("Received PINGRESP"):
            self._inbox.on_ping_answered()


class AiomqttClient(ForeignClient):
    name = "aiomqtt"

    def __init__(self, address: Address, options: Options) -> None:
        super().__init__(address, options)
        self._client: aiomqtt.Client | None = None
        self._reader: asyncio.Task[None] | None = None
        self._logger = logging.Logger(f"aiomqtt.{options.client_id}", logging.DEBUG)
        self._logger.addHandler(_PingWatch(self.inbox))

    def _open(self) -> None:
        run_in_loop(self._connect())

    async def _connect(self) -> None:
        options, is_5 = self.options, self.options.version == 5
        will = None
        if options.will is not None:
            properties = publish_properties(options.will.properties, PacketTypes.WILLMESSAGE)
            will = aiomqtt.Will(
                options.will.topic,
                options.will.payload,
                options.will.qos,
                options.will.retain,
                properties if is_5 else None,
            )
        self._client = aiomqtt.Client(
            self.address.host,
            self.address.port,
            username=options.username,
            password=options.password,
            logger=self._logger,
            identifier=options.client_id,
            protocol=aiomqtt.ProtocolVersion(options.version),
            will=will,
            clean_session=None if is_5 else options.clean,
            clean_start=options.clean if is_5 else MQTT_CLEAN_START_FIRST_ONLY,
            transport="websockets" if self.address.is_websocket else "tcp",
            websocket_path=self.address.path if self.address.is_websocket else None,
            timeout=TIMEOUT_S,
            keepalive=options.keep_alive_s,
            properties=connect_properties(options),
            tls_context=self.address.tls_context(options.certificate),
        )
        try:
            await self._client.__aenter__()
        except MqttConnectError as refusal:
            code = refusal.rc.value if isinstance(refusal.rc, ReasonCode) else int(refusal.rc or 0)
            raise RefusedError(code if is_5 else CODES_OF_3_1_1[code]) from None
        self._reader = asyncio.create_task(self._read(self._client))

    async def _read(self, client: aiomqtt.Client) -> None:
        try:
            async for message in client.messages:
                self.inbox.put(received_from(message))
        except aiomqtt.MqttError as lost:
            cause = lost.__cause__
            has_reason = self.options.version == 5  # for MQTT 3.1.1 paho makes one up
            if has_reason and isinstance(cause, aiomqtt.MqttCodeError) and isinstance(cause.rc, ReasonCode):
                self.inbox.on_disconnect_code(cause.rc.value)
        finally:
            self.inbox.on_closed()

    def subscribe(
        self,
        filter: str,
        qos: int = 0,
        *,
        identifier: int | None = None,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
    ) -> int:
        assert self._client is not None
        if self.options.version != 5:
            granted = run_in_loop(self._client.subscribe(filter, qos))
        else:
            properties = PahoProperties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
            if identifier is not None:
                properties.SubscriptionIdentifier = identifier
            options = SubscribeOptions(qos, no_local, retain_as_published, retain_handling)
            granted = run_in_loop(self._client.subscribe(filter, options=options, properties=properties))
        return granted[0].value if isinstance(granted[0], ReasonCode) else granted[0]

    def unsubscribe(self, filter: str) -> None:
        assert self._client is not None
        run_in_loop(self._client.unsubscribe(filter))

    def publish_all(
        self, topic: str, payloads: list[bytes], qos: int, *, retain: bool, properties: Properties | None
    ) -> list[int | None]:
        made = publish_properties(properties, PacketTypes.PUBLISH)
        run_in_loop(self._publish_all(topic, payloads, qos, retain, made))
        return [None] * len(payloads)

    async def _publish_all(
        self, topic: str, payloads: list[bytes], qos: int, retain: bool, properties: PahoProperties | None
    ) -> None:
        assert self._client is not None
        client = self._client
        await asyncio.gather(
            *(client.publish(topic, payload, qos, retain, properties) for payload in payloads)
        )

    def disconnect(self) -> None:
        run_in_loop(self._leave())

    def cut(self) -> None:
        assert self._client is not None
        cut_socket(self._client._client)
        self.inbox.wait_closed()
        run_in_loop(self._leave())

    async def _leave(self) -> None:
        assert self._client is not None
        assert self._reader is not None
        try:
            await self._client.__aexit__(None, None, None)
        except aiomqtt.MqttError:
            pass  # it was cut
        await asyncio.wait_for(self._reader, TIMEOUT_S)
