"""A client of raw packets over a real socket: sends what it is told, and expects exactly what must come.

It keeps no rules of its own: a test may send anything, in any order, and sees every packet the broker sends.
Nothing here sleeps. That nothing comes is shown by a PINGREQ, whose answer must be the next packet.
"""

from __future__ import annotations

import itertools
import os
import select
import socket
from collections import deque
from types import TracebackType

import pytest

from millstream.protocols.mqtt.wire.decode import decode_frame
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    SubscribeEntry,
    UnsubAck,
    Unsubscribe,
    Will,
)
from millstream.protocols.mqtt.wire.properties import Properties

TIMEOUT_S = 10.0  # a bound for what must come; nothing waits this long unless the broker is broken
SIZE_MAX = 268_435_460
NEVER = 0xFFFF_FFFF

EVERY_VERSION = pytest.mark.parametrize("version", [3, 4, 5], ids=["3.1", "3.1.1", "5.0"])
BOTH_VERSIONS = pytest.mark.parametrize("version", [4, 5], ids=["3.1.1", "5.0"])

_numbers = itertools.count(1)


def unique(name: str = "t") -> str:
    """A name no other test uses, for client ids and topics on a broker that is shared."""
    return f"{name}-{os.getpid()}-{next(_numbers)}"


def unique_topic(name: str = "t") -> bytes:
    return unique(name).encode()


def props(**values: object) -> Properties:
    properties = Properties()
    for name, value in values.items():
        if not hasattr(properties, name):
            raise AttributeError(f"there is no property {name}")
        setattr(properties, name, value)
    return properties


def text(value: bytes) -> bytes:
    """A string or binary field: two bytes of length, then the value."""
    return len(value).to_bytes(2, "big") + value


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value % 128 | 0x80)
        value //= 128
    out.append(value)
    return bytes(out)


def frame(first_byte: int, *parts: bytes) -> bytes:
    """A packet put together by hand, for what our own encoder would refuse to write."""
    body = b"".join(parts)
    return bytes([first_byte]) + varint(len(body)) + body


class ConnectionEnded(Exception):
    """The broker closed the connection where a packet was expected."""


class RawClient:
    """One connection. `version` is 3 (MQTT 3.1), 4 (3.1.1) or 5."""

    def __init__(self, port: int, version: int = 5, timeout_s: float = TIMEOUT_S) -> None:
        self.version = version
        self._socket = self._open(port, timeout_s)
        self._unread = b""
        self._set_aside: deque[Packet] = deque()
        self._packet_ids = itertools.count(1)

    def _open(self, port: int, timeout_s: float) -> socket.socket:
        opened = socket.create_connection(("127.0.0.1", port), timeout_s)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop the connection without a word, as a lost network would."""
        self._socket.close()

    def finish_writing(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def new_packet_id(self) -> int:
        return next(self._packet_ids)

    # ---------------------------------------------------------------- sending

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send(self, *packets: Packet) -> None:
        """All packets in one write, so that the broker may read them at once."""
        self.send_bytes(b"".join([encode_packet(packet, self.version) for packet in packets]))

    # -------------------------------------------------------------- receiving

    def _read_more(self) -> bool:
        try:
            data = self._socket.recv(65_536)
        except ConnectionResetError:
            return False
        self._unread += data
        return bool(data)

    def receive_bytes(self, count: int) -> bytes:
        while len(self._unread) < count:
            if not self._read_more():
                raise ConnectionEnded(f"closed after {self._unread!r}")
        data, self._unread = self._unread[:count], self._unread[count:]
        return data

    def receive(self) -> Packet:
        if self._set_aside:
            return self._set_aside.popleft()
        return self._receive_next()

    def _receive_next(self) -> Packet:
        while True:
            packet, end = decode_frame(self._unread, 0, self.version, SIZE_MAX)
            if packet is not None:
                self._unread = self._unread[end:]
                return packet
            if not self._read_more():
                raise ConnectionEnded("the broker closed the connection")

    def expect(self, wanted: Packet) -> None:
        found = self.receive()
        assert found == wanted, f"expected {wanted!r}, the broker sent {found!r}"

    def expect_publish(self) -> Publish:
        found = self.receive()
        assert isinstance(found, Publish), f"expected a PUBLISH, the broker sent {found!r}"
        return found

    def expect_all(self, *wanted: Packet) -> None:
        """These packets, in any order."""
        left = list(wanted)
        for _ in wanted:
            found = self.receive()
            assert found in left, f"expected one of {left!r}, the broker sent {found!r}"
            left.remove(found)

    def expect_among(self, wanted: Packet) -> None:
        """This packet comes; those that come before it are kept for the next `receive`."""
        while True:
            found = self._receive_next()
            if found == wanted:
                return
            self._set_aside.append(found)

    def expect_nothing(self) -> None:
        """The broker has sent nothing that this client has not seen yet."""
        self.send(PingReq())
        self.expect(PingResp())

    def expect_closed(self) -> None:
        """Nothing more comes, and the broker ends the connection."""
        while self._read_more():
            pass
        assert not self._set_aside, f"before closing, the broker sent {self._set_aside!r}"
        assert self._unread == b"", f"before closing, the broker sent {self._unread!r}"

    def has_input(self) -> bool:
        """Whether the broker has sent anything that lies here now; does not wait."""
        return bool(self._set_aside or self._unread or select.select([self._socket], [], [], 0)[0])

    def shrink_input(self) -> None:
        """Take little into the kernel's buffer: a client that does not read shows sooner."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 128 * 1024)

    def wait_closed(self) -> None:
        """The broker ends the connection, whatever it sends before."""
        while self._read_more():
            self._unread = b""

    def expect_disconnect(self, *reasons: int) -> Disconnect | None:
        """DISCONNECT with one of these reasons in MQTT 5, then the end; before MQTT 5 only the end."""
        if self.version < 5:
            self.expect_closed()
            return None
        found = self.receive()
        assert isinstance(found, Disconnect), f"expected a DISCONNECT, the broker sent {found!r}"
        shown = [f"0x{reason:02x}" for reason in reasons]
        assert found.reason in reasons, f"expected {shown}, the broker sent 0x{found.reason:02x}: {found!r}"
        self.expect_closed()
        return found

    # ------------------------------------------------------------ whole steps

    def connect(
        self,
        client_id: str | None = None,
        *,
        clean: bool = True,
        keep_alive_s: int = 0,
        username: str | None = None,
        password: bytes | None = None,
        will: Will | None = None,
        properties: Properties | None = None,
        expiry_s: int | None = None,
    ) -> ConnAck:
        """CONNECT and its answer, which must be an acceptance."""
        self.send_connect(
            client_id,
            clean=clean,
            keep_alive_s=keep_alive_s,
            username=username,
            password=password,
            will=will,
            properties=properties,
            expiry_s=expiry_s,
        )
        answer = self.receive()
        assert isinstance(answer, ConnAck), f"expected a CONNACK, the broker sent {answer!r}"
        assert answer.reason == 0, f"refused with {answer!r}"
        return answer

    def send_connect(
        self,
        client_id: str | None = None,
        *,
        clean: bool = True,
        keep_alive_s: int = 0,
        username: str | None = None,
        password: bytes | None = None,
        will: Will | None = None,
        properties: Properties | None = None,
        expiry_s: int | None = None,
    ) -> None:
        if expiry_s is not None and self.version == 5:
            properties = properties or Properties()
            properties.session_expiry_interval = expiry_s
        name = unique("c") if client_id is None else client_id
        packet = Connect(self.version, name, clean, keep_alive_s, username, password, will, properties)
        self.send(packet)

    def expect_refused(self, reason: int, return_code: int) -> ConnAck:
        """CONNACK with `reason` (MQTT 5) or `return_code` (before), then the end."""
        answer = self.receive()
        assert isinstance(answer, ConnAck), f"expected a CONNACK, the broker sent {answer!r}"
        wanted = reason if self.version == 5 else return_code
        assert answer.reason == wanted, f"expected 0x{wanted:02x}, the broker sent {answer!r}"
        assert not answer.session_present  # [MQTT-3.2.2-6]
        self.expect_closed()
        return answer

    def expect_no_welcome(self, *reasons: int) -> None:
        """The end, after at most a CONNACK with one of these reasons: the broker need not answer."""
        try:
            answer = self.receive()
        except ConnectionEnded:
            return
        assert isinstance(answer, ConnAck), f"expected a CONNACK, the broker sent {answer!r}"
        assert self.version == 5, f"before MQTT 5 there is no code for this, the broker sent {answer!r}"
        assert answer.reason in reasons, f"the broker sent {answer!r}"
        self.expect_closed()

    def subscribe(
        self,
        filter: bytes,
        qos: int = 0,
        *,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        identifier: int = 0,
    ) -> int:
        """SUBSCRIBE with one filter; gives the reason of its SUBACK."""
        entry = SubscribeEntry(filter, qos, no_local, retain_as_published, retain_handling)
        properties = props(subscription_identifiers=[identifier]) if identifier else None
        return self.subscribe_all([entry], properties)[0]

    def subscribe_all(self, entries: list[SubscribeEntry], properties: Properties | None = None) -> list[int]:
        packet_id = self.new_packet_id()
        self.send(Subscribe(packet_id, entries, properties))
        answer = self.receive()
        assert isinstance(answer, SubAck), f"expected a SUBACK, the broker sent {answer!r}"
        assert answer.packet_id == packet_id  # [MQTT-3.8.4-2]
        assert len(answer.reasons) == len(entries)  # [MQTT-3.8.4-6]
        return answer.reasons

    def unsubscribe(self, *filters: bytes) -> list[int]:
        packet_id = self.new_packet_id()
        self.send(Unsubscribe(packet_id, list(filters)))
        answer = self.receive()
        assert isinstance(answer, UnsubAck), f"expected an UNSUBACK, the broker sent {answer!r}"
        assert answer.packet_id == packet_id  # [MQTT-3.10.4-4]
        return answer.reasons

    def publish(
        self,
        topic: bytes,
        payload: bytes = b"",
        qos: int = 0,
        *,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> int:
        """Publish and finish the exchange; gives the reason of PUBACK or PUBREC, 0 for QoS 0.

        When it returns, the broker has handed the message to everybody who was to get it.
        """
        packet_id = self.new_packet_id() if qos else 0
        self.send(Publish(topic, payload, qos, retain, False, packet_id, properties))
        if qos == 0:
            self.expect_nothing()
            return 0
        answer = self.receive()
        if qos == 1:
            assert isinstance(answer, PubAck), f"expected a PUBACK, the broker sent {answer!r}"
        else:
            assert isinstance(answer, PubRec), f"expected a PUBREC, the broker sent {answer!r}"
        assert answer.packet_id == packet_id
        if qos == 2 and answer.reason < 0x80:
            self.send(PubRel(packet_id))
            self.expect(PubComp(packet_id))
        return answer.reason

    def take(self, topic: bytes, payload: bytes, qos: int = 0, *, retain: bool = False) -> Publish:
        """The next packet is this message, not repeated; it is answered as its QoS asks."""
        found = self.expect_publish()
        seen = (found.topic, found.payload, found.qos, found.retain, found.dup)
        assert seen == (topic, payload, qos, retain, False), f"the broker sent {found!r}"
        self.answer(found)
        return found

    def answer(self, publish: Publish) -> None:
        if publish.qos == 1:
            self.send(PubAck(publish.packet_id))
        elif publish.qos == 2:
            self.send(PubRec(publish.packet_id))
            self.expect_among(PubRel(publish.packet_id))
            self.send(PubComp(publish.packet_id))

    def disconnect(self, reason: int = 0, properties: Properties | None = None) -> None:
        """DISCONNECT, and wait until the broker has taken it."""
        self.send(Disconnect(reason, properties))
        self.expect_closed()
        self.close()

    def continue_authentication(self, method: bytes, data: bytes, reason: int = 0x18) -> Packet:
        self.send(Auth(reason, props(authentication_method=method, authentication_data=data)))
        return self.receive()


class Clients:
    """The clients of one test on one broker; all are closed with it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._opened: list[RawClient] = []

    def __enter__(self) -> Clients:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for client in self._opened:
            client.close()

    def new(self, version: int = 5, timeout_s: float = TIMEOUT_S) -> RawClient:
        """A connection on which nothing has been sent."""
        client = RawClient(self._port, version, timeout_s)
        self._opened.append(client)
        return client

    def open(
        self,
        version: int = 5,
        client_id: str | None = None,
        *,
        clean: bool = True,
        keep_alive_s: int = 0,
        username: str | None = None,
        password: bytes | None = None,
        will: Will | None = None,
        properties: Properties | None = None,
        expiry_s: int | None = None,
    ) -> RawClient:
        """A client that the broker has accepted."""
        client = self.new(version)
        client.connect(
            client_id,
            clean=clean,
            keep_alive_s=keep_alive_s,
            username=username,
            password=password,
            will=will,
            properties=properties,
            expiry_s=expiry_s,
        )
        return client

    def resume(self, version: int, client_id: str, expiry_s: int = NEVER) -> RawClient:
        """A client that comes back to its session, or begins one that outlives its connection."""
        return self.open(version, client_id, clean=False, expiry_s=expiry_s)
