"""An MQTT client on asyncio, over TCP, TLS or WebSocket: what `millstream pub` and `sub` are made of.

The rules of MQTT are the machine's (`protocols/mqtt/machine/client`); this moves its bytes and wakes who waits.

Invariants
- Every wait ends: by its answer, by the connection's end, or by the time-out.
- Messages nobody has taken yet are bounded: when the buffer is full, the socket is not read.
- Only MqttClientError comes out, with a sentence for a person.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Final

from millstream.client.mqtt_stream import ClientStream, StreamFault, open_stream
from millstream.model.errors import Refused
from millstream.model.limits import NEVER_EXPIRES
from millstream.model.topic import find_filter_fault, find_topic_fault, split_share
from millstream.protocols.mqtt.machine.client import Client
from millstream.protocols.mqtt.machine.client_events import (
    AuthenticationAsked,
    Connected,
    ConnectRefused,
    MessageReceived,
    PublishSettled,
    SessionLost,
    SubscribeAnswered,
)
from millstream.protocols.mqtt.machine.client_session import ClientSession
from millstream.protocols.mqtt.machine.events import Closed, Event
from millstream.protocols.mqtt.wire.packets import ConnAck, Connect, Publish, SubscribeEntry, Will
from millstream.protocols.mqtt.wire.properties import Properties
from millstream.protocols.mqtt.wire.reason_codes import get_reason_name

PACKET_SIZE_MAX: Final = 16 * 1024 * 1024
MESSAGES_MAX: Final = 1000  # received and not yet taken by `messages()`
TOPIC_LENGTH_MAX: Final = 65_535
TOPIC_LEVELS_MAX: Final = 65_535
RECEIVE_MAXIMUM: Final = 500
SECOND_NS: Final = 1_000_000_000


class ExitKind(StrEnum):
    """What went wrong, for a command to choose its exit code by."""

    USAGE = "usage"  # a topic, filter or option that cannot be sent
    UNREACHABLE = "unreachable"  # no connection could be made
    REFUSED = "refused"  # the broker said no
    TIMEOUT = "timeout"  # the broker did not answer in time
    CLOSED = "closed"  # the connection ended


class MqttClientError(Exception):
    """One sentence for a person; `reason` is the broker's code when it gave one."""

    def __init__(self, text: str, exit_kind: ExitKind, reason: int = 0) -> None:
        super().__init__(text)
        self.text = text
        self.exit_kind = exit_kind
        self.reason = reason


class Authenticator:
    """One enhanced authentication, MQTT 5: subclass it for a method."""

    method: bytes = b""

    def start(self) -> bytes | None:
        """The data that goes with CONNECT."""
        return None

    def answer(self, data: bytes) -> bytes:
        """The reply to the server's data."""
        raise NotImplementedError


class MqttClient:
    """One connection; make it with `await MqttClient.connect(...)` and end it with `disconnect()`."""

    def __init__(
        self, connect: Connect, session: ClientSession, timeout_s: float, authenticator: Authenticator | None
    ) -> None:
        self._timeout_s = timeout_s
        self._authenticator = authenticator
        self._machine = Client(
            connect,
            session,
            time.monotonic_ns(),
            packet_size_max=PACKET_SIZE_MAX,
            answer_timeout_ns=int(timeout_s * SECOND_NS),
        )
        self._loop = asyncio.get_running_loop()
        self._stream: ClientStream | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._answers: dict[int, asyncio.Future[list[int]]] = {}
        self._accepted: asyncio.Future[ConnAck] = self._loop.create_future()
        self._messages: deque[Publish] = deque()
        self._wakeup = asyncio.Event()
        self._is_paused = False
        self._end: MqttClientError | None = None
        self._said_goodbye = False
        self.connack = ConnAck(False, 0)
        self.client_id = connect.client_id
        self.lost: list[Publish] = []  # of the session handed over: the broker no longer knew them

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = "",
        version: int = 5,
        username: str | None = None,
        password: bytes | None = None,
        clean_start: bool = True,
        keep_alive_s: int = 30,
        session_expiry_s: int = 0,
        will: Will | None = None,
        tls: ssl.SSLContext | None = None,
        websocket_path: str | None = None,
        timeout_s: float = 10,
        properties: Properties | None = None,
        session: ClientSession | None = None,
        authenticator: Authenticator | None = None,
    ) -> MqttClient:
        """Open a connection and wait for the broker's answer to CONNECT.

        Hand the `session` of an earlier client over, with `clean_start=False`, to go on where it stopped.
        """
        if version not in (3, 4, 5):
            raise MqttClientError(f"version is 3, 4 or 5, not {version}", ExitKind.USAGE)
        if version < 5 and password is not None and username is None:  # [MQTT3-3.1.2-22]
            raise MqttClientError("a password needs a user name before MQTT 5", ExitKind.USAGE)
        terms = None
        if version >= 5:
            terms = _make_terms(properties, session_expiry_s, authenticator)
        packet = Connect(version, client_id, clean_start, keep_alive_s, username, password, will, terms)
        try:
            client = cls(packet, session or ClientSession(), timeout_s, authenticator)
        except (ValueError, OverflowError) as error:
            raise MqttClientError(f"the connection cannot be asked for: {error}", ExitKind.USAGE) from error
        await client._open(host, port, tls, websocket_path)
        return client

    # --------------------------------------------------------------- requests

    async def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> int:
        """Publish and wait for the broker's confirm; gives its reason code (0 at once for QoS 0)."""
        name = _encode_name(topic)
        fault = find_topic_fault(name, TOPIC_LENGTH_MAX, TOPIC_LEVELS_MAX)
        if fault is not None:
            raise MqttClientError(f"cannot publish to {topic!r}: {fault}", ExitKind.USAGE)
        _check_qos(qos)
        self._require_open()
        try:
            packet_id = self._machine.publish(
                Publish(name, payload, qos, retain, properties=properties), time.monotonic_ns()
            )
        except Refused as refused:
            raise MqttClientError(f"cannot publish: {refused.text}", ExitKind.REFUSED) from refused
        if packet_id == 0:
            self._flush()
            await self._wait_writable()
            return 0
        return (await self._wait_answer(packet_id, "confirm the publish"))[0]

    async def subscribe(
        self,
        filters: list[tuple[str, int]],
        *,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        properties: Properties | None = None,
    ) -> list[int]:
        """Subscribe to (filter, QoS) pairs; gives one reason code each: granted QoS, or 0x80 and above."""
        entries: list[SubscribeEntry] = []
        for filter, qos in filters:
            name = _encode_filter(filter)
            _check_qos(qos)
            entries.append(SubscribeEntry(name, qos, no_local, retain_as_published, retain_handling))
        self._require_filters(len(entries))
        try:
            packet_id = self._machine.subscribe(entries, properties, time.monotonic_ns())
        except Refused as refused:
            raise MqttClientError(f"cannot subscribe: {refused.text}", ExitKind.REFUSED) from refused
        return await self._wait_answer(packet_id, "answer the subscription")

    async def unsubscribe(self, filters: list[str]) -> list[int]:
        """One reason code per filter from MQTT 5 brokers; none from older ones."""
        names = [_encode_filter(filter) for filter in filters]
        self._require_filters(len(names))
        try:
            packet_id = self._machine.unsubscribe(names, None, time.monotonic_ns())
        except Refused as refused:
            raise MqttClientError(f"cannot unsubscribe: {refused.text}", ExitKind.REFUSED) from refused
        return await self._wait_answer(packet_id, "answer the unsubscribe")

    async def messages(self) -> AsyncIterator[Publish]:
        """Messages as they come; ends after `disconnect`, raises when the connection is lost."""
        while True:
            while self._messages:
                message = self._messages.popleft()
                self._resume_reading()
                yield message
            if self._end is not None:
                if self._said_goodbye:
                    return
                raise self._end
            self._wakeup.clear()
            await self._wakeup.wait()

    async def disconnect(self, reason: int = 0, properties: Properties | None = None) -> None:
        """Say goodbye and close; calling it again does nothing."""
        if self._end is None:
            self._said_goodbye = True
            events = self._machine.disconnect(reason, properties, time.monotonic_ns())
            self._flush()
            self._on_events(events)
        if self._stream is not None:
            await self._stream.wait_closed(self._timeout_s)

    # ------------------------------------------------------------- connection

    async def _open(self, host: str, port: int, tls: ssl.SSLContext | None, path: str | None) -> None:
        place = f"{host}:{port}"
        try:
            async with asyncio.timeout(self._timeout_s):
                self._stream = await open_stream(
                    host, port, tls, path, PACKET_SIZE_MAX, self._on_data, self._on_lost
                )
                self._flush()
                self._arm()
                self.connack = await self._accepted
        except TimeoutError as error:
            self._abort()
            text = f"{place} did not answer within {self._timeout_s:g} s; check that a broker listens there"
            raise MqttClientError(text, ExitKind.TIMEOUT) from error
        except StreamFault as fault:
            self._abort()
            raise MqttClientError(f"cannot connect to {place}: {fault}", ExitKind.UNREACHABLE) from fault
        except OSError as error:
            self._abort()
            text = f"cannot connect to {place}: {_describe(error)}"
            raise MqttClientError(text, ExitKind.UNREACHABLE) from error
        except BaseException:
            self._abort()
            raise
        granted = self.connack.properties
        if granted is not None and granted.assigned_client_identifier is not None:
            self.client_id = granted.assigned_client_identifier.decode()

    def _abort(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._accepted.done() and not self._accepted.cancelled():
            self._accepted.exception()  # told to the caller already
        if self._stream is not None:
            self._stream.abort()

    def _on_data(self, data: bytes) -> None:
        self._on_events(self._machine.receive_data(data, time.monotonic_ns()))
        self._flush()
        self._arm()

    def _on_lost(self, text: str) -> None:
        self._on_events(self._machine.on_connection_lost(text))

    def _on_timer(self) -> None:
        self._timer = None
        self._on_events(self._machine.on_deadline(time.monotonic_ns()))
        self._flush()
        self._arm()

    def _arm(self) -> None:
        """One timer. Deadlines mostly move away: an early ring finds nothing to do and sets the next."""
        deadline_ns = self._machine.next_deadline()
        if deadline_ns is None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return
        when = self._loop.time() + max(0, deadline_ns - time.monotonic_ns()) / SECOND_NS
        if self._timer is None or self._timer.when() > when:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(when, self._on_timer)

    def _flush(self) -> None:
        data = self._machine.data_to_send()
        if data and self._stream is not None:
            self._stream.write(b"".join(data))

    # ----------------------------------------------------------------- events

    def _on_events(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, MessageReceived):
                self._messages.append(event.packet)
            elif isinstance(event, PublishSettled):
                self._resolve(event.packet_id, [event.reason])
            elif isinstance(event, SubscribeAnswered):
                self._resolve(event.packet_id, event.reasons)
            elif isinstance(event, Connected):
                self._accepted.set_result(event.packet)
            elif isinstance(event, ConnectRefused):
                self._on_refused(event.packet)
            elif isinstance(event, AuthenticationAsked):
                self._on_authentication(event)
            elif isinstance(event, SessionLost):
                self.lost = event.publishes
            elif isinstance(event, Closed):
                self._on_closed(event)
        if self._messages:
            self._wakeup.set()
            self._pause_reading()

    def _resolve(self, packet_id: int, reasons: list[int]) -> None:
        answer = self._answers.pop(packet_id, None)
        if answer is not None and not answer.done():
            answer.set_result(reasons)

    def _on_refused(self, packet: ConnAck) -> None:
        name = get_reason_name(packet.reason, self._machine.version)
        text = f"the broker refused the connection: {name}"
        if packet.properties is not None and packet.properties.reason_string:
            text += f" ({packet.properties.reason_string.decode()})"
        self._end = MqttClientError(text, ExitKind.REFUSED, packet.reason)

    def _on_authentication(self, event: AuthenticationAsked) -> None:
        properties = event.packet.properties
        data = b"" if properties is None else properties.authentication_data or b""
        if event.packet.reason != 0 and self._authenticator is not None:
            self._machine.authenticate(self._authenticator.answer(data), time.monotonic_ns())

    def _on_closed(self, event: Closed) -> None:
        if self._end is None:
            self._end = MqttClientError(f"the connection ended: {event.text}", ExitKind.CLOSED, event.reason)
        if not self._accepted.done():
            self._accepted.set_exception(self._end)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(self._end)
        self._answers = {}
        self._wakeup.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._flush()
        if self._stream is not None:
            self._stream.close()

    def _require_open(self) -> None:
        if self._end is not None:
            raise self._end

    def _require_filters(self, count: int) -> None:
        if count == 0:
            raise MqttClientError("name at least one filter", ExitKind.USAGE)
        self._require_open()

    async def _wait_writable(self) -> None:
        if self._stream is None:
            return
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._stream.wait_writable()
        except TimeoutError as error:
            text = f"the broker took no data for {self._timeout_s:g} s"
            raise MqttClientError(text, ExitKind.TIMEOUT) from error

    async def _wait_answer(self, packet_id: int, what: str) -> list[int]:
        answer: asyncio.Future[list[int]] = self._loop.create_future()
        self._answers[packet_id] = answer
        self._flush()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await answer
        except TimeoutError as error:
            text = f"the broker did not {what} within {self._timeout_s:g} s"
            raise MqttClientError(text, ExitKind.TIMEOUT) from error
        finally:
            self._answers.pop(packet_id, None)

    # ----------------------------------------------------------- back-pressure

    def _pause_reading(self) -> None:
        if len(self._messages) >= MESSAGES_MAX and not self._is_paused and self._stream is not None:
            self._is_paused = True
            self._machine.pause()
            self._stream.pause_reading()

    def _resume_reading(self) -> None:
        if self._is_paused and len(self._messages) <= MESSAGES_MAX // 2 and self._stream is not None:
            self._is_paused = False
            self._machine.resume(time.monotonic_ns())
            self._stream.resume_reading()
            self._arm()


def _make_terms(
    properties: Properties | None, session_expiry_s: int, authenticator: Authenticator | None
) -> Properties:
    """The caller's CONNECT properties with our own bounds filled in where it named none."""
    terms = properties or Properties()
    if terms.receive_maximum is None:
        terms.receive_maximum = RECEIVE_MAXIMUM
    if terms.maximum_packet_size is None:
        terms.maximum_packet_size = PACKET_SIZE_MAX
    if session_expiry_s:
        terms.session_expiry_interval = min(session_expiry_s, NEVER_EXPIRES)
    if authenticator is not None:
        terms.authentication_method = authenticator.method
        terms.authentication_data = authenticator.start()
    return terms


def _check_qos(qos: int) -> None:
    if qos not in (0, 1, 2):
        raise MqttClientError(f"QoS is 0, 1 or 2, not {qos}", ExitKind.USAGE)


def _encode_name(name: str) -> bytes:
    try:
        return name.encode()
    except UnicodeEncodeError as error:
        raise MqttClientError(f"{name!r} cannot be written in UTF-8", ExitKind.USAGE) from error


def _encode_filter(filter: str) -> bytes:
    name = _encode_name(filter)
    share = split_share(name)
    fault = find_filter_fault(name if share is None else share[1], TOPIC_LENGTH_MAX, TOPIC_LEVELS_MAX)
    if fault is not None:
        raise MqttClientError(f"{filter!r} is not a filter: {fault}", ExitKind.USAGE)
    return name


def _describe(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "the name is not known"
    if isinstance(error, ConnectionRefusedError) or "Connect call failed" in str(error):
        return "nothing listens there; start a broker with: millstream serve"
    return error.strerror or str(error)
