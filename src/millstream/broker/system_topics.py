"""The `$SYS` tree: the broker's own state as retained messages of the default account."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.broker.broker import DEFAULT_ACCOUNT, Broker
from millstream.model.message import NANOSECONDS, Message

PREFIX: Final = "$SYS/broker/"
ERRORS: Final = (
    "publishes_denied",
    "subscribes_denied",
    "deliveries_denied",
    "bindings_revoked",
    "dead_letters_denied",
    "protocol_errors",
    "clients_refused",
    "clients_limited",
)


@final
class SystemTopics:
    def __init__(self, broker: Broker, version: str, interval_s: i64, started_ns: i64) -> None:
        self._broker = broker
        self._version = version
        self._interval_ns: i64 = interval_s * NANOSECONDS
        self._started_ns: i64 = started_ns
        self._next_ns: i64 = started_ns
        self._last: dict[str, str] = {}

    def on_tick(self, now_ns: i64) -> None:
        if self._interval_ns == 0 or now_ns < self._next_ns:
            return
        self._next_ns = now_ns + self._interval_ns
        for name, value in self.values(now_ns).items():
            if self._last.get(name) != value:  # what has not changed is still retained
                self._last[name] = value
                topic = (PREFIX + name).encode()
                message = Message(topic, value.encode(), 0, True, b"", 0, "")
                self._broker.publish_state(self._broker.accounts[DEFAULT_ACCOUNT], message)

    def values(self, now_ns: i64) -> dict[str, str]:
        broker = self._broker
        totals: dict[str, int] = {}
        connected = 0
        subscriptions = 0
        retained = 0
        queued = 0
        disconnected = 0
        for account in broker.accounts.values():
            connected += int(account.connected)
            subscriptions += int(account.router.tree.count)
            retained += int(account.retained.count)
            for session in account.sessions.values():
                queued += int(session.queued_count())
                if session.line is None:
                    disconnected += 1
            for name, value in account.counters.snapshot().items():
                totals[name] = totals.get(name, 0) + value
        values = {
            "version": f"millstream {self._version}",
            "uptime": f"{int(now_ns - self._started_ns) // NANOSECONDS} seconds",
            "clients/connected": str(connected),
            "clients/disconnected": str(disconnected),
            "clients/total": str(connected + disconnected),
            "messages/received": str(totals["messages_received"]),
            "messages/sent": str(totals["messages_sent"]),
            "publish/messages/received": str(totals["messages_received"]),
            "publish/messages/sent": str(totals["messages_sent"]),
            "bytes/received": str(totals["bytes_received"]),
            "bytes/sent": str(totals["bytes_sent"]),
            "subscriptions/count": str(subscriptions),
            "retained messages/count": str(retained),
            "messages/stored": str(queued + retained),
            "messages/queued": str(queued),
        }
        for name, value in totals.items():
            if name.startswith("dropped_"):
                values["messages/dropped/" + name[len("dropped_") :]] = str(value)
            elif name.startswith("quota_"):
                values["quotas/refused/" + name[len("quota_") :]] = str(value)
        for name, text in broker.memory.values().items():
            values["memory/" + name] = text
        for name, text in broker.turns.values().items():
            values["loop/" + name] = text
        for name, count in broker.health.totals().items():
            values["refused/" + name] = str(count)
        for name in ERRORS:
            values["errors/" + name] = str(totals[name])
        return values
