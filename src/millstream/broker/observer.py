"""The port to logs: what an operator wants to read about a connection, never about a message."""

from __future__ import annotations

from abc import ABC, abstractmethod

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Observer(ABC):
    @abstractmethod
    def connected(self, client_id: str, user: str, account: str, address: str, protocol: str) -> None: ...

    @abstractmethod
    def refused(self, client_id: str, user: str, address: str, reason: str, text: str) -> None: ...

    @abstractmethod
    def disconnected(self, client_id: str, address: str, reason: str, text: str) -> None: ...

    @abstractmethod
    def denied(self, client_id: str, user: str, action: str, topic: bytes) -> None: ...

    def dropped(self, client_id: str, address: str, unsent_bytes: int) -> None:  # noqa: B027 not all tell of it
        """Memory ran out and this client does not read: its connection is closed."""

    def busy(self, client_id: str, address: str, text: str) -> None:  # noqa: B027 not all tell of it
        """The broker has little time left, and this client or address takes much of it."""

    @abstractmethod
    def limited(self, client_id: str, user: str, address: str, text: str) -> None:
        """A limit keeps a client from something, or slows it down; the connection lives."""

    @abstractmethod
    def failed(self, client_id: str, address: str, error: BaseException) -> None:
        """Our own bug, met while serving this connection, which is closed for it."""
