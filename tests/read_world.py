"""A broker on a simulated disk that is given one client's bytes read by read, and all that can be seen of it after."""

from __future__ import annotations

from fakes import SIZE_MAX, MqttPeer, MqttWorld
from segment_records import read_all

from millstream.model.limits import Limits
from millstream.protocols.mqtt.wire.decode import decode_frame
from millstream.protocols.mqtt.wire.packets import (
    Connect,
    Disconnect,
    Packet,
    Publish,
    Subscribe,
    SubscribeEntry,
)
from millstream.queues.catalog import Catalog
from millstream.queues.definition import make_definition
from millstream.queues.queue import Queue
from millstream.runtime.disk.failpoints import NoFailpoints
from millstream.security.acl import Authorizer, parse_acl
from millstream.storage.memory_store import MemoryStore
from millstream.storage.records.queue_records import decode_record, decode_record_message, record_place
from millstream.storage.records.stored_queue import StoredQueue
from millstream.storage.store import StoredState
from simulation.disk import Mood, SimulatedDisk
from simulation.node import Node
from simulation.table import SimulatedTable
from simulation.workload import describe_message

FILE_SIZE = 1 << 16
ACL = {"default": "allow", "rules": [{"deny": "publish", "topics": ["forbidden/#"]}]}

Row = tuple[object, ...]


class ReadWorld:
    """`subscriber` has what goes to both/1 besides its queue, `reader` the stream, `consumer` a queue of its own."""

    def __init__(
        self,
        queues: dict[str, dict[str, object]],
        limits: Limits,
        version: int,
        others: int = 5,
        is_safe_at_once: bool = False,
    ) -> None:
        self._disk = SimulatedDisk()
        self._table = SimulatedTable()
        self.node = Node(self._disk, self._table, NoFailpoints(), FILE_SIZE)
        self.is_safe_at_once = is_safe_at_once  # the disk is not asked
        store = MemoryStore() if is_safe_at_once else self.node.store
        self.world = MqttWorld(limits, store, Authorizer(parse_acl(ACL)))
        self.world.broker.restore(self.world.now_ns)
        for name, fields in queues.items():
            self.catalog.declare(name, make_definition(fields))
        self.subscriber = self._join("subscriber", b"both/#", 1, others)
        self.reader = self._join("reader", b"$queue/stream", 0, others)
        self.consumer = self._join("consumer", b"$queue/consumed", 0, others)
        self.client = self.world.peer(version)

    @property
    def catalog(self) -> Catalog:
        return self.world.account.queues.catalog

    def _join(self, name: str, filter: bytes, qos: int, version: int) -> MqttPeer:
        peer = self.world.client(Connect(version, name))
        peer.send(Subscribe(1, [SubscribeEntry(filter, qos)]))
        self.make_safe()
        peer.link.data = b""
        return peer

    # ------------------------------------------------------------------- steps

    def read(self, data: bytes) -> None:
        """One read, and what a loop does after it. What is not safe is shown to no consumer."""
        seen = self.reader.link.data
        self.client.endpoint.receive_data(data, self.world.now_ns)
        self.world.settle_down()
        assert self.is_safe_at_once or self.reader.link.data == seen

    def make_safe(self) -> None:
        """Until all that was appended is written, and everybody was told."""
        self.world.settle_down()
        while self.node.log.durable < self.node.log.position:
            self.node.log.flush()
            self.node.writer.work()
            self.tell_durable()

    def tell_durable(self) -> None:
        self.world.broker.on_durable()
        self.world.settle_down()

    def move(self, milliseconds: int) -> None:
        self.world.move(milliseconds / 1000)
        self.make_safe()

    # -------------------------------------------------------------- looking at

    def sent(self) -> list[Packet]:
        """What the client got."""
        return packets_of(self.client)

    def queues(self) -> dict[str, list[Row]]:
        """Every record of every queue."""
        return {name: live_rows(queue) for name, queue in self.catalog.queues.items()}

    def ends(self) -> dict[str, Row]:
        """Where the queues stand, and what they know and count."""
        return {name: end_of(queue) for name, queue in self.catalog.queues.items()}

    def counters(self) -> dict[str, int]:
        return self.world.account.counters.snapshot()

    def retained(self) -> list[Row]:
        return [describe_message(message) for message in self.world.account.retained.match(b"#", 0)]

    def endings(self) -> list[tuple[str, str, str]]:
        return [line for line in self.world.observer.lines if line[0] == "disconnected"]

    def recover(self) -> StoredState:
        """What a broker would find after a power cut now."""
        return Node(self._disk.crash(Mood.NOTHING), self._table.crash(), NoFailpoints(), FILE_SIZE).state

    def recover_queues(self) -> dict[str, list[Row]]:
        return {queue.name: stored_rows(queue) for queue in self.recover().queues}

    def fold(self) -> dict[str, list[Row]]:
        """The log becomes segments; gives what they hold of what is kept."""
        self.node.files.end_file()
        self.node.checkpoint()
        found: dict[str, list[Row]] = {}
        for queue in self.catalog.queues.values():
            if queue.is_durable:
                bodies, damage = read_all(self._disk, int(queue.number))
                assert not damage
                found[queue.name] = rows_from(queue.low_mark(), bodies)
        return found


def packets_of(peer: MqttPeer) -> list[Packet]:
    data = peer.link.data
    found: list[Packet] = []
    position = 0
    while position < len(data):
        packet, position = decode_frame(data, position, peer.version, SIZE_MAX)
        assert packet is not None, "the broker sent a piece of a packet"
        found.append(packet)
    return found


def answers_in(packets: list[Packet]) -> list[Packet]:
    return [packet for packet in packets if not isinstance(packet, Publish | Disconnect)]


def messages_in(packets: list[Packet]) -> list[Packet]:
    return [packet for packet in packets if isinstance(packet, Publish)]


def endings_in(packets: list[Packet]) -> list[int]:
    return [packet.reason for packet in packets if isinstance(packet, Disconnect)]


def live_rows(queue: Queue) -> list[Row]:
    rows: list[Row] = []
    for offset in range(int(queue.low_mark()), int(queue.next)):
        rows.append(record_row(queue.find_record(offset)))
    return rows


def stored_rows(queue: StoredQueue) -> list[Row]:
    return rows_from(queue.low_mark(), [body for _, body in queue.tail])


def rows_from(low: int, bodies: list[bytes]) -> list[Row]:
    return [record_row(body) for body in bodies if record_place(body)[1] >= low]


def record_row(body: bytes) -> Row:
    record = decode_record(body)
    message = decode_record_message(body, 0)
    return (
        int(record.offset),
        *describe_message(message),
        int(record.time_wall_ns),
        int(record.not_before_wall_ns),
        int(record.priority),
        record.producer,
        int(record.producer_sequence),
    )


def find_difference(one: object, other: object) -> str:
    """The first one, and where; empty: they are equal. A whole comparison of many large payloads takes minutes."""
    if one == other:
        return ""
    if isinstance(one, dict) and isinstance(other, dict) and list(one) == list(other):
        found = [(name, find_difference(one[name], other[name])) for name in one]
        return next(f"{name}: {text}" for name, text in found if text)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        for at, (left, right) in enumerate(zip(one, other, strict=False)):
            if left != right:
                return f"[{at}] {find_difference(left, right)}"
        return f"{len(one)} and {len(other)} of them"
    return f"{one!r:.300} is not {other!r:.300}"


def end_of(queue: Queue) -> Row:
    counters = queue.counters
    return (
        int(queue.first),
        int(queue.next),
        int(queue.visible),
        int(queue.depth()),
        int(queue.size.bytes),
        dict(queue.producers),
        dict(queue.delayed),
        int(counters.appended),
        int(counters.refused),
        int(counters.repeated),
        int(counters.expired),
        int(counters.dropped),
        int(counters.dead_lettered),
    )
