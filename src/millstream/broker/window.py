"""Numbered deliveries of one session: which packet id stands for which delivery.

Ids count up and wrap at 65535, or sooner where the receiver may hold some of them for others (at twice the window at
least), so an id is not used again soon after it was settled. The slots are a ring of a power of two, at least twice the
window, so looking one up is an index and a comparison.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.model.delivery import Delivery

PACKET_ID_MAX: Final[i64] = 65_535


@final
class Window:
    def __init__(self, limit: i64) -> None:
        self.limit: i64 = limit  # deliveries that may be open on this connection
        self.open: i64 = 0  # handed out on this connection, not settled
        self.count: i64 = 0  # numbered, not settled
        self._last_id: i64 = 0
        self._id_max: i64 = PACKET_ID_MAX
        self._slots: list[Delivery | None] = EMPTY
        self._mask: i64 = 0

    def add(self, delivery: Delivery) -> None:
        """Number it. The caller has checked that the window has room."""
        if self.count * 2 >= len(self._slots):
            self._grow()
        slots = self._slots
        mask: i64 = self._mask
        packet_id: i64 = self._last_id
        while True:
            packet_id += 1
            if packet_id > self._id_max:
                packet_id = 1
            if slots[packet_id & mask] is None:
                break
        self._last_id = packet_id
        slots[packet_id & mask] = delivery
        delivery.packet_id = packet_id
        self.count += 1

    def use_ids(self, id_max: i64, last_id: i64) -> None:
        """Keep to the ids up to `id_max`, twice the window or more, and go on behind `last_id`."""
        self._id_max = id_max
        self._last_id = last_id

    def put_back(self, delivery: Delivery) -> None:
        """Place a delivery that already has its id: a session restored from the store."""
        while self.count * 2 >= len(self._slots) or self._slots[delivery.packet_id & self._mask] is not None:
            self._grow()
        self._slots[delivery.packet_id & self._mask] = delivery
        self._last_id = delivery.packet_id
        self.count += 1

    def find(self, packet_id: i64) -> Delivery | None:
        if self.count == 0:
            return None
        delivery = self._slots[packet_id & self._mask]
        if delivery is None or delivery.packet_id != packet_id:
            return None
        return delivery

    def remove(self, delivery: Delivery) -> None:
        self._slots[delivery.packet_id & self._mask] = None
        self.count -= 1

    def in_order(self) -> list[Delivery]:
        """Oldest first."""
        found = [delivery for delivery in self._slots if delivery is not None]
        found.sort(key=sequence_of)
        return found

    def clear(self) -> None:
        self._slots = EMPTY
        self._mask = 0
        self.count = 0
        self.open = 0

    def shrink(self) -> None:
        """Give the slots back while nothing is numbered: an idle session stays small."""
        if self.count == 0:
            self.clear()

    def _grow(self) -> None:
        size = max(16, len(self._slots) * 2)
        slots: list[Delivery | None] = [None] * size
        mask: i64 = size - 1
        for delivery in self._slots:
            if delivery is not None:
                slots[delivery.packet_id & mask] = delivery
        self._slots = slots
        self._mask = mask


def sequence_of(delivery: Delivery) -> int:
    return int(delivery.sequence)


EMPTY: Final[list[Delivery | None]] = []
