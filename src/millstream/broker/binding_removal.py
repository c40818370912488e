"""Bindings of a queue or exchange that is gone. They may be a hundred thousand: a few go at once, the rest in slices.

Invariants
- From the first moment on nothing goes by them; whoever binds the same again makes a new one.
- What is gone can be declared again under its name when its last binding is: a restart could not tell the old ones from new ones.
- An exchange that goes with its last binding goes as soon as that one does.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.broker.tasks import STEPS_PER_SLICE, Task, TaskQueue
from millstream.model.outlet import Outlet
from millstream.routing.binding import Binding
from millstream.routing.exchange import Exchange
from millstream.routing.exchanges import Exchanges

if TYPE_CHECKING:
    from millstream.broker.exchange_access import ExchangeAccess

STEPS_PER_BINDING: Final[i64] = 2
FEW: Final[i64] = STEPS_PER_SLICE // STEPS_PER_BINDING  # bindings that go on the spot


@final
class Leaving:
    """A queue or an exchange, and what is left of its bindings."""

    def __init__(self, name: str, queue: Outlet | None, exchange: Exchange | None) -> None:
        self.name = name
        self.queue = queue
        self.exchange = exchange
        self.bindings: list[Binding] = []


@final
class BindingRemoval(Task):
    def __init__(self, access: ExchangeAccess, exchanges: Exchanges, tasks: TaskQueue) -> None:
        self._access = access
        self._exchanges = exchanges
        self._tasks = tasks
        self._urgent: deque[Leaving] = deque()  # with few bindings: they need not wait for the others
        self._large: deque[Leaving] = deque()
        self._queues: dict[str, None] = {}  # names
        self._names: dict[str, None] = {}  # of exchanges
        self._is_running = False

    def is_going_on(self) -> bool:
        return len(self._urgent) != 0 or len(self._large) != 0

    def has_urgent(self) -> bool:
        return len(self._urgent) != 0

    def has_queue(self, name: str) -> bool:
        return name in self._queues

    def has_exchange(self, name: str) -> bool:
        return name in self._names

    def remove_queue(self, name: str, queue: Outlet) -> None:
        leaving = Leaving(name, queue, None)
        leaving.bindings = self._exchanges.bindings_of(queue)
        if not leaving.bindings:
            return
        self._queues[name] = None
        self._exchanges.leaving_queues[queue] = None
        self._start(leaving)

    def finish_queue(self, name: str) -> None:
        """Now, however many are left: a dead letter needs a queue of that name and cannot wait."""
        for line in (self._urgent, self._large):
            for leaving in list(line):
                if leaving.queue is not None and leaving.name == name:
                    line.remove(leaving)
                    self._tasks.spend(STEPS_PER_BINDING * len(leaving.bindings))
                    while leaving.bindings:
                        self._access.take_away(leaving.bindings.pop())
                    self._forget(leaving)

    def remove_exchange(self, exchange: Exchange) -> None:
        leaving = Leaving(exchange.name, None, exchange)
        leaving.bindings = list(exchange.bindings.values())
        leaving.bindings.extend(exchange.incoming)
        self._names[exchange.name] = None
        self._exchanges.leaving_exchanges[exchange] = None
        self._start(leaving)

    def _start(self, leaving: Leaving) -> None:
        if self._is_running or len(leaving.bindings) <= FEW:
            self._urgent.append(leaving)
        else:
            self._large.append(leaving)
        if self._is_running:
            return  # it went with the last binding of the one that is being removed
        self._tasks.spend(self.run(STEPS_PER_SLICE))
        if self.is_going_on():
            self._tasks.add(self)

    def run(self, steps: i64) -> i64:
        left: i64 = steps
        self._is_running = True
        while left > 0 and self.is_going_on():
            line = self._urgent if self._urgent else self._large
            leaving = line.popleft()
            while left > 0 and leaving.bindings:
                self._access.take_away(leaving.bindings.pop())
                left -= STEPS_PER_BINDING
            if leaving.bindings:
                line.appendleft(leaving)
            else:
                self._forget(leaving)
        self._is_running = False
        return steps if self.is_going_on() else min(steps - left, steps - 1)

    def on_task_failed(self, error: Exception) -> None:
        raise error

    def _forget(self, leaving: Leaving) -> None:
        if leaving.queue is not None:
            self._exchanges.leaving_queues.pop(leaving.queue, None)
            self._queues.pop(leaving.name, None)
        if leaving.exchange is not None:
            self._exchanges.leaving_exchanges.pop(leaving.exchange, None)
            self._names.pop(leaving.name, None)
