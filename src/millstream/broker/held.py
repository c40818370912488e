"""What may leave only once it is safe: deliveries and releases of sessions that outlive the process.

A receiver must never see what the broker could still forget: after a crash the packet id it answers to would mean
something else, and exactly once would become twice. Everything that was appended to the store for a
packet is durable before the packet goes.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, final

from millstream.model.delivery import Delivery
from millstream.storage.store import Store

if TYPE_CHECKING:
    from millstream.broker.line import Line
    from millstream.broker.session import Session


@final
class Held:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: deque[tuple[int, Session, Line, Delivery, bool]] = deque()

    def hand_out(self, session: Session, line: Line, delivery: Delivery, is_repeat: bool) -> None:
        """Now if everything appended so far is safe, else as soon as it is; in order either way."""
        position = self._store.position()
        if not self._waiting and self._store.durable() >= position:
            session.transmit(line, delivery, is_repeat)
            return
        self._waiting.append((int(position), session, line, delivery, is_repeat))

    def on_durable(self) -> None:
        durable = self._store.durable()
        while self._waiting and self._waiting[0][0] <= durable:
            _, session, line, delivery, is_repeat = self._waiting.popleft()
            if session.line is line:  # another connection has sent it again itself
                open_before = session.window.count
                session.transmit(line, delivery, is_repeat)
                if session.window.count < open_before:  # it can never go: what waits behind it can
                    session.drain()

    def count(self) -> int:
        return len(self._waiting)
