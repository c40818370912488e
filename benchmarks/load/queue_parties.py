"""Publishers and consumers of a queue, whatever protocol they speak, and the ledger of what was delivered.

Invariants
- A publisher never has more messages unconfirmed than its window; a message counts as confirmed only by the broker's word.
- A consumer settles every delivery, one by one, and enters it in the ledger by the number in its payload.
- The ledger tells a repeated delivery from a new one, so a rate never counts a message twice.
"""

from __future__ import annotations

import socket
from time import perf_counter_ns
from typing import Final

from benchmarks.load.frames import SEQUENCE_LENGTH, FrameFault
from benchmarks.load.peers import read_into, send_some

LEDGER_GROWTH: Final = 1 << 16
READ_BYTES: Final = 256 * 1024


class Ledger:
    """Which of the numbered messages were delivered, and how many came more than once."""

    def __init__(self) -> None:
        self._seen = bytearray()
        self.delivered = 0
        self.repeated = 0

    def note(self, sequence: int) -> None:
        if sequence >= len(self._seen):
            if sequence > len(self._seen) + (1 << 28):
                raise FrameFault(f"a delivery with the impossible number {sequence}")
            self._seen += bytes(sequence - len(self._seen) + LEDGER_GROWTH)
        if self._seen[sequence]:
            self.repeated += 1
        else:
            self._seen[sequence] = 1
            self.delivered += 1


def read_sequence(buffer: bytearray, position: int) -> int:
    return int.from_bytes(buffer[position : position + SEQUENCE_LENGTH], "big")


def read_exactly(connection: socket.socket, count: int) -> bytes:
    """Not a byte more: what follows an answer may be the first delivery."""
    found = b""
    while len(found) < count:
        part = connection.recv(count - len(found))
        if not part:
            raise FrameFault("the broker closed the connection during the handshake")
        found += part
    return found


class Party:
    """One connection: `take` is told what arrived, and puts what is to be answered into `unsent`."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.unsent = bytearray()
        self._unread = b""

    def take(self, buffer: bytearray, end: int) -> int:
        """Work through whole packets from the start of the buffer; where the first incomplete one begins."""
        raise NotImplementedError

    def on_readable(self, buffer: bytearray, view: memoryview) -> None:
        kept = len(self._unread)
        if kept >= len(buffer):
            raise FrameFault("a packet larger than any expected here")
        buffer[:kept] = self._unread
        count = read_into(self.connection, view[kept:], 0)
        if count == 0:
            return
        end = kept + count
        position = self.take(buffer, end)
        self._unread = bytes(buffer[position:end])
        self.flush()

    def flush(self) -> None:
        """What the socket does not take waits for the next call."""
        if self.unsent:
            count = send_some(self.connection, memoryview(bytes(self.unsent)))
            del self.unsent[:count]

    def close(self) -> None:
        self.connection.close()


class QueuePublisher(Party):
    """Sends numbered messages and counts the broker's confirms."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self.sent = 0
        self.confirmed = 0
        self.sent_ns = 0  # when the last batch went out

    def encode(self, sequence: int) -> bytes:
        raise NotImplementedError

    def publish(self, first: int, count: int) -> None:
        for sequence in range(first, first + count):
            self.unsent += self.encode(sequence)
            self.sent += 1
        self.sent_ns = perf_counter_ns()
        self.flush()


class QueueConsumer(Party):
    """Receives deliveries and settles each."""

    def __init__(self, connection: socket.socket, ledger: Ledger) -> None:
        super().__init__(connection)
        self._ledger = ledger
