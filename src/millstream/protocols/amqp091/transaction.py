"""What a channel in transaction mode has been told and not yet been asked to do.

Publishes and answers wait here until tx.commit, which carries them out in one go: they share one batch of the log, and a
batch is one atom.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.broker.exchange_access import ExchangeAccess
from millstream.model.errors import Reason, Refused
from millstream.model.outcome import Outcome
from millstream.protocols.amqp091.machine.events import PublishReceived
from millstream.queues.pending import Pending
from millstream.queues.x_death import further_keys

OPERATIONS_MAX: Final = 20_000  # a commit is one turn of the loop
RECEIVERS_MAX: Final = 40_000  # of all its messages together, for the same reason
ROUTING_STEPS_MAX: Final = 100_000  # microseconds, about, that finding the routes of its messages may take
REJECTED_OPERATIONS: Final = 25  # that a rejected delivery counts for: it may become a dead letter
BYTES_MAX: Final = 64 * 1024 * 1024  # that it holds, and that its messages take in durable queues together


@final
class TransactionRoom:
    """What all transactions of a connection hold together: channels are many, memory is not."""

    def __init__(self) -> None:
        self.operations = 0
        self.size_bytes = 0

    def take(self, operations: int, size_bytes: int) -> None:
        # one message always fits
        is_too_large = self.size_bytes > 0 and self.size_bytes + size_bytes > BYTES_MAX
        if self.operations + operations > OPERATIONS_MAX or is_too_large:
            text = f"the transactions of a connection hold at most {OPERATIONS_MAX} operations and {BYTES_MAX} bytes"
            raise Refused(Reason.PRECONDITION_FAILED, text)
        self.operations += operations
        self.size_bytes += size_bytes


@final
class Transaction:
    def __init__(self, room: TransactionRoom) -> None:
        self.publishes: list[PublishReceived] = []
        self.settlements: list[tuple[list[int], Outcome]] = []
        self.named: dict[int, None] = {}  # tags that were answered in it
        self._room = room
        self._size_bytes = 0
        self._operations = 0

    def add_publish(self, event: PublishReceived) -> None:
        size_bytes = len(event.body) + len(event.properties)
        self._room.take(1, size_bytes)
        self._operations += 1
        self._size_bytes += size_bytes
        self.publishes.append(event)

    def add_settlement(self, tags: list[int], outcome: Outcome) -> None:
        operations = len(tags) * (REJECTED_OPERATIONS if outcome is Outcome.REJECTED else 1)
        self._room.take(operations, 0)
        self._operations += operations
        self.settlements.append((tags, outcome))
        for tag in tags:
            self.named[tag] = None

    def end(self) -> None:
        """Carried out, or given up."""
        self._room.operations -= self._operations
        self._room.size_bytes -= self._size_bytes

    def check_letters(self, unsettled: dict[int, Pending], exchanges: ExchangeAccess) -> None:
        """What is rejected may become dead letters, all of them in this turn: refused where those would take too long to route."""
        steps: i64 = 0
        for tags, outcome in self.settlements:
            if outcome is not Outcome.REJECTED:
                continue
            for tag in tags:
                pending = unsettled.get(tag)
                if pending is not None:
                    steps += steps_of_letter(pending, exchanges)
                if steps > ROUTING_STEPS_MAX:
                    text = (
                        "the dead letters of the transaction would take too long to route; commit more often"
                    )
                    raise Refused(Reason.PRECONDITION_FAILED, text)


def steps_of_letter(pending: Pending, exchanges: ExchangeAccess) -> i64:
    definition = pending.group.queue.definition
    exchange = definition.dead_letter_exchange
    if exchange is None:
        return 0
    keys: i64 = 1
    if definition.dead_letter_key is None:
        keys += len(further_keys(pending.message))
    return exchanges.steps_to_route(exchange, keys)
