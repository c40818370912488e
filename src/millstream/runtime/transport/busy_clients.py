"""Names the clients that keep the broker busy, and the addresses that open or abandon very many connections or change
very many subscriptions.

Every connection counts the time that acting on its input has taken. That is looked at once a second, and only while the
thread of the loop has little time left: whoever takes much of it for two looks in a row is told to the operator, in the log
and as a condition. Storms of connections and of subscriptions are told whatever time is left: each of them costs more than a
message. Nothing is refused because of it: everybody is served in turn.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Final

from millstream.broker.conditions import CLIENT_BUSY
from millstream.broker.health import Health
from millstream.model.message import NANOSECONDS
from millstream.runtime.transport.address_counts import AddressCounts
from millstream.runtime.transport.gate import Gate
from millstream.runtime.transport.link import TransportLink

INTERVAL_NS: Final = NANOSECONDS
BUSY_SHARE: Final = 0.6  # of the time between two looks in which the thread ran, or wanted to
CLIENT_SHARE: Final = 0.2  # of that time, spent on the input of one address
OPENED_PER_S: Final = 100  # connections from one address
OPENED_ALL_PER_S: Final = 500  # from all; then the first of them is named
ABANDONED_PER_S: Final = 20  # connections from one address that ended before anybody had logged in
ABANDONED_ALL_PER_S: Final = 50
FILTERS_PER_S: Final = 10_000  # subscribed to or given up by one address, for two looks in a row
FILTERS_ALL_PER_S: Final = 50_000
NAMED_MAX: Final = 3  # addresses in one look
QUIET_NS: Final = 60 * NANOSECONDS  # an address is not told again for the same before this
TOLD_MAX: Final = 1000


class _Storm:
    """Something that addresses do: who does it too often, for so many looks in a row, alone or together with others."""

    def __init__(
        self, counts: AddressCounts, one_per_s: int, all_per_s: int, words: str, looks_needed: int = 1
    ) -> None:
        self._counts = counts
        self._one_per_s = one_per_s
        self._all_per_s = all_per_s
        self.words = words
        self._looks_needed = looks_needed
        self._looks: dict[
            str, int
        ] = {}  # how often in a row it was too much, by address; of all together: ""

    def look(self, elapsed: int) -> list[tuple[str, str]]:
        """Addresses and what to tell about them."""
        total = per_second(int(self._counts.total), elapsed)
        found = self._counts.take()
        before, self._looks = self._looks, {}
        told: list[tuple[str, str]] = []
        for address in sorted(found, key=lambda address: -found[address])[:NAMED_MAX]:
            rate = per_second(found[address], elapsed)
            subject, text = address, self.words.format(f"{rate:,}")
            if rate < self._one_per_s:
                if self._looks or total < self._all_per_s:
                    break
                subject = ""
                text = f"with {len(found) - 1:,} other addresses {self.words.format(f'{total:,}')}, {rate:,} of them alone"
            self._looks[subject] = before.get(subject, 0) + 1
            if self._looks[subject] >= self._looks_needed:
                told.append((address, text))
        return told


def per_second(count: int, elapsed: int) -> int:
    return (count * NANOSECONDS + elapsed // 2) // elapsed


class BusyClients:
    def __init__(self, gate: Gate, health: Health, read_busy_ns: Callable[[], int] | None = None) -> None:
        self._gate = gate
        self._health = health
        self._read_busy_ns = read_busy_ns or ThreadTime().read_ns
        self._looked_ns = 0
        self._busy_ns = 0
        self._spent: dict[TransportLink, int] | None = None  # by the last look; None: it was not busy then
        self._told: dict[tuple[str, str], int] = {}  # when an address was told of, and for which storm
        opens = "opens {} connections a second (ratelimit.connection.rate)"
        abandons = "abandons {} connections a second before it has logged in (ratelimit.connection.rate)"
        subscribes = "subscribes to and leaves {} filters a second (ratelimit.subscribe.rate)"
        self._storms = (
            _Storm(gate.opened, OPENED_PER_S, OPENED_ALL_PER_S, opens),
            _Storm(gate.abandoned, ABANDONED_PER_S, ABANDONED_ALL_PER_S, abandons),
            _Storm(gate.filters, FILTERS_PER_S, FILTERS_ALL_PER_S, subscribes, looks_needed=2),
        )

    def on_tick(self, now_ns: int) -> None:
        elapsed = now_ns - self._looked_ns
        if elapsed < INTERVAL_NS:
            return
        busy_ns = self._read_busy_ns()
        is_busy = self._looked_ns > 0 and busy_ns - self._busy_ns >= BUSY_SHARE * elapsed
        self._looked_ns, self._busy_ns = now_ns, busy_ns
        for storm in self._storms:
            for address, text in storm.look(elapsed):
                self._tell(now_ns, address, "", text, storm.words)
        ended = self._gate.take_ended()
        if not is_busy:
            self._spent = None
            return
        before = self._spent
        self._spent = {link: int(link.spent_ns) for link in [*self._gate.links, *ended]}
        if before is not None:
            self._tell_busy(now_ns, elapsed, before, self._spent)

    def _tell_busy(
        self, now_ns: int, elapsed: int, before: dict[TransportLink, int], spent_by: dict[TransportLink, int]
    ) -> None:
        by_address: dict[str, list[tuple[int, TransportLink]]] = {}
        for link, spent in spent_by.items():
            grown = spent - before.get(link, 0)
            if grown > 0:
                by_address.setdefault(link.address, []).append((grown, link))
        sums = {address: sum(grown for grown, _ in links) for address, links in by_address.items()}
        for address in sorted(sums, key=lambda name: -sums[name])[:NAMED_MAX]:
            if sums[address] < CLIENT_SHARE * elapsed:
                break
            links = by_address[address]
            _, link = max(links, key=lambda item: item[0])
            client = "" if link.endpoint is None else link.endpoint.describe()
            count = f"{len(links)} connections" if len(links) > 1 else "one connection"
            share = min(100, 100 * sums[address] // elapsed)
            self._tell(now_ns, address, client, f"what it sends takes {share} % of the time ({count})")

    def _tell(self, now_ns: int, address: str, client_id: str, text: str, kind: str = "") -> None:
        named = (
            f"{client_id} from {address}" if client_id and address not in client_id else client_id or address
        )
        self._health.report(CLIENT_BUSY, f"{named}: {text}")
        subject = (address, kind)
        if now_ns - self._told.get(subject, -QUIET_NS) < QUIET_NS:
            return
        if len(self._told) >= TOLD_MAX:
            del self._told[next(iter(self._told))]
        self._told.pop(subject, None)
        self._told[subject] = now_ns
        self._gate.observer.busy(client_id, address, text)


class ThreadTime:
    """How long this thread has run, and waited for a processor, as the kernel counts it."""

    def __init__(self) -> None:
        try:
            self._file = os.open(
                f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY | os.O_CLOEXEC
            )
        except OSError:
            self._file = -1

    def read_ns(self) -> int:
        try:
            ran, waited = os.pread(self._file, 128, 0).split()[:2]
            return int(ran) + int(waited)
        except (OSError, ValueError):
            return time.thread_time_ns()  # a kernel without these figures

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)
