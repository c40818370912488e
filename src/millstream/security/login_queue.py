"""Logins that wait for their password to be checked: who is checked next, and when a refusal may be told.

A check costs a tenth of a second of processor time, so a storm of wrong logins must not make others wait for all of
it. Addresses take turns, and below them user names. Names that exist and have not just failed go first, every second
check at most.

Invariants
- Every login gets a ticket and leaves the queue once: taken, cancelled, or refused at the bound.
- A refusal is told only when all logins that came earlier have been checked. Which names exist decides who is checked
  first, so without this rule the time to a refusal would tell them.
- Work per call does not grow with the number of those who wait.
- A login that is taken or cancelled is not kept: neither its password nor its place in line.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, final

from millstream.security.authentication import Credentials, Decision
from millstream.security.rate import address_key

WAITING_MAX: Final = 2000
WAITING_PER_ADDRESS_MAX: Final = 500


@final
class Ticket:
    """One login under way. `decision` is set when it is known."""

    __slots__ = ("credentials", "decision", "is_done", "number")

    def __init__(self, number: int, credentials: Credentials) -> None:
        self.number = number
        self.credentials = credentials
        self.decision: Decision | None = None
        self.is_done = False  # checked, or given up: nobody waits for it any more


@final
class _Lane:
    """Tickets by address and name; both take turns."""

    __slots__ = ("_addresses",)

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, OrderedDict[str, OrderedDict[int, Ticket]]] = OrderedDict()

    def put(self, ticket: Ticket) -> None:
        credentials = ticket.credentials
        key = address_key(credentials.address)
        names = self._addresses.get(key)
        if names is None:
            names = self._addresses[key] = OrderedDict()
        name = credentials.username or ""
        line = names.get(name)
        if line is None:
            line = names[name] = OrderedDict()
        line[ticket.number] = ticket

    def take(self) -> Ticket | None:
        """The next one, or None."""
        if not self._addresses:
            return None
        address, names = self._addresses.popitem(last=False)
        name, line = names.popitem(last=False)
        _, ticket = line.popitem(last=False)
        if line:
            names[name] = line  # behind the other names
        if names:
            self._addresses[address] = names  # behind the other addresses
        return ticket

    def remove(self, ticket: Ticket) -> None:
        """It may have been taken already."""
        key = address_key(ticket.credentials.address)
        name = ticket.credentials.username or ""
        names = self._addresses.get(key)
        line = None if names is None else names.get(name)
        if names is None or line is None or line.pop(ticket.number, None) is None or line:
            return
        del names[name]
        if not names:
            del self._addresses[key]


@final
class LoginQueue:
    def __init__(
        self, waiting_max: int = WAITING_MAX, waiting_per_address_max: int = WAITING_PER_ADDRESS_MAX
    ) -> None:
        self._waiting_max = waiting_max
        self._per_address_max = waiting_per_address_max
        self._preferred = _Lane()
        self._ordinary = _Lane()
        self._was_preferred = False
        self._next_number = 0
        # in the order they came: those not checked yet, and refusals untold
        self._open: OrderedDict[int, Ticket] = OrderedDict()
        self._by_address: dict[str, int] = {}  # unchecked

    @property
    def waiting(self) -> int:
        """Logins not answered yet."""
        return len(self._open)

    def find_refusal(self, address: str) -> str:
        """Which bound keeps another login of this address out; empty: none does."""
        if len(self._open) >= self._waiting_max:
            return f"{len(self._open):,} logins wait to be checked (auth.max_waiting_logins = {self._waiting_max})"
        count = self._by_address.get(address_key(address), 0)
        if count >= self._per_address_max:
            key = f"auth.max_waiting_logins_per_address = {self._per_address_max}"
            return f"{count:,} logins from {address} wait to be checked ({key})"
        return ""

    def put(self, credentials: Credentials, is_preferred: bool) -> Ticket | None:
        """None: as many as there may be wait already, in all or from this address."""
        key = address_key(credentials.address)
        count = self._by_address.get(key, 0)
        if len(self._open) >= self._waiting_max or count >= self._per_address_max:
            return None
        ticket = Ticket(self._next_number, credentials)
        self._next_number += 1
        self._open[ticket.number] = ticket
        self._by_address[key] = count + 1
        (self._preferred if is_preferred else self._ordinary).put(ticket)
        return ticket

    def take(self) -> Ticket | None:
        """The login to check next, or None when nobody waits."""
        first, second = self._preferred, self._ordinary
        if self._was_preferred:
            first, second = second, first
        ticket = first.take()
        self._was_preferred = ticket is not None and not self._was_preferred
        if ticket is None:
            ticket = second.take()
            self._was_preferred = ticket is not None and second is self._preferred
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Its connection is gone: it is not checked, or its answer not told."""
        self._finish(ticket)
        self._open.pop(ticket.number, None)

    def on_allowed(self, ticket: Ticket) -> None:
        """A success is told at once."""
        self.cancel(ticket)

    def on_denied(self, ticket: Ticket, decision: Decision) -> None:
        ticket.decision = decision
        self._finish(ticket)

    def take_answered(self) -> list[Ticket]:
        """Refusals that may be told now, in the order of their logins."""
        answered: list[Ticket] = []
        while self._open:
            number = next(iter(self._open))
            ticket = self._open[number]
            if not ticket.is_done:
                break
            del self._open[number]
            answered.append(ticket)
        return answered

    def _finish(self, ticket: Ticket) -> None:
        if ticket.is_done:
            return
        ticket.is_done = True
        self._preferred.remove(ticket)
        self._ordinary.remove(ticket)
        key = address_key(ticket.credentials.address)
        left = self._by_address.get(key, 1) - 1
        if left > 0:
            self._by_address[key] = left
        else:
            self._by_address.pop(key, None)
