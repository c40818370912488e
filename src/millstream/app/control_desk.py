"""Where operations of the control channel meet the broker: its time, its accounts, and when an answer may go out.

A change is answered only when the log has it: `wait_durable` leaves a future at the position the log had, and
`on_durable`, called by whoever hears of the log's progress, resolves what has been reached. Nothing polls.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from millstream.broker.account import Account
from millstream.broker.broker import DEFAULT_ACCOUNT, Broker
from millstream.model.errors import Reason, Unavailable
from millstream.protocols.amqp091.policies import Policies
from millstream.queues.queue import Queue
from millstream.runtime.control.server import ControlRefusal, Fields

DURABLE_S: Final = 30.0
NO_STORAGE: Final = (
    "the disk takes nothing now: it is full, too slow, or has failed; the log of the broker says which"
)


class Desk:
    def __init__(self, broker: Broker, policies: Policies | None = None) -> None:
        self.broker = broker
        self.policies = policies or Policies([])  # for what is declared here as by an AMQP client
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._durable = 0  # when it was last looked at by those who wait

    # ------------------------------------------------------------------- time

    def begin(self) -> None:
        """Before the core is called, and again after every `await`."""
        self.broker.clock.now_ns = time.monotonic_ns()
        self.broker.pressure.source = None  # nobody who publishes here could be made to wait

    def begin_change(self) -> None:
        """The same where something will be written: refused while nothing can be."""
        self.begin()
        if self.broker.store.refusal() is not Reason.SUCCESS:
            raise Unavailable(NO_STORAGE)

    # ------------------------------------------------------------------ names

    def get_account(self, fields: Fields) -> Account:
        name = read_text(fields, "account", DEFAULT_ACCOUNT)
        account = self.broker.accounts.get(name)
        if account is None:
            raise ControlRefusal(
                f"there is no account {name!r}; there are {', '.join(sorted(self.broker.accounts))}"
            )
        return account

    def get_queue(self, fields: Fields, field: str = "name") -> Queue:
        name = read_text(fields, field)
        queue = self.get_account(fields).queues.catalog.find(name)
        if queue is None:
            raise ControlRefusal(f"there is no queue {name!r}", "millstream queue list")
        return queue

    # --------------------------------------------------------------- durable

    async def wait_durable(self) -> None:
        """Until everything that was changed up to now is as safe as the configuration promises."""
        self.broker.write_settled()
        store = self.broker.store
        position = int(store.position())
        if position <= store.durable():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._waiting:
            self._durable = int(store.durable())
        self._waiting.append((position, future))
        try:
            async with asyncio.timeout(DURABLE_S):
                await future
        except TimeoutError:
            raise Unavailable(
                f"it is not on disk after {DURABLE_S:.0f} seconds; it may or may not be kept"
            ) from None

    def on_durable(self) -> None:
        """The log has made progress, or said that it cannot."""
        if not self._waiting:
            return
        store = self.broker.store
        durable = int(store.durable())
        has_stopped = durable == self._durable and store.refusal() is not Reason.SUCCESS
        self._durable = durable
        waiting = self._waiting
        self._waiting = []
        for position, future in waiting:
            if future.done():
                continue  # who waited has gone
            if position <= durable:
                future.set_result(None)
            elif has_stopped:
                future.set_exception(Unavailable(f"{NO_STORAGE}; what was asked for may or may not be kept"))
            else:
                self._waiting.append((position, future))


# ---------------------------------------------------------------------- fields


def read_text(fields: Fields, name: str, default: str | None = None) -> str:
    value = fields.get(name, default)
    if not isinstance(value, str):
        raise ControlRefusal(f"{name} must be a text, not {value!r}")
    if to_utf8(value) is None:
        raise ControlRefusal(f"{name} is not well-formed text: {value!r}")
    return value


def to_utf8(text: str) -> bytes | None:
    """None: JSON let half a character through."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None


def read_whole(fields: Fields, name: str, default: int, low: int, high: int) -> int:
    value = fields.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ControlRefusal(f"{name} must be a whole number from {low} to {high}, not {value!r}")
    return value


def read_flag(fields: Fields, name: str) -> bool:
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise ControlRefusal(f"{name} must be true or false, not {value!r}")
    return value


def read_list(fields: Fields, name: str, count_max: int) -> list[object]:
    value = fields.get(name)
    if not isinstance(value, list) or len(value) > count_max:
        raise ControlRefusal(f"{name} must be a list of at most {count_max}")
    return value


def read_object(fields: Fields, name: str) -> dict[str, object]:
    value = fields.get(name, {})
    if not isinstance(value, dict):
        raise ControlRefusal(f"{name} must be an object, not {value!r}")
    return value
