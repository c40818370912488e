"""A broker in memory with the operations of the control channel on it, called without a socket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fakes import START_NS, HeldStore, make_message

from millstream.admin.context import AdminContext
from millstream.app.control import make_operations
from millstream.broker.account_options import AccountOptions
from millstream.broker.broker import Broker
from millstream.model.errors import Reason
from millstream.model.limits import Limits
from millstream.runtime.control.server import Conversation
from millstream.security.acl import Authorizer
from millstream.storage.segments.record_source import RecordSource, RecordWaiter


class BreakableStore(HeldStore):
    """`is_broken`: nothing can be made durable now. `kinds` are those of the facts about queues, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.is_broken = False
        self.kinds: list[int] = []

    def queue_fact(self, kind: int, body: bytes) -> int:
        self.kinds.append(int(kind))
        return super().queue_fact(kind, body)

    def refusal(self) -> Reason:
        return Reason.UNAVAILABLE if self.is_broken else Reason.SUCCESS


class ListenedTo(Conversation):
    """Keeps what it is told; nobody is at the other end."""

    def __init__(self) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self.told: list[Mapping[str, object]] = []

    async def send(self, answer: Mapping[str, object]) -> None:
        self.told.append(answer)


class Shelf(RecordSource):
    """Records that have left memory, by offset."""

    def __init__(self) -> None:
        self.records: dict[int, bytes] = {}

    def request(self, queue: int, first: int, end: int, waiter: RecordWaiter) -> None:
        waiter.on_records(self.read(queue, first, end, 1000), end)

    def read(self, queue: int, first: int, end: int, count_max: int) -> list[bytes]:
        found = [body for offset, body in sorted(self.records.items()) if first <= offset < end]
        return found[:count_max]

    def find_time(self, queue: int, wall_ns: int) -> int:
        return -1


class ControlWorld:
    def __init__(
        self,
        accounts: tuple[str, ...] = (),
        source: RecordSource | None = None,
        default: AccountOptions | None = None,
    ) -> None:
        self.store = BreakableStore()
        options = {name: AccountOptions() for name in accounts}
        if default is not None:
            options["default"] = default
        self.broker = Broker(Limits(), self.store, Authorizer(None), options, source)
        self.broker.clock.now_ns = START_NS
        self.context = AdminContext(self.broker)
        self.operations = make_operations(self.context)
        self.conversation = ListenedTo()

    async def ask(self, operation: str, conversation: Conversation | None = None, **fields: object) -> Any:
        return await self.operations[operation](dict(fields), conversation or self.conversation)

    async def fill(self, name: str, count: int, kind: str = "work", **definition: object) -> None:
        """A queue with the payloads 0, 1, 2 …"""
        await self.ask("queue.create", name=name, definition={"kind": kind, **definition})
        queue = self.broker.get_account("default").queues.catalog.get(name)
        for number in range(count):
            queue.append(make_message(f"$queue/{name}".encode(), str(number).encode(), 1))

    def publish(self, topic: bytes, payload: bytes) -> Reason:
        return self.broker.publish_internal(
            self.broker.get_account("default"), make_message(topic, payload, 1), None
        )

    def queue(self, name: str) -> Any:
        return self.broker.get_account("default").queues.catalog.get(name)

    async def payloads(self, name: str) -> list[str]:
        """Of everything that waits in a queue."""
        found: list[str] = []
        offset: int | None = None
        while True:
            start = {} if offset is None else {"offset": offset}
            page = await self.ask("queue.peek", name=name, count=1000, **start)
            found += [record["payload"] for record in page["records"]]
            if not page["more"]:
                return found
            offset = page["next_offset"]
