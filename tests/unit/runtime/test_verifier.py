"""Slow questions off the loop: answers come back to the connection that asked, if it is still there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from fake_transport import FakeTransport, GateWorld

from millstream.protocols.endpoint import Endpoint
from millstream.protocols.mqtt.wire import reason_codes as code
from millstream.protocols.mqtt.wire.decode import decode_frame
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import ConnAck, Connect
from millstream.runtime.gate import Gate
from millstream.runtime.transport import TransportLink
from millstream.runtime.verifier import QUEUE_MAX, Verifier
from millstream.security.users import User, UserTable, hash_password

GUARD_S = 30  # a test that hangs ends; nothing is measured
HASH = hash_password("right")
USERS = UserTable({"user": User("user", HASH)})


class Asking(TransportLink):
    """A link that tells when an answer or the end of a pause has come."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(gate)
        self.answers = 0
        self.has_answer = asyncio.Event()
        self.has_resumed = asyncio.Event()
        self.faults: list[Exception] = []

    def on_answer(self) -> Endpoint | None:
        self.answers += 1
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
        self.verifier = Verifier(self.authenticator, asyncio.get_running_loop())
        self.gate = Gate(self.context, self.deadlines, self.verifier, self.limits, self.clock)

    def log_in(self, password: bytes) -> tuple[Asking, FakeTransport]:
        transport = FakeTransport()
        link = Asking(self.gate)
        link.connection_made(transport)
        assert link.endpoint is not None
        packet = Connect(5, "c", username="user", password=password)
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


async def test_an_answer_for_a_connection_that_left_is_dropped(world: VerifierWorld) -> None:
    link, _ = world.log_in(b"right")
    link.connection_lost(None)
    await asyncio.wait_for(link.has_answer.wait(), GUARD_S)
    assert link.faults == []
    assert world.account.sessions == {}


async def test_users_that_changed_while_a_password_was_verified_are_asked_again(world: VerifierWorld) -> None:
    link, transport = world.log_in(b"right")
    world.authenticator.replace_users(UserTable({"other": User("other", HASH)}))  # the user is gone
    assert await world.answer(link, transport) == code.BAD_USER_NAME_OR_PASSWORD
    assert link.answers == 1


async def test_more_logins_than_may_wait_are_told_to_try_again(world: VerifierWorld) -> None:
    world.verifier._open = QUEUE_MAX
    link, transport = world.log_in(b"right")
    assert await world.answer(link, transport) == code.SERVER_BUSY
    assert world.verifier._open == QUEUE_MAX


async def test_a_connection_goes_on_reading_after_its_pause(world: VerifierWorld) -> None:
    transport = FakeTransport()
    link = Asking(world.gate)
    link.connection_made(transport)
    link.pause_for(1)
    assert not transport.is_reading_now
    await asyncio.wait_for(link.has_resumed.wait(), GUARD_S)
    assert transport.is_reading_now
