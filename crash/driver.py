"""Runs all clients in one loop: no thread, so what one client saw before another is known."""

from __future__ import annotations

import heapq
import random
import selectors
import time
from collections.abc import Callable
from typing import Final

from crash.client import Client
from crash.journal import Journal
from crash.publisher import Publisher

SLICE_S: Final = 0.02
LATE_S: Final = 0.15  # clients come back up to so much later than the broker
CUT_EVERY_S: Final = 0.1
AWAY_S: Final = 0.1


class Driver:
    def __init__(self, clients: list[Client], journals: list[Journal], chance: random.Random) -> None:
        self.clients = clients
        self.journals = journals
        self._chance = chance
        self._selector = selectors.DefaultSelector()
        self._port = 0
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_count = 0
        self._writing: dict[Client, None] = {}
        self.packets = 0

    # ---------------------------------------------------------------- connect

    def connect_all(self, port: int, is_first: bool) -> None:
        """Come back one after the other, in any order; publishers may be first."""
        self._port = port
        self._timers.clear()
        for client in self.clients:
            if is_first and isinstance(client, Publisher):
                continue  # readers join before there is anything to miss
            self._later(self._chance.uniform(0, LATE_S), client)

    def connect(self, client: Client) -> None:
        """At once; a broker that dies meanwhile is noticed later."""
        if client.wire is not None:
            return
        try:
            wire = client.connect(self._port)
        except OSError:
            return
        self._selector.register(wire.socket, selectors.EVENT_READ, client)
        self._flush(client)

    def cut(self, client: Client) -> None:
        """Its process dies: the socket closes in the middle of whatever was going on."""
        if client.wire is not None:
            client.journal.cuts += 1
            self._drop(client)
            self._later(self._chance.uniform(0, AWAY_S), client)

    def _later(self, delay_s: float, client: Client) -> None:
        self._timer_count += 1
        when = time.monotonic() + delay_s
        heapq.heappush(self._timers, (when, self._timer_count, lambda: self.connect(client)))

    def _drop(self, client: Client) -> None:
        if client.wire is not None:
            self._selector.unregister(client.wire.socket)
        self._writing.pop(client, None)
        client.leave()

    # -------------------------------------------------------------------- run

    def run(self, is_done: Callable[[], bool], patience_s: float, is_stall: bool = False) -> bool:
        """Until it is done; False when that took too long, or (`is_stall`) nothing at all came for so long."""
        deadline = time.monotonic() + patience_s
        seen = self.packets
        while not is_done():
            now = time.monotonic()
            if is_stall and self.packets != seen:
                seen = self.packets
                deadline = now + patience_s
            if now >= deadline:
                return False
            self.step(min(SLICE_S, deadline - now))
        return True

    def run_load(self, duration_s: float) -> None:
        """Under load for so long; now and then a client dies as well."""
        now = time.monotonic()
        end = now + duration_s
        cut_at = now + self._chance.uniform(0, 2 * CUT_EVERY_S)
        while (now := time.monotonic()) < end:
            if now >= cut_at:
                self.cut(self._chance.choice(self.clients))
                cut_at = now + self._chance.uniform(0, 2 * CUT_EVERY_S)
            self.step(min(SLICE_S, end - now))

    def read_out(self) -> None:
        """The broker is dead: read what it had sent before, until every connection shows its end."""
        self._timers.clear()
        deadline = time.monotonic() + 10
        while any(client.wire is not None for client in self.clients) and time.monotonic() < deadline:
            self.step(SLICE_S)

    def step(self, timeout_s: float) -> None:
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()
        if self._timers:
            timeout_s = min(timeout_s, max(0.0, self._timers[0][0] - time.monotonic()))
        now_s = time.monotonic()
        for journal in self.journals:
            journal.now_s = now_s
        touched: dict[Client, None] = {}
        for key, _ in self._selector.select(timeout_s):
            client: Client = key.data
            touched[client] = None
            self._read(client)
        for client in self.clients:
            if isinstance(client, Publisher) and client.is_open:
                client.pump()
                touched[client] = None
        for client in touched:
            self._flush(client)

    def _read(self, client: Client) -> None:
        wire = client.wire
        if wire is None:
            return
        for packet in wire.receive():
            self.packets += 1
            client.on_packet(packet)
        if wire.is_gone:
            self._drop(client)

    def _flush(self, client: Client) -> None:
        wire = client.wire
        if wire is None:
            return
        wire.flush()
        is_writing = client in self._writing
        if wire.has_unsent() != is_writing:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wire.has_unsent() else 0)
            self._selector.modify(wire.socket, events, client)
            if is_writing:
                del self._writing[client]
            else:
                self._writing[client] = None

    def close(self) -> None:
        for client in self.clients:
            self._drop(client)
        self._selector.close()
