"""One face for MQTT clients nobody here wrote, so that a test says what it claims once for all of them.

Every call waits for the broker's answer and gives up after TIMEOUT_S. No client connects again by itself.
"""

from __future__ import annotations

import queue
import ssl
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path

TIMEOUT_S = 20.0
SESSION_FOREVER_S = 0xFFFFFFFF


@dataclass(frozen=True)
class Certificate:
    """A client's certificate and its key, in files."""

    cert_file: Path
    key_file: Path


@dataclass(frozen=True)
class Address:
    """Where a broker listens. `transport` is tcp, tls, ws or wss."""

    transport: str
    port: int
    ca_file: Path | None = None
    host: str = "127.0.0.1"
    path: str = "/mqtt"

    @property
    def is_websocket(self) -> bool:
        return self.transport in ("ws", "wss")

    def tls_context(self, certificate: Certificate | None) -> ssl.SSLContext | None:
        if self.ca_file is None:
            return None
        context = ssl.create_default_context(cafile=str(self.ca_file))
        if certificate is not None:
            context.load_cert_chain(certificate.cert_file, certificate.key_file)
        return context


@dataclass(frozen=True)
class Properties:
    """Those of an MQTT 5 PUBLISH. `subscription_ids` is only ever received."""

    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    expiry_s: int | None = None
    is_text: bool | None = None
    user: tuple[tuple[str, str], ...] = ()
    subscription_ids: tuple[int, ...] = ()
    topic_alias: int | None = None


@dataclass(frozen=True)
class Received:
    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties = field(default_factory=Properties)


@dataclass(frozen=True)
class Will:
    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = field(default_factory=Properties)


@dataclass(frozen=True)
class Options:
    """What a client says in CONNECT. `version` is 4 (MQTT 3.1.1) or 5."""

    client_id: str
    version: int
    clean: bool = True
    keep_alive_s: int = 60
    username: str | None = None
    password: str | None = None
    will: Will | None = None
    certificate: Certificate | None = None
    topic_alias_max: int = 0

    @property
    def session_expiry_s(self) -> int | None:
        """MQTT 5 says in a property what 3.1.1 says with the clean session flag."""
        return SESSION_FOREVER_S if self.version == 5 and not self.clean else None


class RefusedError(Exception):
    """The broker answered CONNECT with this reason."""

    def __init__(self, code: int) -> None:
        super().__init__(f"refused with {code:#x}")
        self.code = code


class Inbox:
    """What arrived on one client, filled by its own thread and taken by the test."""

    def __init__(self) -> None:
        self._messages: queue.Queue[Received] = queue.Queue()
        self._pings = threading.Semaphore(0)
        self._closed = threading.Event()
        self._close_codes: list[int] = []

    def put(self, message: Received) -> None:
        self._messages.put(message)

    def take(self, count: int) -> list[Received]:
        deadline = time.monotonic() + TIMEOUT_S
        taken: list[Received] = []
        while len(taken) < count:
            try:
                taken.append(self._messages.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                raise TimeoutError(f"{len(taken)} of {count} messages came: {taken[-3:]}") from None
        return taken

    def take_waiting(self) -> list[Received]:
        """Those that came and were not taken yet."""
        taken: list[Received] = []
        while not self._messages.empty():
            taken.append(self._messages.get_nowait())
        return taken

    def on_ping_answered(self) -> None:
        self._pings.release()

    def wait_pings(self, count: int) -> None:
        for _ in range(count):
            if not self._pings.acquire(timeout=TIMEOUT_S):
                raise TimeoutError("no PINGRESP came")

    def on_disconnect_code(self, code: int) -> None:
        self._close_codes.append(code)

    def on_closed(self) -> None:
        self._closed.set()

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    def wait_closed(self) -> int | None:
        """The reason in the broker's DISCONNECT, if there was one."""
        if not self._closed.wait(TIMEOUT_S):
            raise TimeoutError("the connection stayed open")
        return self._close_codes[0] if self._close_codes else None


class ForeignClient(ABC):
    """One client. The names of the methods are those of the specification."""

    name: str
    transports: tuple[str, ...] = ("tcp", "tls", "ws", "wss")
    shows_publish_reason = False  # whether `publish` returns the code of PUBACK or PUBREC

    def __init__(self, address: Address, options: Options) -> None:
        self.address = address
        self.options = options
        self.inbox = Inbox()
        self.is_joined = False

    def connect(self) -> bool | None:
        """Whether a session was present, or None if this client does not tell.

        Raises RefusedError, or ConnectionError when the connection ends without an answer.
        """
        session_present = self._open()
        self.is_joined = True
        return session_present

    @abstractmethod
    def _open(self) -> bool | None: ...

    @abstractmethod
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
        """The code in SUBACK: the granted QoS, or 0x80 and more."""

    @abstractmethod
    def unsubscribe(self, filter: str) -> None: ...

    @abstractmethod
    def publish_all(
        self, topic: str, payloads: list[bytes], qos: int, *, retain: bool, properties: Properties | None
    ) -> list[int | None]:
        """Publish without waiting between them, then wait until all are confirmed."""

    @abstractmethod
    def disconnect(self) -> None: ...

    @abstractmethod
    def cut(self) -> None:
        """End the connection without DISCONNECT, as a lost network does."""

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        *,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> int | None:
        return self.publish_all(topic, [payload], qos, retain=retain, properties=properties)[0]

    def take(self, count: int) -> list[Received]:
        return self.inbox.take(count)

    def take_one(self) -> Received:
        return self.inbox.take(1)[0]
