"""Dead letters on their way through exchanges: published as a client would, by the right of who declared their queue.

What one costs beyond the usual, because it is hard to route or goes to many, counts for the turn and for whoever made it die.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.broker.conditions import LIMIT_REACHED
from millstream.broker.exchange_access import ExchangeAccess
from millstream.broker.fan_out import name_for, steps_of, stored_bytes_of, stores_too_much
from millstream.broker.health import Health
from millstream.broker.owner_rights import OwnerRights
from millstream.broker.tasks import TaskQueue
from millstream.model.counters import Counters
from millstream.model.errors import Reason
from millstream.model.limits import Limits
from millstream.model.message import Message
from millstream.model.owner import Owner
from millstream.queues.exchange_port import ExchangePort
from millstream.queues.publish_options import read_user_properties
from millstream.queues.queue import Queue
from millstream.queues.scheduler import Scheduler
from millstream.queues.x_death import find_cycle, further_keys
from millstream.routing.exchange import Exchange
from millstream.routing.exchanges import COPIES_STEPS_MAX, KEYS_PER_STEP
from millstream.routing.router import Route

SHOWN_MAX: Final = 200  # bytes of a topic in a sentence
STORED_BYTES_PER_STEP: Final[i64] = 1024


@final
class LetterPost(ExchangePort):
    def __init__(
        self,
        exchanges: ExchangeAccess,
        rights: OwnerRights,
        counters: Counters,
        limits: Limits,
        scheduler: Scheduler,
        tasks: TaskQueue,
        health: Health,
    ) -> None:
        self._exchanges = exchanges
        self._rights = rights
        self._counters = counters
        self._queues_max: i64 = limits.queues_per_message_max
        self._stored_bytes_max: i64 = limits.stored_bytes_per_message_max
        self._scheduler = scheduler
        self._tasks = tasks
        self._health = health
        self._spent: i64 = 0  # on letters so far, in about microseconds

    def post(self, exchange: str, key: bytes, letter: Message, owner: Owner | None, user: str) -> bool:
        """To everyone a publish would reach, except a queue that is full and refuses, or that had it before and would send
        it round for ever. The right is asked for what the key leads to now, not when the queue was declared."""
        access = self._exchanges
        found = access.find(exchange)
        if found is None:
            return False
        further = further_keys(letter)
        self._spend(len(further) // KEYS_PER_STEP)  # the right to each of them is asked for
        keys = [each for each in [key, *further] if self._may_post(exchange, each, owner)]
        if not keys:
            return False
        letter.topic = access.topic_of(exchange, keys[0])
        headers: dict[bytes, object] | None = None
        if access.needs_headers(exchange):
            headers = {}
            for name, value in read_user_properties(letter.properties):
                headers[name] = value
        seen: dict[int, None] = {}
        spent: i64 = self._spent
        if len(keys) > 1:
            before: i64 = access.routing_steps()
            route = access.find_common_route(exchange, keys, letter.topic, headers, True)
            self._spend(access.routing_steps() - before)
            if route is not None:
                return self._hand_over(route, letter, seen)
        is_taken = False
        for at, each in enumerate(keys):
            if at and self._spent - spent > COPIES_STEPS_MAX:
                self._tell_cut(exchange, len(keys))
                break
            route = self._find_route(found, each, headers, user)
            if self._hand_over(route, letter, seen):
                is_taken = True
        return is_taken

    def on_queue_removed(self, queue: Queue) -> None:
        self._exchanges.on_queue_removed(queue)

    def is_leaving(self, name: str) -> bool:
        return self._exchanges.removal.has_queue(name)

    def finish_leaving(self, name: str) -> None:
        self._exchanges.removal.finish_queue(name)

    def _find_route(
        self, exchange: Exchange, key: bytes, headers: dict[bytes, object] | None, user: str
    ) -> Route:
        access = self._exchanges
        before: i64 = access.routing_steps()
        topic = access.topic_of(exchange.name, key)
        if headers is not None:
            route = access.find_headers_route(exchange, key, topic, headers)
        else:
            route = access.find_route(exchange.name, key, topic, None, user)
        self._spend(access.routing_steps() - before)
        return route

    def _spend(self, steps: i64) -> None:
        if steps:
            self._spent += steps
            self._tasks.spend(steps)
            self._scheduler.spend(steps)

    def _is_too_wide(self, route: Route, letter: Message) -> bool:
        """Whether it would go to more queues, or take more bytes in them, than any message may."""
        limit = ""
        if len(route.targets) > self._queues_max:
            count: i64 = sum([target.outlet.is_storing() for target in route.targets])
            if count > self._queues_max:
                limit = f"go to more than {self._queues_max} queues, as many as broker.max_queues_per_message allows"
        if not limit and stores_too_much(route, letter, self._stored_bytes_max):
            limit = f"store more than {self._stored_bytes_max} bytes (broker.max_stored_bytes_per_message)"
        if not limit:
            return False
        topic = route.topic[:SHOWN_MAX].decode("utf-8", "replace")
        self._health.report(LIMIT_REACHED, f"a dead letter would {limit}: {topic}")
        return True

    def _tell_cut(self, exchange: str, count: i64) -> None:
        text = (
            f"a dead letter with {count} keys in CC takes too long to route; not all of them were looked at"
        )
        self._health.report(LIMIT_REACHED, f"{text}: exchange {exchange or 'amq.default'}")

    def _may_post(self, exchange: str, key: bytes, owner: Owner | None) -> bool:
        if owner is None or self._rights.can_publish(owner, self._exchanges.topic_of(exchange, key)):
            return True
        self._counters.dead_letters_denied += 1
        return False

    def _hand_over(self, route: Route, letter: Message, seen: dict[int, None]) -> bool:
        """To those who have not got it by another of its keys."""
        if self._is_too_wide(route, letter):
            return False
        self._spend(steps_of(route) + stored_bytes_of(route, letter) // STORED_BYTES_PER_STEP)
        cycle = find_cycle(letter)
        told = name_for(route, letter)
        is_taken = False
        for target in route.targets:
            outlet = target.outlet
            if id(outlet) in seen:
                continue
            seen[id(outlet)] = None
            if isinstance(outlet, Queue):
                if outlet.name in cycle or outlet.find_refusal(letter) is not Reason.SUCCESS:
                    continue
                outlet.deliver(letter, target)
            else:
                outlet.deliver(told, target)
            is_taken = True
        if route.shares is not None:
            for share in route.shares:
                chosen = share.choose(None)
                if chosen is not None:
                    chosen.outlet.deliver(told, chosen)
                    is_taken = True
        return is_taken
