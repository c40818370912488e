"""The control packets of MQTT 3.1, 3.1.1 and 5.0, one class each.

The version of a connection is known to whoever decodes or encodes; only CONNECT carries it.
What a version cannot carry has its neutral value: `properties` None, reasons 0.
Topics, filters and property strings are UTF-8 bytes; client id and user name are text.
"""

from __future__ import annotations

from millstream.protocols.mqtt.wire.properties import Properties


class Packet:
    """What all packets share: equality by content and a readable form for tests and logs."""

    __slots__ = ()

    def fields(self) -> tuple[object, ...]:
        return ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Packet) and type(self) is type(other) and self.fields() == other.fields()

    def __repr__(self) -> str:
        return type(self).__name__ + repr(self.fields())


class Will(Packet):
    """The message a server publishes for a client that went away without saying goodbye."""

    __slots__ = ("payload", "properties", "qos", "retain", "topic")

    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = properties

    def fields(self) -> tuple[object, ...]:
        return (self.topic, self.payload, self.qos, self.retain, self.properties)


class Connect(Packet):
    """`version` is 3 (MQTT 3.1), 4 (3.1.1) or 5; `clean_start` is Clean Session before MQTT 5."""

    __slots__ = (
        "clean_start",
        "client_id",
        "keep_alive_s",
        "password",
        "properties",
        "username",
        "version",
        "will",
    )

    def __init__(
        self,
        version: int,
        client_id: str,
        clean_start: bool = True,
        keep_alive_s: int = 0,
        username: str | None = None,
        password: bytes | None = None,
        will: Will | None = None,
        properties: Properties | None = None,
    ) -> None:
        self.version = version
        self.client_id = client_id
        self.clean_start = clean_start
        self.keep_alive_s = keep_alive_s
        self.username = username
        self.password = password
        self.will = will
        self.properties = properties

    def fields(self) -> tuple[object, ...]:
        return (
            self.version,
            self.client_id,
            self.clean_start,
            self.keep_alive_s,
            self.username,
            self.password,
            self.will,
            self.properties,
        )

    def __repr__(self) -> str:
        password = None if self.password is None else "***"
        return f"Connect(version={self.version}, {self.client_id!r}, {self.username!r}, password={password})"


class ConnAck(Packet):
    """`reason` is a return code (0 to 5) before MQTT 5."""

    __slots__ = ("properties", "reason", "session_present")

    def __init__(self, session_present: bool, reason: int, properties: Properties | None = None) -> None:
        self.session_present = session_present
        self.reason = reason
        self.properties = properties

    def fields(self) -> tuple[object, ...]:
        return (self.session_present, self.reason, self.properties)


class Publish(Packet):
    """`packet_id` is 0 exactly when `qos` is 0."""

    __slots__ = ("dup", "packet_id", "payload", "properties", "qos", "retain", "topic")

    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_id: int = 0,
        properties: Properties | None = None,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.dup = dup
        self.packet_id = packet_id
        self.properties = properties

    def fields(self) -> tuple[object, ...]:
        return (
            self.topic,
            self.payload,
            self.qos,
            self.retain,
            self.dup,
            self.packet_id,
            self.properties,
        )


class Answer(Packet):
    """The shape of the four packets that settle a PUBLISH."""

    __slots__ = ("packet_id", "properties", "reason")

    def __init__(self, packet_id: int, reason: int = 0, properties: Properties | None = None) -> None:
        self.packet_id = packet_id
        self.reason = reason
        self.properties = properties

    def fields(self) -> tuple[object, ...]:
        return (self.packet_id, self.reason, self.properties)


class PubAck(Answer):
    __slots__ = ()


class PubRec(Answer):
    __slots__ = ()


class PubRel(Answer):
    __slots__ = ()


class PubComp(Answer):
    __slots__ = ()


class SubscribeEntry(Packet):
    """One filter of a SUBSCRIBE with its options; all but `qos` are MQTT 5."""

    __slots__ = ("filter", "no_local", "qos", "retain_as_published", "retain_handling")

    def __init__(
        self,
        filter: bytes,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
    ) -> None:
        self.filter = filter
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.retain_handling = retain_handling

    def fields(self) -> tuple[object, ...]:
        return (self.filter, self.qos, self.no_local, self.retain_as_published, self.retain_handling)


class Subscribe(Packet):
    __slots__ = ("entries", "packet_id", "properties")

    def __init__(
        self, packet_id: int, entries: list[SubscribeEntry], properties: Properties | None = None
    ) -> None:
        self.packet_id = packet_id
        self.entries = entries
        self.properties = properties

    def fields(self) -> tuple[object, ...]:
        return (self.packet_id, self.entries, self.properties)


class SubAck(Packet):
    """One reason per filter of the SUBSCRIBE, in its order."""

    __slots__ = ("packet_id", "properties", "reasons")

    def __init__(self, packet_id: int, reasons: list[int], properties: Properties | None = None) -> None:
        self.packet_id = packet_id
        self.reasons = reasons
        self.properties = properties

    def fields(self) -> tuple[object, ...]:
        return (self.packet_id, self.reasons, self.properties)


class Unsubscribe(Packet):
    __slots__ = ("filters", "packet_id", "properties")

    def __init__(self, packet_id: int, filters: list[bytes], properties: Properties | None = None) -> None:
        self.packet_id = packet_id
        self.filters = filters
        self.properties = properties

    def fields(self) -> tuple[object, ...]:
        return (self.packet_id, self.filters, self.properties)


class UnsubAck(Packet):
    """One reason per filter of the UNSUBSCRIBE in MQTT 5, none before."""

    __slots__ = ("packet_id", "properties", "reasons")

    def __init__(self, packet_id: int, reasons: list[int], properties: Properties | None = None) -> None:
        self.packet_id = packet_id
        self.reasons = reasons
        self.properties = properties

    def fields(self) -> tuple[object, ...]:
        return (self.packet_id, self.reasons, self.properties)


class PingReq(Packet):
    __slots__ = ()


class PingResp(Packet):
    __slots__ = ()


class Disconnect(Packet):
    __slots__ = ("properties", "reason")

    def __init__(self, reason: int = 0, properties: Properties | None = None) -> None:
        self.reason = reason
        self.properties = properties

    def fields(self) -> tuple[object, ...]:
        return (self.reason, self.properties)


class Auth(Packet):
    """MQTT 5 only."""

    __slots__ = ("properties", "reason")

    def __init__(self, reason: int = 0, properties: Properties | None = None) -> None:
        self.reason = reason
        self.properties = properties

    def fields(self) -> tuple[object, ...]:
        return (self.reason, self.properties)
