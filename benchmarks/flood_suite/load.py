"""The load of a flood, a process of its own: publishers at full speed, or the consumers of their queues.

`python -m benchmarks.flood_suite.load '{"role": ...}'`; every line on standard input is answered by what was counted so far.
Frames are encoded once and sent in blocks; deliveries have one length and are counted by it.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import struct
import sys
from dataclasses import dataclass

from benchmarks.load.queue_amqp import (
    BASIC_ACK,
    BASIC_CONSUME,
    BASIC_CONSUME_OK,
    BASIC_PUBLISH,
    BODY,
    CHANNEL,
    CONFIRM_SELECT,
    CONFIRM_SELECT_OK,
    FRAME_EXTRA,
    HEADER,
    METHOD,
    QUEUE_DECLARE,
    QUEUE_DECLARE_OK,
    connect_amqp,
    encode_frame,
    encode_method,
    encode_table,
    short_string,
    wait_method,
)

HOST = "127.0.0.1"
BLOCK_BYTES = 64 * 1024
WINDOW = 2000  # publishes of one publisher that may wait for their confirm
SEND_BYTES = 32 * 1024
READ_BYTES = 1024 * 1024
NO_ACK = 0x02
DURABLE = 0x02
AUTO_DELETE = 0x08
CONSUMER = b"c"
READY = "ready"


@dataclass(frozen=True)
class Job:
    role: str
    port: int
    publishers: int
    queues: int
    size: int
    is_durable: bool
    confirms: bool


def queue_name(number: int) -> bytes:
    return b"flood-%04d" % number


def properties(job: Job) -> bytes:
    return b"\x10\x00\x02" if job.is_durable else b"\x10\x00\x01"


def encode_publish(job: Job, queue: bytes) -> bytes:
    publish = b"\x00\x00" + short_string(b"") + short_string(queue) + b"\x00"
    header = struct.pack(">HHQ", 60, 0, job.size) + properties(job)
    body = encode_frame(BODY, CHANNEL, bytes(job.size)) if job.size else b""
    return encode_method(CHANNEL, BASIC_PUBLISH, publish) + encode_frame(HEADER, CHANNEL, header) + body


def publish_bytes(size: int) -> int:
    """The length of one publish."""
    return len(encode_publish(Job("publish", 0, 1, 1, size, False, False), queue_name(0)))


def delivery_bytes(job: Job) -> int:
    """The length of one delivery."""
    method = 4 + 1 + len(CONSUMER) + 8 + 1 + 1 + 1 + len(queue_name(0))
    body = job.size + FRAME_EXTRA if job.size else 0
    return method + FRAME_EXTRA + 12 + len(properties(job)) + FRAME_EXTRA + body


def last_confirmed(data: bytes, confirmed: int) -> tuple[int, bytes]:
    """The highest tag of the whole frames in it, and what is left of it."""
    position = 0
    while len(data) - position >= FRAME_EXTRA:
        end = position + int.from_bytes(data[position + 3 : position + 7], "big") + FRAME_EXTRA
        if end > len(data):
            break
        is_ack = int.from_bytes(data[position + 7 : position + 11], "big") == BASIC_ACK
        if data[position] == METHOD and is_ack:
            confirmed = max(confirmed, int.from_bytes(data[position + 11 : position + 19], "big"))
        position = end
    return confirmed, data[position:]


class Publisher:
    """Sends its block again and again; with confirms, no more than a window ahead of them."""

    def __init__(self, job: Job, number: int) -> None:
        self.socket = connect_amqp(HOST, job.port)
        # what stands in buffers of the kernel counts as published: not much may
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        if job.confirms:
            self.socket.sendall(encode_method(CHANNEL, CONFIRM_SELECT, b"\x00"))
            wait_method(self.socket, CONFIRM_SELECT_OK)
        one = encode_publish(job, queue_name(0))
        self._stride = len(one)
        count = max(job.queues, BLOCK_BYTES // self._stride // job.queues * job.queues)
        frames = [encode_publish(job, queue_name((at + number) % job.queues)) for at in range(count)]
        self._block = memoryview(b"".join(frames))
        self._sent = 0
        self._confirmed = 0
        self._unread = b""
        self._confirms = job.confirms
        self.socket.setblocking(False)

    def published(self) -> int:
        return self._sent // self._stride

    def may_send(self) -> bool:
        return not self._confirms or self.published() - self._confirmed < WINDOW

    def send(self) -> None:
        at = self._sent % len(self._block)
        end = len(self._block)
        if self._confirms:
            room = (WINDOW + self._confirmed) * self._stride - self._sent
            end = min(end, at + room)
        try:
            self._sent += self.socket.send(self._block[at:end])
        except BlockingIOError:
            return

    def receive(self) -> None:
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise ConnectionError("the broker closed a publisher's connection")
        if self._confirms:
            self._confirmed, self._unread = last_confirmed(self._unread + data, self._confirmed)


class Consumer:
    def __init__(self, job: Job, number: int) -> None:
        self.socket = connect_amqp(HOST, job.port)
        queue = queue_name(number)
        flags = DURABLE if job.is_durable else AUTO_DELETE
        declare = b"\x00\x00" + short_string(queue) + bytes([flags]) + encode_table({})
        self.socket.sendall(encode_method(CHANNEL, QUEUE_DECLARE, declare))
        wait_method(self.socket, QUEUE_DECLARE_OK)
        consume = b"\x00\x00" + short_string(queue) + short_string(CONSUMER) + bytes([NO_ACK])
        self.socket.sendall(encode_method(CHANNEL, BASIC_CONSUME, consume + encode_table({})))
        wait_method(self.socket, BASIC_CONSUME_OK)
        self.received = 0
        self._buffer = bytearray(READ_BYTES)
        self.socket.setblocking(False)

    def receive(self) -> None:
        size = self.socket.recv_into(self._buffer)
        if not size:
            raise ConnectionError("the broker closed a consumer's connection")
        self.received += size


def answer(counts: list[int]) -> None:
    sys.stdout.write(json.dumps(counts) + "\n")
    sys.stdout.flush()


def publish(job: Job) -> None:
    publishers = [Publisher(job, number) for number in range(job.publishers)]
    wanted: dict[int, int] = {}
    with selectors.EpollSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        for publisher in publishers:
            selector.register(publisher.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, publisher)
            wanted[publisher.socket.fileno()] = selectors.EVENT_READ | selectors.EVENT_WRITE
        print(READY, flush=True)
        sys.stdin.readline()
        while True:
            for key, events in selector.select():
                sender = key.data
                if sender is None:
                    if not os.read(0, 1):
                        return
                    answer([each.published() for each in publishers])
                    continue
                if events & selectors.EVENT_READ:
                    sender.receive()
                if events & selectors.EVENT_WRITE and sender.may_send():
                    sender.send()
                interest = selectors.EVENT_READ | (selectors.EVENT_WRITE if sender.may_send() else 0)
                if wanted[key.fd] != interest:
                    wanted[key.fd] = interest
                    selector.modify(sender.socket, interest, sender)


def consume(job: Job) -> None:
    consumers = [Consumer(job, number) for number in range(job.queues)]
    stride = delivery_bytes(job)
    with selectors.EpollSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        for consumer in consumers:
            selector.register(consumer.socket, selectors.EVENT_READ, consumer)
        print(READY, flush=True)
        sys.stdin.readline()
        while True:
            for key, _ in selector.select():
                if key.data is None:
                    if not os.read(0, 1):
                        return
                    answer([each.received // stride for each in consumers])
                else:
                    key.data.receive()


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    try:
        publish(job) if job.role == "publish" else consume(job)
    except (TimeoutError, ConnectionError) as fault:
        print(json.dumps({"fault": str(fault)}), flush=True)


if __name__ == "__main__":
    main()
