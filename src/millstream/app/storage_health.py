"""The state of the log as conditions: looked at by every tick, so that nothing on the path of a batch has to tell it."""

from __future__ import annotations

from millstream.broker.broker import Broker
from millstream.broker.conditions import (
    LOG_NOT_WRITABLE,
    STORAGE_BEHIND,
    STORAGE_FAILED,
    STORAGE_FULL,
    STORAGE_STALLED,
    Condition,
)
from millstream.broker.health import Health
from millstream.storage.log.write_ahead_log import Log
from millstream.storage.log_store import BACKLOG_BYTES_MAX


class StorageHealth:
    def __init__(self, health: Health, log: Log, stall_ms: int, broker: Broker) -> None:
        self._health = health
        self._log = log
        self._stall_ms = stall_ms
        self._broker = broker
        self._refused = 0
        self._shown: Condition | None = None

    def on_tick(self) -> None:
        condition, cause = self._look()
        refused = self._count_refused()
        if self._shown is not None:
            self._health.count(self._shown, refused - self._refused)
            if condition is not self._shown:
                self._health.end(self._shown)
        if condition is not None:
            self._health.begin(condition, cause)
            if condition is not self._shown and self._shown is None:
                self._health.count(condition, refused - self._refused)  # in the moment before it was noticed
        self._shown = condition
        self._refused = refused

    def _count_refused(self) -> int:
        refused = 0
        for account in self._broker.accounts.values():
            refused += int(account.counters.dropped_no_storage)
        return refused

    def _look(self) -> tuple[Condition | None, str]:
        """The one that tells most of why nothing can be stored."""
        log = self._log
        if log.fault:
            return STORAGE_FAILED, log.fault
        if log.is_full:
            return (STORAGE_FULL if log.lacks_room else LOG_NOT_WRITABLE), log.full_cause
        if log.is_stalled:
            return STORAGE_STALLED, f"no answer of the disk for {self._stall_ms} ms"
        if log.unsafe_bytes() > BACKLOG_BYTES_MAX:
            return STORAGE_BEHIND, f"{int(log.unsafe_bytes()):,} bytes wait to be written"
        return None, ""
