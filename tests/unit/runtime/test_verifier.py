"""Slow questions off the loop: answers come back to the connection that asked, if it is still there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from fake_transport import FakeTransport, GateWorld

from millstream.broker.conditions import LOGINS_BUSY, LOGINS_UNCHECKED
from millstream.protocols.endpoint import Endpoint
from millstream.protocols.mqtt.wire import reason_codes as code
from millstream.protocols.mqtt.wire.decode import decode_frame
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import ConnAck, Connect
from millstream.runtime.transport.gate import Gate
from millstream.runtime.transport.link import TransportLink
from millstream.runtime.verifier import KNOWN_AT_ONCE, THREADS, Verifier
from millstream.security.authentication import FAILURES_MAX
from millstream.security.users import User, UserTable, hash_password

GUARD_S = 30  # a test that hangs ends; nothing is measured
HASH = hash_password("right")
USERS = UserTable({"user": User("user", HASH)})


class Asking(TransportLink):
    """A link that tells when an answer or the end of a pause has come."""

    def __init__(self, gate: Gate, name: str = "", order: list[str] | None = None) -> None:
        super().__init__(gate)
        self.name = name
        self.order = order
        self.answers = 0
        self.has_answer = asyncio.Event()
        self.has_resumed = asyncio.Event()
        self.faults: list[Exception] = []

    def on_answer(self) -> Endpoint | None:
        self.answers += 1
        if self.order is not None:
            self.order.append(self.name)
        self.has_answer.set()
        return super().on_answer()

    def resume_after_pause(self) -> None:
        super().resume_after_pause()
        self.has_resumed.set()

    def on_fault(self, fault: Exception) -> None:
        self.faults.append(fault)


class VerifierWorld(GateWorld):
    def __init__(self) -> None:
        super().__init__(users=USERS)
        self.logins = 0
        self.verifier = Verifier(self.authenticator, asyncio.get_running_loop())
        self.gate = Gate(self.context, self.deadlines, self.verifier, self.limits, self.clock)

    def use(self, verifier: Verifier) -> None:
        self.verifier.close()
        self.verifier = verifier
        self.gate = Gate(self.context, self.deadlines, self.verifier, self.limits, self.clock)

    def log_in(
        self, password: bytes, name: str = "user", order: list[str] | None = None
    ) -> tuple[Asking, FakeTransport]:
        transport = FakeTransport()
        link = Asking(self.gate, name, order)
        link.connection_made(transport)
        assert link.endpoint is not None
        self.logins += 1
        packet = Connect(5, f"c{self.logins}", username=name, password=password)
        link.endpoint.receive_data(encode_packet(packet, 5), self.now_ns)
        return link, transport

    async def answer(self, link: Asking, transport: FakeTransport) -> int:
        await asyncio.wait_for(link.has_answer.wait(), GUARD_S)
        self.pool.flush()
        packet, _ = decode_frame(transport.take(), 0, 5, 1000)
        assert isinstance(packet, ConnAck)
        return packet.reason


@pytest.fixture
async def world() -> AsyncIterator[VerifierWorld]:
    made = VerifierWorld()
    yield made
    made.verifier.close()


async def test_nothing_is_read_until_the_answer_is_there_and_a_right_password_is_welcome(
    world: VerifierWorld,
) -> None:
    link, transport = world.log_in(b"right")
    assert not transport.is_reading_now
    assert await world.answer(link, transport) == code.SUCCESS
    assert transport.is_reading_now
    assert world.gate.strangers == 0
    assert link.faults == []


async def test_a_wrong_password_is_refused(world: VerifierWorld) -> None:
    link, transport = world.log_in(b"wrong")
    assert await world.answer(link, transport) == code.BAD_USER_NAME_OR_PASSWORD
    assert world.account.sessions == {}


async def test_a_connection_that_left_is_not_checked_and_not_answered(world: VerifierWorld) -> None:
    link, _ = world.log_in(b"right")
    link.connection_lost(None)
    other, transport = world.log_in(b"right")
    assert await world.answer(other, transport) == code.SUCCESS
    assert link.answers == 0
    assert link.faults == []
    assert len(world.account.sessions) == 1


async def test_a_user_who_is_locked_out_meanwhile_is_refused_without_work(world: VerifierWorld) -> None:
    logins = [world.log_in(b"wrong") for _ in range(FAILURES_MAX + 10)]
    reasons = [await world.answer(link, transport) for link, transport in logins]
    wrong = reasons.count(code.BAD_USER_NAME_OR_PASSWORD)
    assert FAILURES_MAX <= wrong < FAILURES_MAX + THREADS
    assert set(reasons[wrong:]) == {code.CONNECTION_RATE_EXCEEDED}


async def test_a_first_login_does_not_wait_for_a_storm_of_wrong_ones(world: VerifierWorld) -> None:
    storm = [world.log_in(b"wrong", f"guess{number}") for number in range(60)]
    link, transport = world.log_in(b"right")
    assert await world.answer(link, transport) == code.SUCCESS
    answered = sum(other.answers for other, _ in storm)
    assert answered <= 3 * THREADS


async def test_refusals_come_in_the_order_of_the_logins_whoever_exists(world: VerifierWorld) -> None:
    names = [f"guess{number}" for number in range(8)]
    names[5] = "user"  # it is checked before the others, and told in its turn
    order: list[str] = []
    logins = [world.log_in(b"wrong", name, order) for name in names]
    for link, transport in logins:
        assert await world.answer(link, transport) == code.BAD_USER_NAME_OR_PASSWORD
    assert order == names


async def test_users_that_changed_while_a_password_was_verified_are_asked_again(world: VerifierWorld) -> None:
    link, transport = world.log_in(b"right")
    world.authenticator.replace_users(UserTable({"other": User("other", HASH)}))  # the user is gone
    assert await world.answer(link, transport) == code.BAD_USER_NAME_OR_PASSWORD
    assert link.answers == 1


async def test_more_logins_than_may_wait_are_told_to_try_again(world: VerifierWorld) -> None:
    health = world.broker.health
    world.use(Verifier(world.authenticator, asyncio.get_running_loop(), waiting_max=2, health=health))
    logins = [world.log_in(b"right") for _ in range(3)]
    reasons = [await world.answer(link, transport) for link, transport in logins]
    assert reasons == [code.SUCCESS, code.SUCCESS, code.SERVER_BUSY]
    active = health.find(LOGINS_BUSY)
    assert active is not None
    assert active.cause.startswith("2 logins wait to be checked (auth.max_waiting_logins = 2)")


class BrokenPool(ThreadPoolExecutor):
    """Its work always fails, by a fault of ours."""

    def submit(self, *_arguments: object, **_named: object) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(ValueError("a fault of ours"))
        return future


async def test_a_check_that_fails_itself_refuses_and_is_told(world: VerifierWorld) -> None:
    health = world.broker.health
    world.use(Verifier(world.authenticator, asyncio.get_running_loop(), health=health))
    world.verifier._pool = BrokenPool(1)
    link, transport = world.log_in(b"right")
    assert await world.answer(link, transport) == code.SERVER_UNAVAILABLE
    active = health.find(LOGINS_UNCHECKED)
    assert active is not None
    assert active.cause == "ValueError: a fault of ours"


async def test_a_connection_goes_on_reading_after_its_pause(world: VerifierWorld) -> None:
    transport = FakeTransport()
    link = Asking(world.gate)
    link.connection_made(transport)
    link.pause_for(1)
    assert not transport.is_reading_now
    await asyncio.wait_for(link.has_resumed.wait(), GUARD_S)
    assert transport.is_reading_now


async def test_a_fleet_that_waited_for_one_password_is_let_in_a_part_at_a_time(world: VerifierWorld) -> None:
    loop = asyncio.get_running_loop()
    order: list[str] = []
    links = [world.log_in(b"right", order=order)[0] for _ in range(5 * KNOWN_AT_ONCE)]

    def end_turn() -> None:
        order.append("turn")
        loop.call_later(0, end_turn)

    end_turn()
    for link in links:
        await asyncio.wait_for(link.has_answer.wait(), GUARD_S)
    turns = " ".join(order).split("turn")
    assert max(turn.count("user") for turn in turns) <= KNOWN_AT_ONCE + THREADS
    assert len(world.account.sessions) == len(links)
    world.verifier._pool.shutdown()  # the other thread checks the same password


class TimerLoop(asyncio.AbstractEventLoop):
    """Keeps what it is to call later."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Any]] = []

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        self.timers.append((delay, lambda: callback(*args)))

    def ring(self) -> float:
        delay, call = self.timers.pop()
        call()
        return delay


async def test_one_that_has_gone_is_not_kept_until_its_rate_would_let_it_go_on(world: VerifierWorld) -> None:
    loop = TimerLoop()
    world.use(Verifier(world.authenticator, loop))
    transport = FakeTransport()
    link = Asking(world.gate)
    link.connection_made(transport)
    link.pause_for(150_000_000_000)
    assert [loop.ring(), loop.ring()] == [60, 60]
    assert not transport.is_reading_now
    assert loop.ring() == 30
    assert transport.is_reading_now
    link.pause_for(150_000_000_000)
    link.connection_lost(None)
    assert loop.ring() == 60
    assert loop.timers == []
