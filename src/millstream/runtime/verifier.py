"""Slow questions off the loop: password hashes and tokens are checked in small bounded pools of threads.

Passwords wait in a `LoginQueue` and only as many as there are threads are checked at a time, so that the order is
decided when a thread is free, and a login that was answered meanwhile (the same one a moment before, or a user now
locked out) costs nothing. Tokens are cheap and have a thread of their own.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from mypy_extensions import i64

from millstream.broker.conditions import LOGINS_BUSY, LOGINS_UNCHECKED
from millstream.broker.health import Health
from millstream.model.errors import Reason
from millstream.runtime.transport.gate import Asker
from millstream.runtime.transport.link import LOOK_NS, TransportLink
from millstream.security.authentication import Authenticator, Credentials, Decision, Verdict
from millstream.security.login_queue import WAITING_MAX, WAITING_PER_ADDRESS_MAX, LoginQueue, Ticket

THREADS: Final = 2
TOKENS_MAX: Final = 1000  # that may wait for their thread
KNOWN_AT_ONCE: Final = 64  # logins that are answered in a turn because their like was checked before


class _Caller(ABC):
    """Who waits for a decision."""

    @abstractmethod
    def answer(self, decision: Decision) -> None: ...


class _ConnectionCaller(_Caller):
    def __init__(self, connection: TransportLink, tickets: dict[TransportLink, Ticket]) -> None:
        self._connection = connection
        self._tickets = tickets

    def answer(self, decision: Decision) -> None:
        connection = self._connection
        self._tickets.pop(connection, None)
        endpoint = connection.on_answer()
        if endpoint is not None:
            try:
                endpoint.on_decision(decision, time.monotonic_ns())
            except Exception as fault:  # noqa: BLE001 our bug ends this connection, not the broker
                connection.on_fault(fault)


class _FutureCaller(_Caller):
    def __init__(self, future: asyncio.Future[Decision]) -> None:
        self._future = future

    def answer(self, decision: Decision) -> None:
        if not self._future.done():
            self._future.set_result(decision)


class Verifier(Asker):
    def __init__(
        self,
        authenticator: Authenticator,
        loop: asyncio.AbstractEventLoop,
        waiting_max: int = WAITING_MAX,
        waiting_per_address_max: int = WAITING_PER_ADDRESS_MAX,
        health: Health | None = None,
    ) -> None:
        self._health = health
        self._authenticator = authenticator
        self._loop = loop
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="verify")
        self._token_pool = ThreadPoolExecutor(1, thread_name_prefix="verify-token")
        self._queue = LoginQueue(waiting_max, waiting_per_address_max)
        self._callers: dict[Ticket, _Caller] = {}
        self._tickets: dict[TransportLink, Ticket] = {}
        self._running = 0  # passwords being checked
        self._is_fill_due = False
        self._tokens_open = 0

    def ask(self, credentials: Credentials, connection: TransportLink) -> None:
        ticket = self._ask(credentials, _ConnectionCaller(connection, self._tickets))
        if ticket is not None:
            self._tickets[connection] = ticket

    def forget(self, connection: TransportLink) -> None:
        ticket = self._tickets.pop(connection, None)
        if ticket is not None and self._callers.pop(ticket, None) is not None:
            self._queue.cancel(ticket)
            self._tell()

    async def wait_decision(self, credentials: Credentials) -> Decision:
        """For who waits here and not on a connection; never ASK."""
        decision = self._decide(credentials)
        if decision.verdict is not Verdict.ASK:
            return decision
        future: asyncio.Future[Decision] = self._loop.create_future()
        self._ask(credentials, _FutureCaller(future))
        return await future

    def later(self, delay_ns: i64, connection: TransportLink) -> None:
        part_ns: i64 = min(delay_ns, LOOK_NS)
        self._loop.call_later(int(part_ns) / 1e9, self._go_on, int(delay_ns - part_ns), connection)

    def _go_on(self, left_ns: int, connection: TransportLink) -> None:
        if left_ns and connection.endpoint is not None:
            self.later(left_ns, connection)
        else:
            connection.resume_after_pause()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._token_pool.shutdown(wait=False, cancel_futures=True)

    # ------------------------------------------------------------------- asking

    def _decide(self, credentials: Credentials) -> Decision:
        return self._authenticator.decide(credentials, int(time.time()), time.monotonic_ns())

    def _ask(self, credentials: Credentials, caller: _Caller) -> Ticket | None:
        """The ticket, if it waits for one of the threads for passwords."""
        if self._authenticator.is_token(credentials):
            self._ask_token(credentials, caller)
            return None
        is_preferred = self._authenticator.is_promising(credentials, time.monotonic_ns())
        ticket = self._queue.put(credentials, is_preferred)
        if ticket is None:
            self._refuse(credentials, caller, self._queue.find_refusal(credentials.address))
            return None
        self._callers[ticket] = caller
        self._fill_soon()
        return ticket

    def _refuse(self, credentials: Credentials, caller: _Caller, bound: str) -> None:
        if self._health is not None:
            cause = f"{bound}; the first refused came from {credentials.address}"
            self._health.report(LOGINS_BUSY, cause)
        self._loop.call_soon(caller.answer, _busy())

    def _ask_token(self, credentials: Credentials, caller: _Caller) -> None:
        if self._tokens_open >= TOKENS_MAX:
            self._refuse(
                credentials, caller, f"{TOKENS_MAX:,} tokens wait to be checked, as many as are kept"
            )
            return
        self._tokens_open += 1
        future = self._token_pool.submit(self._authenticator.verify, credentials, int(time.time()))

        def on_done(done: Future[Decision]) -> None:
            self._loop.call_soon_threadsafe(self._on_token, credentials, caller, done)

        future.add_done_callback(on_done)

    def _on_token(self, credentials: Credentials, caller: _Caller, done: Future[Decision]) -> None:
        self._tokens_open -= 1
        decision = self._result_of(credentials, done)
        if decision.verdict is Verdict.ASK:  # the users changed meanwhile: ask again
            self._ask(credentials, caller)
        else:
            caller.answer(decision)

    # ----------------------------------------------------------------- passwords

    def _fill_soon(self) -> None:
        if not self._is_fill_due:
            self._is_fill_due = True
            self._loop.call_soon(self._fill)

    def _fill(self) -> None:
        """Give every free thread a password to check. A fleet that waits for one password to be checked is let in a part at a time."""
        self._is_fill_due = False
        known = 0
        while self._running < THREADS:
            if known >= KNOWN_AT_ONCE:
                self._fill_soon()
                return
            ticket = self._queue.take()
            if ticket is None:
                return
            decision = self._decide(ticket.credentials)
            if decision.verdict is not Verdict.ASK:  # known since it was asked
                known += 1
                self._settle(ticket, decision)
                continue
            self._check(ticket)

    def _check(self, ticket: Ticket) -> None:
        self._running += 1
        future = self._pool.submit(self._authenticator.verify, ticket.credentials, int(time.time()))

        def on_done(done: Future[Decision]) -> None:
            self._loop.call_soon_threadsafe(self._on_checked, ticket, done)

        future.add_done_callback(on_done)

    def _on_checked(self, ticket: Ticket, done: Future[Decision]) -> None:
        self._running -= 1
        decision = self._result_of(ticket.credentials, done)
        if ticket in self._callers:
            if decision.verdict is Verdict.ASK:
                self._check(ticket)  # the users changed meanwhile
                return
            self._settle(ticket, decision)
        self._fill_soon()

    def _settle(self, ticket: Ticket, decision: Decision) -> None:
        if decision.verdict is Verdict.ALLOWED:
            self._queue.on_allowed(ticket)
            self._answer(ticket, decision)
        else:
            self._queue.on_denied(ticket, decision)
        self._tell()

    def _tell(self) -> None:
        for ticket in self._queue.take_answered():
            assert ticket.decision is not None
            self._answer(ticket, ticket.decision)

    def _answer(self, ticket: Ticket, decision: Decision) -> None:
        self._callers.pop(ticket).answer(decision)

    def _result_of(self, credentials: Credentials, done: Future[Decision]) -> Decision:
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or error is not None:  # fail closed
            if error is not None and self._health is not None:
                self._health.report(LOGINS_UNCHECKED, f"{type(error).__name__}: {error}")
            text = "the credentials could not be checked"
            return Decision(Verdict.DENIED, None, Reason.UNAVAILABLE, text)
        return self._authenticator.remember(credentials, done.result(), time.monotonic_ns())


def _busy() -> Decision:
    text = "too many logins at once, try again; see auth.max_waiting_logins"
    return Decision(Verdict.DENIED, None, Reason.SERVER_BUSY, text)
