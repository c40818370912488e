"""gmqtt: a codec and a client of its own, on asyncio. It has no WebSocket."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Any

import gmqtt
from foreign_client import Address, ForeignClient, Inbox, Options, Properties, Received, RefusedError
from gmqtt.mqtt.handler import MQTTConnectError
from gmqtt.storage import PersistentStorage
from loop_thread import run_in_loop

NEVER_RECONNECT = -2  # 0 would still try once


def publish_keywords(properties: Properties | None) -> dict[str, Any]:
    if properties is None:
        return {}
    made = {
        "content_type": properties.content_type,
        "response_topic": properties.response_topic,
        "correlation_data": properties.correlation_data,
        "message_expiry_interval": properties.expiry_s,
        "payload_format_id": None if properties.is_text is None else int(properties.is_text),
        "topic_alias": properties.topic_alias,
        "user_property": list(properties.user) or None,
    }
    return {name: value for name, value in made.items() if value is not None}


def received_from(topic: str, payload: bytes, qos: int, found: dict[str, Any]) -> Received:
    def one(name: str) -> Any:
        return found[name][0] if name in found else None

    text = one("payload_format_id")
    return Received(
        topic,
        bytes(payload),
        qos,
        bool(found["retain"]),
        Properties(
            content_type=one("content_type"),
            response_topic=one("response_topic"),
            correlation_data=one("correlation_data"),
            expiry_s=one("message_expiry_interval"),
            is_text=None if text is None else bool(text),
            user=tuple(found.get("user_property", ())),
            subscription_ids=tuple(found.get("subscription_identifier", ())),
        ),
    )


class _PingWatch(logging.Handler):
    def __init__(self, inbox: Inbox) -> None:
        super().__init__()
        self._inbox = inbox

    def emit(self, record: logging.LogRecord) -> None:
        if "] PINGRESP cmd:" in record.getMessage():
            self._inbox.on_ping_answered()


class GmqttClient(ForeignClient):
    name = "gmqtt"
    transports = ("tcp", "tls")

    def __init__(self, address: Address, options: Options) -> None:
        super().__init__(address, options)
        self._unconfirmed = PersistentStorage()
        self._session_present = False
        self._answers: dict[int, asyncio.Future[int]] = {}
        self._client: gmqtt.Client | None = None

    def _open(self) -> bool:
        run_in_loop(self._connect())
        return self._session_present

    async def _connect(self) -> None:
        options = self.options
        will = None
        if options.will is not None:
            keywords = publish_keywords(options.will.properties) if options.version == 5 else {}
            will = gmqtt.Message(
                options.will.topic, options.will.payload, options.will.qos, options.will.retain, **keywords
            )
        properties: dict[str, Any] = {}
        if options.session_expiry_s is not None:
            properties["session_expiry_interval"] = options.session_expiry_s
        if options.version == 5 and options.topic_alias_max:
            properties["topic_alias_maximum"] = options.topic_alias_max
        logger = logging.Logger(f"gmqtt.{options.client_id}", logging.DEBUG)
        logger.addHandler(_PingWatch(self.inbox))
        self._client = gmqtt.Client(
            options.client_id,
            clean_session=options.clean,
            will_message=will,
            persistent_storage=self._unconfirmed,
            logger=logger,
            **properties,
        )
        self._client.set_config({"reconnect_retries": NEVER_RECONNECT})
        self._client.on_connect = self._on_connect
        self._client.on_message = self._on_message
        self._client.on_disconnect = self._on_disconnect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_unsubscribe = self._on_unsubscribe
        if options.username is not None:
            self._client.set_auth_credentials(options.username, options.password)
        self._lost = asyncio.Event()
        connecting = asyncio.create_task(
            self._client.connect(
                self.address.host,
                self.address.port,
                ssl=self.address.tls_context(options.certificate) or False,
                keepalive=options.keep_alive_s,
                version=options.version,
            )
        )
        losing = asyncio.create_task(self._lost.wait())
        await asyncio.wait((connecting, losing), return_when=asyncio.FIRST_COMPLETED)
        losing.cancel()
        if not connecting.done():  # it would wait for CONNACK for ever
            connecting.cancel()
            raise ConnectionError("closed before CONNACK")
        try:
            connecting.result()
        except MQTTConnectError as refusal:
            raise RefusedError(refusal._code) from None

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
        keywords: dict[str, Any] = {}
        if identifier is not None:
            keywords["subscription_identifier"] = identifier
        if self.options.version == 5:
            keywords["no_local"] = no_local
            keywords["retain_as_published"] = retain_as_published
            keywords["retain_handling_options"] = retain_handling
        return run_in_loop(self._subscribe(filter, qos, keywords))

    async def _subscribe(self, filter: str, qos: int, keywords: dict[str, Any]) -> int:
        assert self._client is not None
        return await self._answer(self._client.subscribe(filter, qos, **keywords))

    def unsubscribe(self, filter: str) -> None:
        run_in_loop(self._unsubscribe(filter))

    async def _unsubscribe(self, filter: str) -> None:
        assert self._client is not None
        await self._answer(self._client.unsubscribe(filter))

    async def _answer(self, packet_id: int) -> int:
        answer = asyncio.get_running_loop().create_future()
        self._answers[packet_id] = answer
        return int(await answer)

    def publish_all(
        self, topic: str, payloads: list[bytes], qos: int, *, retain: bool, properties: Properties | None
    ) -> list[int | None]:
        run_in_loop(self._publish_all(topic, payloads, qos, retain, publish_keywords(properties)))
        return [None] * len(payloads)

    async def _publish_all(
        self, topic: str, payloads: list[bytes], qos: int, retain: bool, keywords: dict[str, Any]
    ) -> None:
        assert self._client is not None
        for payload in payloads:
            self._client.publish(topic, payload, qos, retain, **keywords)
        await self._unconfirmed.wait_empty()

    def disconnect(self) -> None:
        assert self._client is not None
        try:
            run_in_loop(self._client.disconnect())
        except ssl.SSLError:
            pass  # data of the broker crossed the end of the TLS session; gmqtt does not expect that

    def cut(self) -> None:
        run_in_loop(self._cut())
        self.inbox.wait_closed()

    async def _cut(self) -> None:
        assert self._client is not None
        self._client._connection._transport.abort()

    def _on_connect(self, client: gmqtt.Client, flags: int, code: int, properties: dict[str, Any]) -> None:
        self._session_present = bool(flags & 1)

    def _on_message(
        self, client: gmqtt.Client, topic: str, payload: bytes, qos: int, properties: dict[str, Any]
    ) -> int:
        self.inbox.put(received_from(topic, payload, qos, properties))
        return 0

    def _on_disconnect(self, client: gmqtt.Client, packet: object, error: object = None) -> None:
        if isinstance(packet, bytes) and packet:
            self.inbox.on_disconnect_code(packet[0])
        self._lost.set()
        self.inbox.on_closed()

    def _on_subscribe(
        self, client: gmqtt.Client, packet_id: int, granted: tuple[int, ...], properties: dict[str, Any]
    ) -> None:
        self._answers.pop(packet_id).set_result(granted[0])

    def _on_unsubscribe(self, client: gmqtt.Client, packet_id: int, *rest: object) -> None:
        self._answers.pop(packet_id).set_result(0)
