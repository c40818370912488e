"""Slow questions off the loop: answers come back to the connection that asked, if it is still there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from fake_transport import FakeTransport, GateWorld

from millstream.model.errors import Reason
from millstream.protocols.endpoint import Endpoint
from millstream.runtime.gate import Gate
from millstream.runtime.transport import TransportLink
from millstream.runtime.verifier import QUEUE_MAX, Verifier
from millstream.security.authentication import Authenticator, Credentials, Decision, Verdict
from millstream.security.users import User, UserTable

HASH = "$6$tJNV6IhJOugpPj3s$SvLwKOTmYBm8bK+DlnOJLaIsVjox7w1HPjkFwiKsgtsNFkeaRDE912XRZhpwBTOkUSbqJ0rAUEGI+3+EHgXi0Q=="


class Table:
    """Users whose look-up may be held back, as a slow hash would be."""

    def __init__(self) -> None:
        self.users = UserTable({"user": User("user", HASH)})


def make_authenticator() -> Authenticator:
    return Authenticator(UserTable({"user": User("user", HASH)}), False, "default", None, False, b"k" * 32)


def make_credentials(password: bytes = b"wrong") -> Credentials:
    return Credentials("c", "user", password, None, "192.0.2.1")


class Asking(TransportLink):
    """A link that keeps the answers and tells when one has come."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(gate)
        self.answers = 0
        self.has_answer = asyncio.Event()
        self.faults: list[Exception] = []

    def on_answer(self) -> Endpoint | None:
        self.answers += 1
        self.has_answer.set()
        return super().on_answer()

    def on_fault(self, fault: Exception) -> None:
        self.faults.append(fault)


@pytest.fixture
def verifiers() -> Iterator[list[Verifier]]:
    made: list[Verifier] = []
    yield made
    for verifier in made:
        verifier.close()


def make_link(world: GateWorld) -> tuple[Asking, FakeTransport]:
    transport = FakeTransport()
    link = Asking(world.gate)
    link.connection_made(transport)
    return link, transport


async def test_the_answer_comes_back_on_the_loop(verifiers: list[Verifier]) -> None:
    verifier = Verifier(make_authenticator(), asyncio.get_running_loop())
    verifiers.append(verifier)
    link, _ = make_link(GateWorld())
    verifier.ask(make_credentials(), link)
    assert link.answers == 0
    await asyncio.wait_for(link.has_answer.wait(), 30)
    assert link.answers == 1
    assert threading.current_thread() is threading.main_thread()
    assert link.faults == []


async def test_an_answer_for_a_connection_that_left_is_dropped(verifiers: list[Verifier]) -> None:
    verifier = Verifier(make_authenticator(), asyncio.get_running_loop())
    verifiers.append(verifier)
    link, _ = make_link(GateWorld())
    verifier.ask(make_credentials(), link)
    link.connection_lost(None)
    await asyncio.wait_for(link.has_answer.wait(), 30)
    assert link.faults == []


async def test_users_that_changed_meanwhile_are_asked_again(verifiers: list[Verifier]) -> None:
    authenticator = make_authenticator()
    verifier = Verifier(authenticator, asyncio.get_running_loop())
    verifiers.append(verifier)
    link, _ = make_link(GateWorld())
    stale = authenticator.verify(make_credentials(), 0)
    assert stale.verdict is Verdict.DENIED
    authenticator.replace_users(UserTable({"other": User("other", HASH)}))
    assert authenticator.remember(make_credentials(), stale, 0).verdict is Verdict.ASK
    verifier.ask(make_credentials(), link)
    await asyncio.wait_for(link.has_answer.wait(), 30)
    assert link.answers == 1


async def test_more_questions_than_the_queue_holds_are_answered_busy_at_once(verifiers: list[Verifier]) -> None:
    verifier = Verifier(make_authenticator(), asyncio.get_running_loop())
    verifiers.append(verifier)
    verifier._open = QUEUE_MAX
    decisions: list[Decision] = []

    class Listening(Asking):
        def on_answer(self) -> Endpoint | None:
            super().on_answer()
            return None

    transport = FakeTransport()
    link = Listening(GateWorld().gate)
    link.connection_made(transport)
    verifier.ask(make_credentials(), link)
    await asyncio.wait_for(link.has_answer.wait(), 5)
    assert verifier._open == QUEUE_MAX
    assert decisions == []


async def test_a_connection_goes_on_reading_after_its_pause(verifiers: list[Verifier]) -> None:
    verifier = Verifier(make_authenticator(), asyncio.get_running_loop())
    verifiers.append(verifier)
    resumed = asyncio.Event()

    class Paused(Asking):
        def resume_after_pause(self) -> None:
            super().resume_after_pause()
            resumed.set()

    world = GateWorld()
    transport = FakeTransport()
    link = Paused(world.gate)
    link.connection_made(transport)
    link.pause_for(1)
    assert not transport.is_reading_now
    verifier.later(1, link)
    await asyncio.wait_for(resumed.wait(), 5)
    assert transport.is_reading_now
    assert Reason.SERVER_BUSY
