"""Fills a stream through MQTT, as fast as the broker confirms or at a steady rate; a process of its own.

Reads one job as JSON from standard input and prints one line of JSON. Packets are made by the thousand: every payload is
random, nothing else changes, so the publisher costs next to nothing beside the broker.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from typing import Final

import numpy as np

from benchmarks.load.frames import encode_length, encode_string
from benchmarks.load.queue_mqtt import connect_mqtt

PUBLISH_ONCE: Final = b"\x32"  # QoS 1
ANSWER_BYTES: Final = 4
TOPICS: Final = 200
PAYLOAD_BYTES: Final = 100
CONNECTIONS: Final = 4
BLOCK: Final = 250  # messages sent at once
BLOCKS_AHEAD: Final = 2  # of a connection, before the first must be confirmed
TICK_S: Final = 0.01  # of the steady rate
READ_BYTES: Final = 1 << 16


class Blocks:
    """Packets for `count` messages at a time, all of one length; payloads are new in every block."""

    def __init__(self, queue: str, count: int, first_id: int, lane: int = 0) -> None:
        packets = [self._packet(queue, place % TOPICS, first_id + place) for place in range(count)]
        self._table = np.frombuffer(b"".join(packets), np.uint8).reshape(count, -1).copy()
        # Of its own for every lane: payloads that come again would be kept once in a dictionary of Parquet.
        self._chance = np.random.default_rng((lane, first_id))

    def _packet(self, queue: str, device: int, packet_id: int) -> bytes:
        topic = encode_string(f"{queue}/7/device/{device:09d}".encode())
        rest = topic + packet_id.to_bytes(2, "big") + bytes(PAYLOAD_BYTES)
        return PUBLISH_ONCE + encode_length(len(rest)) + rest

    def take(self) -> bytes:
        random = self._chance.bytes(len(self._table) * PAYLOAD_BYTES)
        self._table[:, -PAYLOAD_BYTES:] = np.frombuffer(random, np.uint8).reshape(-1, PAYLOAD_BYTES)
        return self._table.tobytes()


class Lane:
    """One connection: blocks go out, confirms are counted."""

    def __init__(self, port: int, queue: str, number: int) -> None:
        self.connection: socket.socket = connect_mqtt("127.0.0.1", port, f"bench-{queue}-{number}", True)
        self.connection.settimeout(60)
        self._blocks = [Blocks(queue, BLOCK, 1 + turn * BLOCK, number) for turn in range(BLOCKS_AHEAD)]
        self._sent = 0
        self._answered = 0  # bytes

    def send(self) -> None:
        self.wait(self._sent - BLOCKS_AHEAD + 1)
        self.connection.sendall(self._blocks[self._sent % BLOCKS_AHEAD].take())
        self._sent += 1

    def wait(self, blocks: int) -> None:
        """Until so many blocks are confirmed."""
        while self._answered < blocks * BLOCK * ANSWER_BYTES:
            self._take_answers()

    def finish(self) -> None:
        self.wait(self._sent)
        self.connection.close()

    def _take_answers(self) -> None:
        data = self.connection.recv(READ_BYTES)
        if not data:
            raise SystemExit("the broker closed the connection")
        self._answered += len(data)


def fill(port: int, queue: str, rows: int) -> dict[str, object]:
    """A whole number of blocks; all of them are confirmed when it returns."""
    lanes = [Lane(port, queue, number) for number in range(CONNECTIONS)]
    started = time.monotonic()
    for number in range(-(-rows // BLOCK)):
        lanes[number % CONNECTIONS].send()
    for lane in lanes:
        lane.finish()
    return {"rows": -(-rows // BLOCK) * BLOCK, "seconds": time.monotonic() - started}


def pace(port: int, queue: str, rate: int, seconds: float) -> dict[str, object]:
    """One connection, so that offsets follow the order of sending; gives when each block went out."""
    block = int(rate * TICK_S)
    connection = connect_mqtt("127.0.0.1", port, f"bench-{queue}-paced", True)
    connection.settimeout(60)
    turns = [Blocks(queue, block, 1 + turn * block) for turn in range(65_000 // block)]
    stamps_ns: list[int] = []
    answered = 0
    total = int(seconds / TICK_S)
    started = time.monotonic()
    while answered < total * block * ANSWER_BYTES:
        wait_s = started + len(stamps_ns) * TICK_S - time.monotonic() if len(stamps_ns) < total else 60.0
        if wait_s <= 0:
            stamps_ns.append(time.time_ns())
            connection.sendall(turns[len(stamps_ns) % len(turns)].take())
            wait_s = 0.0
        if select.select([connection], [], [], wait_s)[0]:
            data = connection.recv(READ_BYTES)
            if not data:
                raise SystemExit("the broker closed the connection")
            answered += len(data)
    connection.close()
    return {"rows": total * block, "block": block, "stamps_ns": stamps_ns, "late_s": late(stamps_ns)}


def late(stamps_ns: list[int]) -> float:
    """How far the last block was behind its time: a publisher that fell behind measured nothing."""
    return (stamps_ns[-1] - stamps_ns[0]) / 1e9 - (len(stamps_ns) - 1) * TICK_S


def main() -> int:
    job = json.loads(sys.stdin.read())
    if job["rate"]:
        answer = pace(job["port"], job["queue"], job["rate"], job["seconds"])
    else:
        answer = fill(job["port"], job["queue"], job["rows"])
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
