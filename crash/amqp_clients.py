"""Clients of RabbitMQ's kind (aio-pika) that note what the broker promised them: confirms, commits, declarations.

Each one goes on until it is told to stop, and comes back whenever the broker does.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection

EXCHANGE = "crash.direct"
QUEUE = "crash.work"
COMMITTED = "crash.committed"
WINDOW = 64
TRANSACTION = 5
CONNECT_S = 5.0
ANSWER_S = 20.0
# the library ends what waits for a dead connection with whatever it finds, a bare Exception included
FAULTS = (Exception, asyncio.CancelledError)


class Journal:
    """What was promised and what arrived."""

    def __init__(self) -> None:
        self.confirmed: dict[bytes, None] = {}
        self.grown = asyncio.Event()  # something was confirmed
        self.refused = 0
        self.committed: dict[bytes, None] = {}  # transactions, by name
        self.begun: dict[bytes, None] = {}
        self.arrived: dict[bytes, int] = {}  # body: how often
        self.declared: dict[
            int, None
        ] = {}  # exchange, queue and binding of that number, with a message in the queue
        self.deleted: dict[int, None] = {}


class AmqpClient(ABC):
    def __init__(self, journal: Journal, find_port: Callable[[], int]) -> None:
        self.journal = journal
        self._find_port = find_port
        self.is_stopping = False

    async def run(self) -> None:
        while not self.is_stopping:
            connection: AbstractConnection | None = None
            try:
                port = self._find_port()
                connection = await asyncio.wait_for(
                    aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/", timeout=CONNECT_S), CONNECT_S
                )
                await self.serve(connection)
            except FAULTS:
                if self.is_stopping:
                    break
                await asyncio.sleep(0.05)  # the broker is away: there is no event to wait for
            finally:
                if connection is not None:
                    try:
                        await asyncio.wait_for(connection.close(), 2)
                    except FAULTS:
                        pass  # it was gone before

    @abstractmethod
    async def serve(self, connection: AbstractConnection) -> None: ...


class Publisher(AmqpClient):
    """Confirms, a window of them at a time."""

    def __init__(self, journal: Journal, find_port: Callable[[], int], name: str) -> None:
        super().__init__(journal, find_port)
        self._name = name
        self._number = 0

    async def serve(self, connection: AbstractConnection) -> None:
        channel = await connection.channel(publisher_confirms=True)
        exchange = await channel.get_exchange(EXCHANGE)
        while not self.is_stopping:
            bodies: list[bytes] = []
            for _ in range(WINDOW):
                self._number += 1
                bodies.append(f"{self._name}:{self._number}".encode())
            publishes = [
                exchange.publish(
                    aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT),
                    "work",
                    mandatory=True,
                )
                for body in bodies
            ]
            answers = await asyncio.wait_for(asyncio.gather(*publishes, return_exceptions=True), ANSWER_S)
            for body, answer in zip(bodies, answers, strict=True):
                if isinstance(answer, BaseException):
                    self.journal.refused += 1
                else:
                    self.journal.confirmed[body] = None
                    self.journal.grown.set()
            if channel.is_closed or connection.is_closed:
                return


class Committer(AmqpClient):
    """Transactions: all of one is there after commit-ok, and never a part of it."""

    def __init__(self, journal: Journal, find_port: Callable[[], int], name: str) -> None:
        super().__init__(journal, find_port)
        self._name = name
        self._number = 0

    async def serve(self, connection: AbstractConnection) -> None:
        channel = await connection.channel(publisher_confirms=False)
        exchange = await channel.get_exchange(EXCHANGE)
        transaction = channel.transaction()
        await transaction.select()
        while not self.is_stopping:
            self._number += 1
            name = f"{self._name}:{self._number}".encode()
            self.journal.begun[name] = None
            for part in range(TRANSACTION):
                await exchange.publish(
                    aio_pika.Message(
                        name + b":" + str(part).encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT
                    ),
                    "committed",
                )
            await asyncio.wait_for(transaction.commit(), ANSWER_S)
            self.journal.committed[name] = None


class Declarer(AmqpClient):
    """Declares, binds, publishes one message through the binding, and now and then deletes."""

    def __init__(self, journal: Journal, find_port: Callable[[], int]) -> None:
        super().__init__(journal, find_port)
        self._number = 0

    async def serve(self, connection: AbstractConnection) -> None:
        channel = await connection.channel(publisher_confirms=True)
        while not self.is_stopping:
            self._number += 1
            await asyncio.wait_for(self._declare(channel, self._number), ANSWER_S)

    async def _declare(self, channel: AbstractChannel, number: int) -> None:
        exchange = await channel.declare_exchange(f"crash.x.{number}", durable=True)
        queue = await channel.declare_queue(f"crash.q.{number}", durable=True)
        await queue.bind(exchange, f"key.{number}")
        message = aio_pika.Message(b"kept", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await exchange.publish(message, f"key.{number}", mandatory=True)
        self.journal.declared[number] = None
        if number % 4 == 0:
            del self.journal.declared[number]  # from here on it may be there or not, until the answer
            await channel.queue_delete(f"crash.q.{number}")
            self.journal.deleted[number] = None


class Worker(AmqpClient):
    """Takes what is in a queue and answers it."""

    def __init__(self, journal: Journal, find_port: Callable[[], int], queue: str) -> None:
        super().__init__(journal, find_port)
        self._queue = queue

    async def serve(self, connection: AbstractConnection) -> None:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=100)
        queue = await channel.get_queue(self._queue)
        async with queue.iterator() as messages:
            async for message in messages:
                arrived = self.journal.arrived
                arrived[message.body] = arrived.get(message.body, 0) + 1
                await message.ack()
                if self.is_stopping:
                    return
