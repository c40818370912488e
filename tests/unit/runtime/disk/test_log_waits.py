"""Who is read while the log is behind with its writing: who stores much is not, everybody else is."""

from __future__ import annotations

from fake_transport import FakeTransport, GateWorld
from fakes import ManualWakeup

from millstream.broker.conditions import PUBLISHERS_SLOWED
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import Connect, Publish
from millstream.runtime.transport.gate import LOG_BEHIND, RESUMED_AT_ONCE, TICKS_TOLD
from millstream.runtime.transport.tcp import TcpConnection
from millstream.storage.log.write_ahead_log import Batch, BatchWriter, Log
from millstream.storage.log_store import LogStore
from millstream.storage.store import StoredState

LARGE = 900_000


class Writer(BatchWriter):
    """Keeps what it is given until the test says that it is written."""

    def __init__(self) -> None:
        self.batch: Batch | None = None

    def submit(self, batch: Batch, log: Log) -> None:
        self.batch = batch


class LogWorld(GateWorld):
    def __init__(self) -> None:
        super().__init__()
        self.writer = Writer()
        self.log = Log(self.writer, ManualWakeup(), 1)
        store = LogStore(self.log, StoredState([], [], []), {}, 0)
        self.gate.store = store
        for account in self.broker.accounts.values():
            account.store = store
        self.log.append(1, b"under way")
        self.log.flush()

    def finish_batch(self) -> None:
        batch = self.writer.batch
        assert batch is not None
        self.log.on_written(batch)
        self.gate.on_durable()
        self.settle_down()


class Client:
    def __init__(self, world: LogWorld, client_id: str) -> None:
        self.world = world
        self.transport = FakeTransport()
        self.link = TcpConnection(world.gate)
        self.link.connection_made(self.transport)
        self.send(encode_packet(Connect(4, client_id, True, 0), 4))

    def send(self, data: bytes) -> None:
        self.link.data_received(data)
        self.world.settle_down()

    def retain(self, size: int) -> None:
        self.send(encode_packet(Publish(b"t", bytes(size), 0, True), 4))

    @property
    def is_read(self) -> bool:
        return self.transport.is_reading_now


def fill(world: LogWorld) -> None:
    while world.log.unsafe_bytes() <= LOG_BEHIND:
        world.log.append(1, bytes(LARGE))


def test_who_stores_much_while_the_log_is_behind_waits_until_it_has_caught_up() -> None:
    world = LogWorld()
    heavy = Client(world, "heavy")
    heavy.retain(LARGE)
    assert heavy.is_read
    fill(world)
    heavy.retain(LARGE)
    assert not heavy.is_read
    world.finish_batch()
    assert heavy.is_read


def test_who_stores_little_or_nothing_is_read_while_the_log_is_behind() -> None:
    world = LogWorld()
    light, plain = Client(world, "light"), Client(world, "plain")
    fill(world)
    light.retain(100)
    plain.send(encode_packet(Publish(b"t", bytes(LARGE)), 4))
    assert light.is_read
    assert plain.is_read


def test_nobody_waits_for_a_disk_that_takes_nothing() -> None:
    world = LogWorld()
    heavy = Client(world, "heavy")
    fill(world)
    heavy.retain(LARGE)
    assert not heavy.is_read
    world.log.on_full("disk full")
    world.gate.on_durable()  # by the tick
    assert heavy.is_read
    heavy.retain(LARGE)
    assert heavy.is_read


def test_those_who_waited_go_on_a_few_at_a_time() -> None:
    world = LogWorld()
    fill(world)
    clients = [Client(world, f"heavy-{number}") for number in range(int(RESUMED_AT_ONCE) + 1)]
    for client in clients:
        client.retain(100_000)
    world.finish_batch()
    assert [client.is_read for client in clients] == [True] * int(RESUMED_AT_ONCE) + [False]
    world.finish_batch()
    assert clients[-1].is_read


def test_one_that_left_while_it_waited_is_forgotten() -> None:
    world = LogWorld()
    heavy = Client(world, "heavy")
    fill(world)
    heavy.retain(LARGE)
    heavy.link.connection_lost(None)
    assert world.gate.log_waiters == {}


def test_a_publisher_that_waits_for_the_log_most_of_the_time_is_named() -> None:
    world = LogWorld()
    heavy = Client(world, "heavy")
    fill(world)
    heavy.retain(LARGE)
    for _ in range(int(TICKS_TOLD) - 1):
        world.gate.on_tick()
    assert world.broker.health.find(PUBLISHERS_SLOWED) is None
    world.gate.on_tick()
    told = world.broker.health.find(PUBLISHERS_SLOWED)
    assert told is not None
    assert told.cause == "heavy from 192.0.2.1 waits for the log"
