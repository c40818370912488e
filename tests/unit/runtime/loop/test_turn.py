"""The end of a turn: reads that waited, queues, work in slices, the log; and how long it took."""

from __future__ import annotations

from fake_transport import FakeTransport, GateWorld
from fakes import FakeLine, ManualWakeup, World

from millstream.broker.tasks import Task
from millstream.broker.turn_figures import READS, TASKS
from millstream.model.outbox import FLUSHES_PER_TURN, OutboxPool
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import Connect
from millstream.runtime.loop.clock import LoopClock
from millstream.runtime.loop.turn import LoopTurn
from millstream.runtime.transport.intake import Intake
from millstream.runtime.transport.link import TransportLink
from millstream.runtime.transport.tcp import TcpConnection

PINGS = b"\xc0\x00" * 5000


def test_a_turn_is_measured_from_its_first_read() -> None:
    world = World()
    clock = LoopClock(ManualWakeup())
    turn = LoopTurn()
    turn.start(world.broker, None, Intake(), clock)
    turn.end()
    alone_ns = world.broker.turns.longest_ns()
    assert alone_ns > 0
    clock._now_ns = clock.read_ns() - 60_000_000
    assert not turn.end()
    assert world.broker.turns.longest_ns() >= 60_000_000
    assert world.broker.turns.values()["long_turns"] == "1"
    assert world.broker.turns._part == READS


def test_what_else_a_long_turn_did_is_not_taken_for_its_reads() -> None:
    """The clock is read between two parts only where both had something to do."""
    for ahead_ns, part in ((60_000_000, READS), (-60_000_000, TASKS)):
        world = World()
        clock = LoopClock(ManualWakeup())
        turn = LoopTurn()
        turn.start(world.broker, None, Intake(), clock)
        world.broker.tasks.add(Busy())
        clock._now_ns = clock.read_ns() - ahead_ns  # a time to come: nothing was read
        turn.end()
        assert world.broker.turns._part == part


class Busy(Task):
    def run(self, steps: int) -> int:
        return 1

    def on_task_failed(self, error: Exception) -> None:
        raise error


def test_a_turn_that_the_disk_began_is_measured_from_there() -> None:
    world = World()
    clock = LoopClock(ManualWakeup())
    turn = LoopTurn()
    turn.start(world.broker, None, Intake(), clock)
    turn.on_durable()
    assert clock.began_ns() > 0
    assert world.broker.clock.now_ns == clock.began_ns()


class LetGoOn(Task):
    """A task whose end lets a connection go on, as that of a large SUBSCRIBE does."""

    def __init__(self, link: TransportLink) -> None:
        self._link = link

    def run(self, steps: int) -> int:
        self._link.wait_for_turn(False)
        return 1

    def on_task_failed(self, error: Exception) -> None:
        raise error


def test_a_connection_that_a_task_lets_go_on_asks_for_another_turn() -> None:
    world = GateWorld()
    link = TcpConnection(world.gate)
    link.connection_made(FakeTransport())
    turn = LoopTurn()
    turn.start(world.broker, None, world.gate.intake, world.clock)
    link.wait_for_turn(True)
    link.data_received(bytes(100_000))  # a large read, which waits behind the task
    assert not turn.end(), "nothing can be done before the task is"
    world.broker.tasks.add(LetGoOn(link))
    assert turn.end(), "what it had sent is served in the next turn"
    assert not turn.end()
    assert world.gate.intake.unread == 0


class Never(FakeLine):
    def flush(self) -> None:
        pass


def test_a_large_read_waits_while_output_of_the_last_turn_waits() -> None:
    world = GateWorld()
    pool = OutboxPool(ManualWakeup())
    turn = LoopTurn()
    turn.start(world.broker, None, world.gate.intake, world.clock)
    turn.write_to(pool)
    for _ in range(int(FLUSHES_PER_TURN) + 1):
        pool.mark(Never())
    pool.flush()
    link = TcpConnection(world.gate)
    link.connection_made(FakeTransport())
    assert turn.end() is False
    link.data_received(encode_packet(Connect(4, "a", True, 0), 4) + PINGS)
    assert turn.end()
    assert world.gate.intake.unread > 0
    pool.flush()
    turn.end()
    assert world.gate.intake.unread == 0
