"""The methods of the classes connection, channel and access: a conversation's beginning, its channels and its end.

In close, the class and method that failed are `failed_class_id` and `failed_method_id`: `class_id` and `method_id`
are those of the method itself.
"""

from __future__ import annotations

from typing import ClassVar, Final, final

from millstream.protocols.amqp091.wire.field_table import FieldTable
from millstream.protocols.amqp091.wire.method import (
    BIT,
    LONG,
    LONG_STRING,
    OCTET,
    RESERVED_BIT,
    RESERVED_LONG_STRING,
    RESERVED_SHORT_STRING,
    SHORT,
    SHORT_STRING,
    TABLE,
    Method,
)


@final
class ConnectionStart(Method):
    class_id: ClassVar[int] = 10
    method_id: ClassVar[int] = 10
    layout: ClassVar[tuple[int, ...]] = (OCTET, OCTET, TABLE, LONG_STRING, LONG_STRING)

    def __init__(
        self,
        version_major: int,
        version_minor: int,
        server_properties: FieldTable,
        mechanisms: bytes,
        locales: bytes,
    ) -> None:
        self.version_major = version_major
        self.version_minor = version_minor
        self.server_properties = server_properties
        self.mechanisms = mechanisms
        self.locales = locales

    def fields(self) -> tuple[object, ...]:
        return (self.version_major, self.version_minor, self.server_properties, self.mechanisms, self.locales)


@final
class ConnectionStartOk(Method):
    class_id: ClassVar[int] = 10
    method_id: ClassVar[int] = 11
    layout: ClassVar[tuple[int, ...]] = (TABLE, SHORT_STRING, LONG_STRING, SHORT_STRING)

    def __init__(
        self, client_properties: FieldTable, mechanism: bytes, response: bytes, locale: bytes
    ) -> None:
        self.client_properties = client_properties
        self.mechanism = mechanism
        self.response = response
        self.locale = locale

    def fields(self) -> tuple[object, ...]:
        return (self.client_properties, self.mechanism, self.response, self.locale)

    def __repr__(self) -> str:
        return f"ConnectionStartOk({self.client_properties!r}, {self.mechanism!r}, ***, {self.locale!r})"


@final
class ConnectionSecure(Method):
    class_id: ClassVar[int] = 10
    method_id: ClassVar[int] = 20
    layout: ClassVar[tuple[int, ...]] = (LONG_STRING,)

    def __init__(self, challenge: bytes) -> None:
        self.challenge = challenge

    def fields(self) -> tuple[object, ...]:
        return (self.challenge,)


@final
class ConnectionSecureOk(Method):
    class_id: ClassVar[int] = 10
    method_id: ClassVar[int] = 21
    layout: ClassVar[tuple[int, ...]] = (LONG_STRING,)

    def __init__(self, response: bytes) -> None:
        self.response = response

    def fields(self) -> tuple[object, ...]:
        return (self.response,)

    def __repr__(self) -> str:
        return "ConnectionSecureOk(***)"


@final
class ConnectionTune(Method):
    """`heartbeat` is in seconds, 0 for none; 0 means no limit for the other two."""

    class_id: ClassVar[int] = 10
    method_id: ClassVar[int] = 30
    layout: ClassVar[tuple[int, ...]] = (SHORT, LONG, SHORT)

    def __init__(self, channel_max: int, frame_max: int, heartbeat: int) -> None:
        self.channel_max = channel_max
        self.frame_max = frame_max
        self.heartbeat = heartbeat

    def fields(self) -> tuple[object, ...]:
        return (self.channel_max, self.frame_max, self.heartbeat)


@final
class ConnectionTuneOk(Method):
    class_id: ClassVar[int] = 10
    method_id: ClassVar[int] = 31
    layout: ClassVar[tuple[int, ...]] = (SHORT, LONG, SHORT)

    def __init__(self, channel_max: int, frame_max: int, heartbeat: int) -> None:
        self.channel_max = channel_max
        self.frame_max = frame_max
        self.heartbeat = heartbeat

    def fields(self) -> tuple[object, ...]:
        return (self.channel_max, self.frame_max, self.heartbeat)


@final
class ConnectionOpen(Method):
    class_id: ClassVar[int] = 10
    method_id: ClassVar[int] = 40
    layout: ClassVar[tuple[int, ...]] = (SHORT_STRING, RESERVED_SHORT_STRING, RESERVED_BIT)

    def __init__(self, virtual_host: bytes) -> None:
        self.virtual_host = virtual_host

    def fields(self) -> tuple[object, ...]:
        return (self.virtual_host,)


@final
class ConnectionOpenOk(Method):
    class_id: ClassVar[int] = 10
    method_id: ClassVar[int] = 41
    layout: ClassVar[tuple[int, ...]] = (RESERVED_SHORT_STRING,)


@final
class ConnectionClose(Method):
    class_id: ClassVar[int] = 10
    method_id: ClassVar[int] = 50
    layout: ClassVar[tuple[int, ...]] = (SHORT, SHORT_STRING, SHORT, SHORT)

    def __init__(
        self, reply_code: int, reply_text: bytes, failed_class_id: int, failed_method_id: int
    ) -> None:
        self.reply_code = reply_code
        self.reply_text = reply_text
        self.failed_class_id = failed_class_id
        self.failed_method_id = failed_method_id

    def fields(self) -> tuple[object, ...]:
        return (self.reply_code, self.reply_text, self.failed_class_id, self.failed_method_id)


@final
class ConnectionCloseOk(Method):
    class_id: ClassVar[int] = 10
    method_id: ClassVar[int] = 51


@final
class ConnectionBlocked(Method):
    """The server has no room and stops reading from publishers [RabbitMQ]."""

    class_id: ClassVar[int] = 10
    method_id: ClassVar[int] = 60
    layout: ClassVar[tuple[int, ...]] = (SHORT_STRING,)

    def __init__(self, reason: bytes) -> None:
        self.reason = reason

    def fields(self) -> tuple[object, ...]:
        return (self.reason,)


@final
class ConnectionUnblocked(Method):
    class_id: ClassVar[int] = 10
    method_id: ClassVar[int] = 61


@final
class ConnectionUpdateSecret(Method):
    """RabbitMQ's extension: a fresh token for a connection that lives longer than the old one."""

    class_id: ClassVar[int] = 10
    method_id: ClassVar[int] = 70
    layout: ClassVar[tuple[int, ...]] = (LONG_STRING, SHORT_STRING)

    def __init__(self, new_secret: bytes, reason: bytes) -> None:
        self.new_secret = new_secret
        self.reason = reason

    def fields(self) -> tuple[object, ...]:
        return (self.new_secret, self.reason)

    def __repr__(self) -> str:
        return f"ConnectionUpdateSecret(***, {self.reason!r})"


@final
class ConnectionUpdateSecretOk(Method):
    class_id: ClassVar[int] = 10
    method_id: ClassVar[int] = 71


@final
class ChannelOpen(Method):
    class_id: ClassVar[int] = 20
    method_id: ClassVar[int] = 10
    layout: ClassVar[tuple[int, ...]] = (RESERVED_SHORT_STRING,)


@final
class ChannelOpenOk(Method):
    class_id: ClassVar[int] = 20
    method_id: ClassVar[int] = 11
    layout: ClassVar[tuple[int, ...]] = (RESERVED_LONG_STRING,)


@final
class ChannelFlow(Method):
    class_id: ClassVar[int] = 20
    method_id: ClassVar[int] = 20
    layout: ClassVar[tuple[int, ...]] = (BIT,)

    def __init__(self, active: bool) -> None:
        self.active = active

    def fields(self) -> tuple[object, ...]:
        return (self.active,)


@final
class ChannelFlowOk(Method):
    class_id: ClassVar[int] = 20
    method_id: ClassVar[int] = 21
    layout: ClassVar[tuple[int, ...]] = (BIT,)

    def __init__(self, active: bool) -> None:
        self.active = active

    def fields(self) -> tuple[object, ...]:
        return (self.active,)


@final
class ChannelClose(Method):
    class_id: ClassVar[int] = 20
    method_id: ClassVar[int] = 40
    layout: ClassVar[tuple[int, ...]] = (SHORT, SHORT_STRING, SHORT, SHORT)

    def __init__(
        self, reply_code: int, reply_text: bytes, failed_class_id: int, failed_method_id: int
    ) -> None:
        self.reply_code = reply_code
        self.reply_text = reply_text
        self.failed_class_id = failed_class_id
        self.failed_method_id = failed_method_id

    def fields(self) -> tuple[object, ...]:
        return (self.reply_code, self.reply_text, self.failed_class_id, self.failed_method_id)


@final
class ChannelCloseOk(Method):
    class_id: ClassVar[int] = 20
    method_id: ClassVar[int] = 41


@final
class AccessRequest(Method):
    """Gone from 0-9-1, yet old clients ask; every ticket is the same."""

    class_id: ClassVar[int] = 30
    method_id: ClassVar[int] = 10
    layout: ClassVar[tuple[int, ...]] = (SHORT_STRING, BIT, BIT, BIT, BIT, BIT)

    def __init__(
        self, realm: bytes, exclusive: bool, passive: bool, active: bool, write: bool, read: bool
    ) -> None:
        self.realm = realm
        self.exclusive = exclusive
        self.passive = passive
        self.active = active
        self.write = write
        self.read = read

    def fields(self) -> tuple[object, ...]:
        return (self.realm, self.exclusive, self.passive, self.active, self.write, self.read)


@final
class AccessRequestOk(Method):
    class_id: ClassVar[int] = 30
    method_id: ClassVar[int] = 11
    layout: ClassVar[tuple[int, ...]] = (SHORT,)

    def __init__(self, ticket: int) -> None:
        self.ticket = ticket

    def fields(self) -> tuple[object, ...]:
        return (self.ticket,)


CONNECTION_METHODS: Final[tuple[type[Method], ...]] = (
    ConnectionStart,
    ConnectionStartOk,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionBlocked,
    ConnectionUnblocked,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    ChannelOpen,
    ChannelOpenOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelClose,
    ChannelCloseOk,
    AccessRequest,
    AccessRequestOk,
)
