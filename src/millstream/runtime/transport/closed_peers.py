"""Finds connections that their clients have closed while the broker does not read them.

The event loop tells of the end of a connection when it reads it. One that waits for memory is not read until there is
some, and what it holds, subscriptions for example, may be what there is too much of: then nobody would ever tell.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from millstream.runtime.transport.gate import Gate
    from millstream.runtime.transport.link import TransportLink

TICKS: Final = 20  # from the end of one look at all connections to the next
LINKS_PER_TICK: Final = 1000
RESET: Final = select.POLLHUP | select.POLLERR
CLOSED: Final = getattr(select, "POLLRDHUP", 0)


class ClosedPeers:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._left: list[TransportLink] = []
        self._ticks = 0

    def on_tick(self) -> None:
        if not self._left:
            self._ticks += 1
            if self._ticks < TICKS:
                return
            self._ticks = 0
            self._left = list(self._gate.links)
        links = self._left[-LINKS_PER_TICK:]
        del self._left[-LINKS_PER_TICK:]
        self._look([link for link in links if not link.waits_for_peer])

    def _look(self, links: list[TransportLink]) -> None:
        poll = select.poll()
        by_number: dict[int, TransportLink] = {}
        for link in links:
            number = find_descriptor(link)
            if number >= 0:
                by_number[number] = link
                poll.register(number, CLOSED)
        if by_number:
            for number, events in poll.poll(0):
                by_number[number].on_peer_closed(events & RESET != 0)


def find_descriptor(link: TransportLink) -> int:
    """Of its socket; -1 if there is none any more."""
    transport = link.transport
    socket = None if transport is None or transport.is_closing() else transport.get_extra_info("socket")
    return -1 if socket is None else int(socket.fileno())
