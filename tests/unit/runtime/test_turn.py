"""The end of a turn: reads that waited, queues, work in slices, the log; and how long it took."""

from __future__ import annotations

from fake_transport import FakeTransport, GateWorld
from fakes import ManualWakeup, World

from millstream.broker.tasks import Task
from millstream.runtime.intake import Intake
from millstream.runtime.loop_clock import LoopClock
from millstream.runtime.tcp import TcpConnection
from millstream.runtime.transport import TransportLink
from millstream.runtime.turn import LoopTurn


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
