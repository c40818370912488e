"""A channel of the raw AMQP client: what comes on it, in order, and the methods a test sends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pika.spec import Basic, BasicProperties, Channel, Confirm, Exchange, Queue, Tx

if TYPE_CHECKING:
    from raw_amqp import AmqpClient

TIMEOUT_S = 20.0  # a bound for what must come; nothing waits this long unless the broker is broken

M = TypeVar("M")


class ChannelClosed(Exception):
    def __init__(self, method: Channel.Close) -> None:
        super().__init__(f"{method.reply_code} {method.reply_text}")
        self.code: int = method.reply_code
        self.text: str = method.reply_text
        self.method = (method.class_id, method.method_id)


@dataclass
class Content:
    """A method that carries a message: basic.deliver, basic.get-ok or basic.return."""

    method: Any
    properties: BasicProperties
    body: bytes
    raw_properties: bytes
    body_frames: int

    @property
    def tag(self) -> int:
        return int(self.method.delivery_tag)

    @property
    def headers(self) -> dict[str, Any]:
        return self.properties.headers or {}


class AmqpChannel:
    def __init__(self, client: AmqpClient, number: int) -> None:
        self.client = client
        self.number = number
        self.inbox: list[Any] = []
        self.is_closed = False
        self.contents: Content | None = None  # under way
        self.missing = 0

    # ---- frames

    def send(self, method: Any) -> None:
        self.client.send(self.number, method)

    def take(self, is_wanted: Callable[[Any], bool]) -> Any:
        """The first thing that is wanted, now or when it comes; others stay in their order."""
        while True:
            for index, item in enumerate(self.inbox):
                if is_wanted(item):
                    return self.inbox.pop(index)
                if isinstance(item, Channel.Close):
                    raise ChannelClosed(self.inbox.pop(index))
            self.client.pump()

    def call(self, method: Any, answer: type[M]) -> M:
        self.send(method)
        return self.expect(answer)

    def expect(self, answer: type[M]) -> M:
        found: M = self.take(lambda item: isinstance(item, answer))
        return found

    def expect_closed(self, code: int, part: str = "") -> ChannelClosed:
        """The broker closes this channel and no other; the connection lives."""
        method = self.take(lambda item: isinstance(item, Channel.Close))
        assert method.reply_code == code, method
        assert part in method.reply_text, method
        return ChannelClosed(method)

    def expect_nothing(self) -> None:
        self.sync()
        assert self.inbox == []

    def sync(self) -> None:
        """All that was sent before has been dealt with."""
        self.call(Exchange.Declare(exchange="amq.direct", passive=True), Exchange.DeclareOk)

    # ---- methods

    def declare(self, queue: str = "", **options: Any) -> Queue.DeclareOk:
        answer = self.call(Queue.Declare(queue=queue, **options), Queue.DeclareOk)
        if not options.get("passive"):
            self.client.queues.append(answer.queue)
        return answer

    def temporary(self, **options: Any) -> str:
        """A queue of this connection, named by the broker."""
        return str(self.declare(exclusive=True, **options).queue)

    def delete(self, queue: str, **options: Any) -> int:
        return int(self.call(Queue.Delete(queue=queue, **options), Queue.DeleteOk).message_count)

    def purge(self, queue: str) -> int:
        return int(self.call(Queue.Purge(queue=queue), Queue.PurgeOk).message_count)

    def bind(self, queue: str, exchange: str, key: str = "", **arguments: Any) -> None:
        self.call(
            Queue.Bind(queue=queue, exchange=exchange, routing_key=key, arguments=arguments), Queue.BindOk
        )

    def unbind(self, queue: str, exchange: str, key: str = "", **arguments: Any) -> None:
        self.call(
            Queue.Unbind(queue=queue, exchange=exchange, routing_key=key, arguments=arguments), Queue.UnbindOk
        )

    def exchange(self, name: str, type: str = "direct", **options: Any) -> str:
        self.call(Exchange.Declare(exchange=name, type=type, **options), Exchange.DeclareOk)
        if not options.get("passive"):
            self.client.exchanges.append(name)
        return name

    def counts(self, queue: str) -> tuple[int, int]:
        """Ready messages and consumers."""
        answer = self.declare(queue, passive=True)
        return answer.message_count, answer.consumer_count

    def wait_ready(self, queue: str, count: int) -> None:
        """Dead letters and expiry happen behind the caller's back: ask until the queue holds so many."""
        wait_until(lambda: self.counts(queue)[0] == count, f"{queue} never held {count} messages")

    def publish(
        self,
        exchange: str,
        key: str,
        body: bytes = b"",
        *,
        mandatory: bool = False,
        immediate: bool = False,
        **properties: Any,
    ) -> None:
        method = Basic.Publish(exchange=exchange, routing_key=key, mandatory=mandatory, immediate=immediate)
        self.client.send_content(self.number, method, b"".join(BasicProperties(**properties).encode()), body)

    def confirm_select(self) -> None:
        self.call(Confirm.Select(), Confirm.SelectOk)

    def publish_confirmed(self, exchange: str, key: str, body: bytes = b"", **options: Any) -> None:
        """On a channel in confirm mode with nothing else under way."""
        self.publish(exchange, key, body, **options)
        assert isinstance(self.confirm(), Basic.Ack)

    def confirm(self) -> Basic.Ack | Basic.Nack:
        answer: Basic.Ack | Basic.Nack = self.take(lambda item: isinstance(item, Basic.Ack | Basic.Nack))
        return answer

    def wait_confirms(self, count: int) -> tuple[set[int], set[int]]:
        """The numbers that were confirmed and refused, once all up to `count` are answered."""
        answers: dict[bool, set[int]] = {True: set(), False: set()}
        while len(answers[True]) + len(answers[False]) < count:
            answer = self.confirm()
            known = answers[True] | answers[False]
            first = 1 if answer.multiple else answer.delivery_tag
            numbers = set(range(first, answer.delivery_tag + 1)) - known
            assert numbers, f"{answer} answers what was answered before"
            answers[isinstance(answer, Basic.Ack)] |= numbers
        return answers[True], answers[False]

    def tx_select(self) -> None:
        self.call(Tx.Select(), Tx.SelectOk)

    def commit(self) -> None:
        self.call(Tx.Commit(), Tx.CommitOk)

    def rollback(self) -> None:
        self.call(Tx.Rollback(), Tx.RollbackOk)

    def qos(self, count: int, *, is_channel_wide: bool = False) -> None:
        self.call(Basic.Qos(prefetch_count=count, global_qos=is_channel_wide), Basic.QosOk)

    def consume(self, queue: str, tag: str = "", **options: Any) -> str:
        answer = self.call(Basic.Consume(queue=queue, consumer_tag=tag, **options), Basic.ConsumeOk)
        return str(answer.consumer_tag)

    def cancel(self, tag: str) -> None:
        self.call(Basic.Cancel(consumer_tag=tag), Basic.CancelOk)

    def delivery(self) -> Content:
        return self._content(Basic.Deliver)

    def deliveries(self, count: int) -> list[Content]:
        return [self.delivery() for _ in range(count)]

    def bodies(self, count: int) -> list[bytes]:
        return [self.delivery().body for _ in range(count)]

    def returned(self) -> Content:
        return self._content(Basic.Return)

    def _content(self, kind: type) -> Content:
        found: Content = self.take(lambda item: isinstance(item, Content) and isinstance(item.method, kind))
        return found

    def get(self, queue: str, *, no_ack: bool = False) -> Content | None:
        self.send(Basic.Get(queue=queue, no_ack=no_ack))
        found = self.take(
            lambda item: (
                isinstance(item, Basic.GetEmpty)
                or (isinstance(item, Content) and isinstance(item.method, Basic.GetOk))
            )
        )
        return found if isinstance(found, Content) else None

    def drain(self, queue: str) -> list[bytes]:
        """All that waits in it, settled."""
        bodies = []
        while (found := self.get(queue, no_ack=True)) is not None:
            bodies.append(found.body)
        return bodies

    def get_one(self, queue: str, *, no_ack: bool = False) -> Content:
        found = self.get(queue, no_ack=no_ack)
        assert found is not None, f"{queue} is empty"
        return found

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        self.send(Basic.Ack(delivery_tag=tag, multiple=multiple))

    def nack(self, tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        self.send(Basic.Nack(delivery_tag=tag, multiple=multiple, requeue=requeue))

    def reject(self, tag: int, *, requeue: bool) -> None:
        self.send(Basic.Reject(delivery_tag=tag, requeue=requeue))

    def close(self) -> None:
        if not self.is_closed:
            self.call(Channel.Close(200, "done", 0, 0), Channel.CloseOk)
            self.is_closed = True
            del self.client.channels[self.number]


def wait_until(is_so: Callable[[], bool], complaint: str) -> None:
    """For what another process does in its own time and tells nobody."""
    deadline = time.monotonic() + TIMEOUT_S
    pause = threading.Event()
    while not is_so():
        assert time.monotonic() < deadline, complaint
        pause.wait(0.01)
