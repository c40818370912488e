"""Eclipse paho-mqtt, with its own network thread."""

from __future__ import annotations

import socket
import threading
from typing import Any

from foreign_client import TIMEOUT_S, Address, ForeignClient, Options, Properties, Received, RefusedError
from paho.mqtt.client import MQTT_CLEAN_START_FIRST_ONLY, Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions


def publish_properties(properties: Properties | None, packet_type: int) -> PahoProperties | None:
    if properties is None:
        return None
    made = PahoProperties(packet_type)  # type: ignore[no-untyped-call]
    for name, value in (
        ("ContentType", properties.content_type),
        ("ResponseTopic", properties.response_topic),
        ("CorrelationData", properties.correlation_data),
        ("MessageExpiryInterval", properties.expiry_s),
        ("PayloadFormatIndicator", None if properties.is_text is None else int(properties.is_text)),
        ("TopicAlias", properties.topic_alias),
        ("UserProperty", list(properties.user) or None),
    ):
        if value is not None:
            setattr(made, name, value)
    return made


def connect_properties(options: Options) -> PahoProperties | None:
    if options.version != 5:
        return None
    made = PahoProperties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    if options.session_expiry_s is not None:
        made.SessionExpiryInterval = options.session_expiry_s
    return made


def received_from(message: Any) -> Received:
    """From paho's message, or from aiomqtt's, which has the same parts."""
    found = message.properties
    text = getattr(found, "PayloadFormatIndicator", None)
    return Received(
        str(message.topic),
        bytes(message.payload),
        message.qos,
        bool(message.retain),
        Properties(
            content_type=getattr(found, "ContentType", None),
            response_topic=getattr(found, "ResponseTopic", None),
            correlation_data=getattr(found, "CorrelationData", None),
            expiry_s=getattr(found, "MessageExpiryInterval", None),
            is_text=None if text is None else bool(text),
            user=tuple(getattr(found, "UserProperty", ())),
            subscription_ids=tuple(getattr(found, "SubscriptionIdentifier", ())),
        ),
    )


def cut_socket(client: Client) -> None:
    found = client.socket()
    raw = getattr(found, "_socket", found)  # a WebSocket wraps the real one
    assert isinstance(raw, socket.socket)
    raw.shutdown(socket.SHUT_RDWR)


class PahoClient(ForeignClient):
    name = "paho"
    shows_publish_reason = True

    def __init__(self, address: Address, options: Options) -> None:
        super().__init__(address, options)
        self._client = Client(
            CallbackAPIVersion.VERSION2,
            options.client_id,
            clean_session=options.clean if options.version == 4 else None,
            protocol=MQTTProtocolVersion(options.version),
            transport="websockets" if address.is_websocket else "tcp",
            reconnect_on_failure=False,
        )
        if address.is_websocket:
            self._client.ws_set_options(path=address.path)
        context = address.tls_context(options.certificate)
        if context is not None:
            self._client.tls_set_context(context)
        if options.username is not None:
            self._client.username_pw_set(options.username, options.password)
        if options.will is not None:
            will = options.will
            properties = publish_properties(will.properties, PacketTypes.WILLMESSAGE)
            self._client.will_set(
                will.topic, will.payload, will.qos, will.retain, properties if options.version == 5 else None
            )
        self._answered = threading.Condition()
        self._connack: tuple[bool, int] | None = None
        self._subacks: dict[int, int] = {}
        self._unsubacks: set[int] = set()
        self._publish_codes: dict[int, int] = {}
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = self._on_disconnect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_unsubscribe = self._on_unsubscribe
        self._client.on_publish = self._on_publish
        self._client.on_message = self._on_message
        self._client.on_log = self._on_log

    def _open(self) -> bool:
        self._client.connect(
            self.address.host,
            self.address.port,
            self.options.keep_alive_s,
            clean_start=self.options.clean if self.options.version == 5 else MQTT_CLEAN_START_FIRST_ONLY,
            properties=connect_properties(self.options),
        )
        self._client.loop_start()
        with self._answered:
            done = self._answered.wait_for(
                lambda: self._connack is not None or self.inbox.is_closed, TIMEOUT_S
            )
        if self._connack is None:
            self._client.loop_stop()
            raise ConnectionError("closed before CONNACK" if done else "no CONNACK came")
        session_present, code = self._connack
        if code:
            self._client.loop_stop()
            raise RefusedError(code)
        return session_present

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
        if self.options.version == 5:
            options = SubscribeOptions(qos, no_local, retain_as_published, retain_handling)
            properties = PahoProperties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
            if identifier is not None:
                properties.SubscriptionIdentifier = identifier
            _, packet_id = self._client.subscribe(filter, options=options, properties=properties)
        else:
            _, packet_id = self._client.subscribe(filter, qos)
        assert packet_id is not None
        with self._answered:
            assert self._answered.wait_for(lambda: packet_id in self._subacks, TIMEOUT_S), "no SUBACK came"
            return self._subacks[packet_id]

    def unsubscribe(self, filter: str) -> None:
        _, packet_id = self._client.unsubscribe(filter)
        assert packet_id is not None
        with self._answered:
            assert self._answered.wait_for(lambda: packet_id in self._unsubacks, TIMEOUT_S), (
                "no UNSUBACK came"
            )

    def publish_all(
        self, topic: str, payloads: list[bytes], qos: int, *, retain: bool, properties: Properties | None
    ) -> list[int | None]:
        made = publish_properties(properties, PacketTypes.PUBLISH)
        sent = [self._client.publish(topic, payload, qos, retain, made) for payload in payloads]
        with self._answered:
            done = self._answered.wait_for(
                lambda: all(one.mid in self._publish_codes for one in sent), TIMEOUT_S
            )
            assert done, "not all publishes were confirmed"
            return [self._publish_codes.pop(one.mid) for one in sent]

    def disconnect(self) -> None:
        self._client.disconnect()
        self.inbox.wait_closed()
        self._client.loop_stop()

    def cut(self) -> None:
        cut_socket(self._client)
        self.inbox.wait_closed()
        self._client.loop_stop()

    def fall_silent(self) -> None:
        """Keep the connection open and send nothing on it any more, no PINGREQ either."""
        self._client.loop_stop()

    def _on_connect(
        self, client: Client, data: Any, flags: ConnectFlags, reason: ReasonCode, properties: Any
    ) -> None:
        code = reason.value
        if self.options.version == 4 and code:  # paho shows the codes of MQTT 3.1.1 as those of MQTT 5
            code = {0x86: 4, 0x87: 5, 0x85: 2, 0x88: 3}[code]
        with self._answered:
            self._connack = (flags.session_present, code)
            self._answered.notify_all()

    def _on_disconnect(
        self, client: Client, data: Any, flags: DisconnectFlags, reason: ReasonCode, properties: Any
    ) -> None:
        if flags.is_disconnect_packet_from_server:
            self.inbox.on_disconnect_code(reason.value)
        with self._answered:
            self.inbox.on_closed()
            self._answered.notify_all()

    def _on_subscribe(
        self, client: Client, data: Any, packet_id: int, reasons: list[ReasonCode], properties: Any
    ) -> None:
        with self._answered:
            self._subacks[packet_id] = reasons[0].value
            self._answered.notify_all()

    def _on_unsubscribe(
        self, client: Client, data: Any, packet_id: int, reasons: list[ReasonCode], properties: Any
    ) -> None:
        with self._answered:
            self._unsubacks.add(packet_id)
            self._answered.notify_all()

    def _on_publish(
        self, client: Client, data: Any, packet_id: int, reason: ReasonCode, properties: Any
    ) -> None:
        with self._answered:
            self._publish_codes[packet_id] = reason.value
            self._answered.notify_all()

    def _on_message(self, client: Client, data: Any, message: MQTTMessage) -> None:
        self.inbox.put(received_from(message))

    def _on_log(self, client: Client, data: Any, level: int, text: str) -> None:
        if text.startswith("Received PINGRESP"):
            self.inbox.on_ping_answered()
