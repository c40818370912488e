"""aio-pika: robust connections, iterators, RPC and confirms, as asynchronous services use them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

import aio_pika
import aiormq.exceptions
import pytest
import pytest_asyncio
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage
from aio_pika.exceptions import ChannelPreconditionFailed, DeliveryError, PublishError
from aio_pika.patterns import RPC, Master
from amqp_names import unique

pytest_plugins = ["amqp_broker"]

TIMEOUT_S = 20.0
T = TypeVar("T")


def soon(awaitable: Awaitable[T]) -> Awaitable[T]:
    return asyncio.wait_for(awaitable, TIMEOUT_S)


@pytest_asyncio.fixture
async def connection(amqp_url: str) -> AsyncIterator[AbstractConnection]:
    async with await aio_pika.connect_robust(amqp_url, timeout=TIMEOUT_S) as connection:
        yield connection


@pytest_asyncio.fixture
async def channel(connection: AbstractConnection) -> AbstractChannel:
    return await connection.channel()


async def test_publish_and_iterate(channel: AbstractChannel) -> None:
    queue = await channel.declare_queue(exclusive=True)
    for number in range(10):
        await channel.default_exchange.publish(aio_pika.Message(b"%d" % number), queue.name)
    got = []
    async with queue.iterator(timeout=TIMEOUT_S) as messages:
        async for message in messages:
            async with message.process():
                got.append(message.body)
            if len(got) == 10:
                break
    assert got == [b"%d" % number for number in range(10)]


async def test_messages_arrive_whole(channel: AbstractChannel) -> None:
    queue = await channel.declare_queue(exclusive=True)
    sent = aio_pika.Message(
        b"\x00\xff" * 100_000,
        headers={"a": 1, "b": "two", "c": [1, 2], "d": {"e": True}},
        content_type="application/octet-stream",
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        priority=4,
        correlation_id="c",
        reply_to="r",
        expiration=60,
        message_id="m",
        type="t",
        app_id="app",
    )
    await channel.default_exchange.publish(sent, queue.name)
    found = await queue.get(timeout=TIMEOUT_S)
    assert found is not None
    for name in (
        "body",
        "headers",
        "content_type",
        "delivery_mode",
        "priority",
        "correlation_id",
        "reply_to",
        "expiration",
        "message_id",
        "type",
        "app_id",
    ):
        assert getattr(found, name) == getattr(sent, name), name


async def test_every_exchange_type(channel: AbstractChannel) -> None:
    for kind, key, arguments, headers in (
        (aio_pika.ExchangeType.DIRECT, "k", None, {}),
        (aio_pika.ExchangeType.FANOUT, "", None, {}),
        (aio_pika.ExchangeType.TOPIC, "a.#", None, {}),
        (aio_pika.ExchangeType.HEADERS, "", {"x-match": "any", "color": "red"}, {"color": "red"}),
    ):
        exchange = await channel.declare_exchange(unique("x"), kind, auto_delete=True)
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(exchange, key, arguments=arguments)
        published = key.replace("#", "b.c")
        await exchange.publish(aio_pika.Message(kind.value.encode(), headers=headers), published)
        found = await queue.get(timeout=TIMEOUT_S)
        assert found is not None
        assert (found.body, found.routing_key) == (kind.value.encode(), published)


async def test_exchanges_bound_to_exchanges(channel: AbstractChannel) -> None:
    source = await channel.declare_exchange(unique("x"), "topic", auto_delete=True)
    target = await channel.declare_exchange(unique("x"), "fanout", auto_delete=True)
    await target.bind(source, "a.*")
    queue = await channel.declare_queue(exclusive=True)
    await queue.bind(target)
    await source.publish(aio_pika.Message(b"x"), "a.b")
    assert (await queue.get(timeout=TIMEOUT_S)).body == b"x"


async def test_an_unroutable_message_comes_back(connection: AbstractConnection) -> None:
    raising = await connection.channel(on_return_raises=True)
    exchange = await raising.get_exchange("amq.direct")
    with pytest.raises((PublishError, DeliveryError)):
        await soon(exchange.publish(aio_pika.Message(b"x"), unique("nobody"), mandatory=True))
    returning = await connection.channel(on_return_raises=False)
    came_back: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    returning.return_callbacks.add(lambda _channel, message: came_back.set_result(message.body))
    exchange = await returning.get_exchange("amq.direct")
    await exchange.publish(aio_pika.Message(b"back"), unique("nobody"), mandatory=True)
    assert await soon(came_back) == b"back"


async def test_a_thousand_confirms_at_once(amqp_url: str, channel: AbstractChannel) -> None:
    queue = await channel.declare_queue(unique(), durable=True)
    await soon(
        asyncio.gather(
            *(
                channel.default_exchange.publish(
                    aio_pika.Message(b"%d" % number, delivery_mode=2), queue.name
                )
                for number in range(1000)
            )
        )
    )
    async with await aio_pika.connect(amqp_url) as other:
        state = await (await other.channel()).declare_queue(queue.name, passive=True)
        assert state.declaration_result.message_count == 1000
    await queue.delete(if_unused=False, if_empty=False)


async def test_a_refused_publish_is_an_error(channel: AbstractChannel) -> None:
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    queue = await channel.declare_queue(exclusive=True, arguments=arguments)
    await channel.default_exchange.publish(aio_pika.Message(b"fits"), queue.name)
    with pytest.raises((DeliveryError, PublishError)):
        await soon(channel.default_exchange.publish(aio_pika.Message(b"too much"), queue.name))


async def test_transactions(connection: AbstractConnection) -> None:
    channel = await connection.channel(publisher_confirms=False)
    queue = await channel.declare_queue(exclusive=True)
    transaction = channel.transaction()
    await transaction.select()
    await channel.default_exchange.publish(aio_pika.Message(b"never"), queue.name)
    await transaction.rollback()
    async with channel.transaction():
        await channel.default_exchange.publish(aio_pika.Message(b"once"), queue.name)
    found = await queue.get(timeout=TIMEOUT_S)
    assert found is not None
    assert found.body == b"once"
    assert await queue.get(fail=False, timeout=TIMEOUT_S) is None


async def test_requeue_and_dead_letters(channel: AbstractChannel) -> None:
    letters = await channel.declare_queue(exclusive=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": letters.name}
    queue = await channel.declare_queue(exclusive=True, arguments=arguments)
    await channel.default_exchange.publish(aio_pika.Message(b"x"), queue.name)
    first = await queue.get(timeout=TIMEOUT_S)
    assert first is not None
    await first.nack(requeue=True)
    again = await queue.get(timeout=TIMEOUT_S)
    assert again is not None
    assert again.redelivered
    await again.reject(requeue=False)
    arrived: asyncio.Future[AbstractIncomingMessage] = asyncio.get_running_loop().create_future()

    async def on_letter(message: AbstractIncomingMessage) -> None:
        arrived.set_result(message)

    await letters.consume(on_letter, no_ack=True)
    letter = await soon(arrived)
    assert letter.headers["x-death"][0]["reason"] == "rejected"  # type: ignore[index,call-overload]


async def test_remote_procedure_calls(connection: AbstractConnection) -> None:
    server_channel, client_channel = await connection.channel(), await connection.channel()
    server, client = await RPC.create(server_channel), await RPC.create(client_channel)

    async def multiply(*, x: int, y: int) -> int:
        return x * y

    name = unique("multiply")
    await server.register(name, multiply, auto_delete=True)
    answers = await soon(
        asyncio.gather(*(client.call(name, kwargs={"x": number, "y": 2}) for number in range(50)))
    )
    assert answers == [number * 2 for number in range(50)]
    await client.close()
    await server.close()


async def test_master_and_worker(connection: AbstractConnection) -> None:
    channel = await connection.channel()
    master = Master(channel)
    done: asyncio.Queue[int] = asyncio.Queue()

    async def work(*, number: int) -> None:
        done.put_nowait(number)

    name = unique("worker")
    worker = await master.create_worker(name, work, auto_delete=True)
    for number in range(20):
        await master.create_task(name, kwargs={"number": number})
    assert sorted([await soon(done.get()) for _ in range(20)]) == list(range(20))
    await worker.close()


async def test_a_conflict_closes_the_channel_and_it_opens_again(connection: AbstractConnection) -> None:
    channel = await connection.channel()
    queue = await channel.declare_queue(unique(), durable=True)
    with pytest.raises(ChannelPreconditionFailed):
        await channel.declare_queue(queue.name, durable=False)
    fresh = await connection.channel()
    await fresh.queue_delete(queue.name)


async def test_a_wrong_virtual_host_is_refused(amqp_url: str) -> None:
    with pytest.raises((aiormq.exceptions.AMQPError, ConnectionError)):
        await soon(aio_pika.connect(amqp_url + "nowhere"))


async def test_a_robust_connection_comes_back_with_its_queues(amqp_url: str) -> None:
    connection = await aio_pika.connect_robust(amqp_url, reconnect_interval=0.1)
    channel = await connection.channel()
    queue = await channel.declare_queue(unique(), durable=True)
    got: asyncio.Queue[bytes] = asyncio.Queue()

    async def on_message(message: AbstractIncomingMessage) -> None:
        async with message.process():
            got.put_nowait(message.body)

    await queue.consume(on_message)
    returned = asyncio.Event()
    connection.reconnect_callbacks.add(lambda _connection: returned.set())
    transport = connection.transport
    assert transport is not None
    await transport.connection.close(ConnectionResetError("cut"))
    await soon(returned.wait())
    await soon(connection.ready())
    async with await aio_pika.connect(amqp_url) as other:
        other_channel = await other.channel()
        await other_channel.default_exchange.publish(aio_pika.Message(b"after"), queue.name)
        assert await soon(got.get()) == b"after"
        await connection.close()
        await other_channel.queue_delete(queue.name)
