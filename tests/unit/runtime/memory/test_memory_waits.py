"""Who is read while memory is short: consumers and light publishers are, heavy publishers are not."""

from __future__ import annotations

from fake_transport import FakeTransport, GateWorld
from fakes import MEMORY_LIMIT

from millstream.app.memory import MemoryGuard
from millstream.config.load import config_of
from millstream.model.limits import Limits
from millstream.model.memory_budget import SESSION_OVERHEAD, SUBSCRIPTION_OVERHEAD
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import Connect, Publish, Subscribe, SubscribeEntry
from millstream.runtime.transport.tcp import TcpConnection

PING = b"\xc0\x00"


class Client:
    def __init__(self, world: GateWorld, client_id: str, keep_alive_s: int = 0, clean: bool = True) -> None:
        self.world = world
        self.transport = FakeTransport()
        self.link = TcpConnection(world.gate)
        self.link.connection_made(self.transport)
        self.send(encode_packet(Connect(4, client_id, clean, keep_alive_s), 4))

    def send(self, data: bytes) -> None:
        self.link.data_received(data)
        self.world.settle_down()


def publish(topic: bytes, payload: bytes) -> bytes:
    return encode_packet(Publish(topic, payload), 4)


def make_world() -> tuple[GateWorld, Client]:
    world = GateWorld()
    reader = Client(world, "reader")
    reader.send(encode_packet(Subscribe(1, [SubscribeEntry(b"t", 0)]), 4))
    return world, reader


def test_a_heavy_publisher_is_not_read_until_there_is_memory_again() -> None:
    world, _ = make_world()
    client = Client(world, "heavy")
    world.use_memory(75)
    client.send(publish(b"t", bytes(100_000)))
    assert not client.transport.is_reading_now
    world.use_memory(50)
    world.gate.resume_publishers(1)
    world.settle_down()
    assert client.transport.is_reading_now


def test_a_light_publisher_and_a_consumer_are_read() -> None:
    world, reader = make_world()
    client = Client(world, "light")
    world.use_memory(75)
    client.send(publish(b"t", bytes(100)))
    reader.send(PING * 100_000)
    assert client.transport.is_reading_now
    assert reader.transport.is_reading_now


def test_a_publisher_counts_by_what_its_messages_cost_and_not_by_its_own_bytes() -> None:
    world, _ = make_world()
    for number in range(200):
        other = Client(world, f"reader-{number}")
        other.send(encode_packet(Subscribe(1, [SubscribeEntry(b"t", 0)]), 4))
    client = Client(world, "wide")
    world.use_memory(75)
    client.send(publish(b"t", bytes(1000)))
    assert not client.transport.is_reading_now


def test_a_publisher_of_little_to_many_is_slowed_and_not_stopped() -> None:
    world, _ = make_world()
    for number in range(200):
        other = Client(world, f"reader-{number}")
        other.send(encode_packet(Subscribe(1, [SubscribeEntry(b"t", 0)]), 4))
    client = Client(world, "wide")
    world.use_memory(75)
    for _ in range(3):
        client.send(publish(b"t", bytes(1000)))
        assert not client.transport.is_reading_now
        client.link.resume_after_pause()
        world.settle_down()
        assert client.transport.is_reading_now
    assert world.asker.delays == [100_000_000] * 3
    client.send(publish(b"t", bytes(3000)))
    client.link.resume_after_pause()
    assert list(world.gate.memory_waiters) == [client.link]  # that was too much in one second
    assert not client.transport.is_reading_now


def test_the_last_bytes_of_a_large_message_are_not_little() -> None:
    world, _ = make_world()
    client = Client(world, "parts")
    other = Client(world, "other")
    other.send(encode_packet(Subscribe(1, [SubscribeEntry(b"t", 0)]), 4))
    world.use_memory(75)
    data = publish(b"t", bytes(60_000))
    client.send(data[:-10])
    assert client.transport.is_reading_now
    client.send(data[-10:])
    assert list(world.gate.memory_waiters) == [client.link]


def test_a_client_with_a_large_unfinished_packet_is_not_read() -> None:
    world, _ = make_world()
    client = Client(world, "unfinished")
    world.use_memory(75)
    client.send(publish(b"t", bytes(200_000))[:-1])
    assert not client.transport.is_reading_now


def test_what_a_client_has_subscribed_counts_against_it_while_it_waits_for_memory_and_goes_with_it() -> None:
    world, _ = make_world()
    clients = [Client(world, "held"), Client(world, "idle"), Client(world, "kept", clean=False)]
    filters = [SubscribeEntry(b"f/%d" % number, 0) for number in range(500)]
    for client in clients:
        client.send(encode_packet(Subscribe(1, filters), 4))
    world.use_memory(75)
    for client in (clients[0], clients[2]):
        client.send(publish(b"t", bytes(100_000)))
    guard = MemoryGuard(config_of({}), Limits())
    guard.start(world.broker, world.gate, None)
    found = [guard.find_offender(line, 10**12) for line in guard.begin_search()]
    guard.stop()
    offenders = {offender.name: int(offender.size_bytes) for offender in found if offender is not None}
    assert sorted(offenders) == ["held", "kept"]  # by what they have sent
    assert offenders["held"] == offenders["kept"] + SESSION_OVERHEAD + 500 * SUBSCRIPTION_OVERHEAD


def test_memory_is_measured_within_the_turn_that_makes_it_grow() -> None:
    world, _ = make_world()
    client = Client(world, "fast")
    client.send(publish(b"t", bytes(1000)))
    world.meter.resident = MEMORY_LIMIT * 3 // 4
    for _ in range(30):
        client.send(publish(b"t", bytes(900_000)))
    assert world.broker.memory.is_high
    assert not client.transport.is_reading_now


def test_publishers_go_on_a_few_at_a_time_in_the_order_they_came() -> None:
    world, _ = make_world()
    clients = [Client(world, f"heavy-{number}") for number in range(5)]
    world.use_memory(75)
    for client in clients:
        client.send(publish(b"t", bytes(100_000)))
    world.use_memory(50)
    world.gate.resume_publishers(2)
    world.settle_down()
    assert [client.transport.is_reading_now for client in clients] == [True, True, False, False, False]


def test_a_publisher_that_left_is_forgotten() -> None:
    world, _ = make_world()
    client = Client(world, "heavy")
    world.use_memory(75)
    client.send(publish(b"t", bytes(100_000)))
    client.link.connection_lost(None)
    assert world.gate.memory_waiters == {}
    assert client.link not in world.gate.links


def test_a_client_that_is_not_read_does_not_miss_its_keep_alive() -> None:
    world, _ = make_world()
    client = Client(world, "heavy", keep_alive_s=1)
    world.use_memory(75)
    client.send(publish(b"t", bytes(100_000)))
    due = client.link.on_due(10**18)
    assert not client.transport.is_closing()
    assert due > 10**18


def test_when_memory_runs_out_while_much_is_sent_who_does_not_read_goes_at_once() -> None:
    world, reader = make_world()
    client = Client(world, "fast")
    world.use_memory(60)
    reader.transport.unsent = 4 * 1024 * 1024
    world.meter.resident = MEMORY_LIMIT * 95 // 100
    world.broker.memory.check_at = world.broker.memory.intake + 300_000  # only the flush will reach it
    client.link.endpoint.receive_data(publish(b"t", bytes(200_000)), 1)  # type: ignore[union-attr]
    assert not world.broker.memory.is_critical
    world.pool.flush()
    assert reader.transport.is_aborted
    assert world.broker.memory.connections_dropped == 1


def test_a_connection_lags_sooner_where_there_are_many() -> None:
    world = GateWorld()
    first = Client(world, "first").transport.limits
    world.gate.connections = 20_000
    later = Client(world, "later").transport.limits
    assert first[0] == world.limits.unsent_bytes_low
    assert later[0] == 16 * 1024
