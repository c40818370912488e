"""Connection events as log lines. Repeated ones are thinned out by the logger."""

from __future__ import annotations

from typing import Final

import structlog

from millstream.broker.observer import Observer
from millstream.model.counters import Counters

# What a client gets wrong again after every reconnect: its operator must be able to find it.
FAULTS: Final = frozenset(
    (
        "malformed packet",
        "packet too large",
        "protocol error",
        "receive maximum exceeded",
        "topic alias invalid",
    )
)


class LogObserver(Observer):
    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._log = structlog.get_logger("millstream")

    def connected(self, client_id: str, user: str, account: str, address: str, protocol: str) -> None:
        self._log.debug(
            "client_connected",
            client_id=client_id,
            user=user,
            account=account,
            address=address,
            protocol=protocol,
        )

    def refused(self, client_id: str, user: str, address: str, reason: str, text: str) -> None:
        self._counters.clients_refused += 1
        self._log.warning(
            "client_refused", client_id=client_id, user=user, address=address, reason=reason, text=text
        )

    def disconnected(self, client_id: str, address: str, reason: str, text: str) -> None:
        log = self._log.warning if reason in FAULTS else self._log.debug
        log("client_disconnected", client_id=client_id, address=address, reason=reason, text=text)

    def denied(self, client_id: str, user: str, action: str, topic: bytes) -> None:
        self._log.warning(
            "not_authorized",
            client_id=client_id,
            user=user,
            action=action,
            topic=topic.decode("utf-8", "replace"),
        )

    def limited(self, client_id: str, user: str, address: str, text: str) -> None:
        self._counters.clients_limited += 1
        self._log.warning("client_limited", client_id=client_id, user=user, address=address, text=text)

    def busy(self, client_id: str, address: str, text: str) -> None:
        self._log.warning("client_busy", client_id=client_id, address=address, text=text)

    def dropped(self, client_id: str, address: str, unsent_bytes: int) -> None:
        self._log.warning(
            "memory_offender", kind="connection", name=client_id, address=address, bytes=int(unsent_bytes)
        )

    def failed(self, client_id: str, address: str, error: BaseException) -> None:
        self._log.error("connection_failed", client_id=client_id, address=address, exc_info=error)
