"""Slow questions off the loop: password hashes and tokens are checked in a small bounded pool of threads."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from mypy_extensions import i64

from millstream.model.errors import Reason
from millstream.runtime.gate import Asker
from millstream.runtime.transport import TransportLink
from millstream.security.authentication import Authenticator, Credentials, Decision, Verdict

THREADS: Final = 2
QUEUE_MAX: Final = 1000


class Verifier(Asker):
    def __init__(self, authenticator: Authenticator, loop: asyncio.AbstractEventLoop) -> None:
        self._authenticator = authenticator
        self._loop = loop
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="verify")
        self._open = 0

    def ask(self, credentials: Credentials, connection: TransportLink) -> None:
        if self._open >= QUEUE_MAX:
            busy = Decision(Verdict.DENIED, None, Reason.SERVER_BUSY, "too many logins at once, try again")
            self._loop.call_soon(self._bring, connection, busy)
            return
        self._open += 1
        future = self._pool.submit(self._authenticator.verify, credentials, int(time.time()))

        def on_done(done: Future[Decision]) -> None:
            self._loop.call_soon_threadsafe(self._on_verified, credentials, connection, done)

        future.add_done_callback(on_done)

    async def wait_decision(self, credentials: Credentials) -> Decision:
        """For who waits here and not on a connection; never ASK."""
        busy = Decision(Verdict.DENIED, None, Reason.SERVER_BUSY, "too many logins at once, try again")
        while True:
            decision = self._authenticator.decide(credentials, int(time.time()), time.monotonic_ns())
            if decision.verdict is not Verdict.ASK:
                return decision
            if self._open >= QUEUE_MAX:
                return busy
            self._open += 1
            try:
                verified = await self._loop.run_in_executor(
                    self._pool, self._authenticator.verify, credentials, int(time.time())
                )
            finally:
                self._open -= 1
            decision = self._authenticator.remember(credentials, verified, time.monotonic_ns())
            if decision.verdict is not Verdict.ASK:  # else the users changed meanwhile
                return decision

    def later(self, delay_ns: i64, connection: TransportLink) -> None:
        self._loop.call_later(int(delay_ns) / 1e9, connection.resume_after_pause)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _on_verified(
        self, credentials: Credentials, connection: TransportLink, done: Future[Decision]
    ) -> None:
        self._open -= 1
        if done.cancelled() or done.exception() is not None:  # fail closed
            decision = Decision(
                Verdict.DENIED, None, Reason.UNAVAILABLE, "the credentials could not be checked"
            )
        else:
            decision = self._authenticator.remember(credentials, done.result(), time.monotonic_ns())
        if decision.verdict is Verdict.ASK:  # the users changed meanwhile: ask again
            self.ask(credentials, connection)
            return
        self._bring(connection, decision)

    def _bring(self, connection: TransportLink, decision: Decision) -> None:
        endpoint = connection.on_answer()
        if endpoint is not None:
            try:
                endpoint.on_decision(decision, time.monotonic_ns())
            except Exception as fault:  # noqa: BLE001 our bug ends this connection, not the broker
                connection.on_fault(fault)
