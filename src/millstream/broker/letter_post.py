"""Dead letters on their way through exchanges: published as a client would, by the right of who declared their queue."""

from __future__ import annotations

from typing import final

from millstream.broker.exchange_access import ExchangeAccess
from millstream.broker.owner_rights import OwnerRights
from millstream.model.counters import Counters
from millstream.model.errors import Reason
from millstream.model.message import Message
from millstream.model.owner import Owner
from millstream.queues.death import further_keys, is_cycle
from millstream.queues.directions import read_user_properties
from millstream.queues.exchange_port import ExchangePort
from millstream.queues.queue import Queue
from millstream.routing.router import Route


@final
class LetterPost(ExchangePort):
    def __init__(self, exchanges: ExchangeAccess, rights: OwnerRights, counters: Counters) -> None:
        self._exchanges = exchanges
        self._rights = rights
        self._counters = counters

    def post(self, exchange: str, key: bytes, letter: Message, owner: Owner | None, user: str) -> bool:
        """To everyone a publish would reach, except a queue that is full and refuses, or that had it before and would send
        it round for ever. The right is asked for what the key leads to now, not when the queue was declared."""
        access = self._exchanges
        found = access.find(exchange)
        if found is None:
            return False
        keys = [each for each in [key, *further_keys(letter)] if self._may_post(exchange, each, owner)]
        if not keys:
            return False
        letter.topic = access.topic_of(exchange, keys[0])
        headers: dict[bytes, object] | None = None
        if access.needs_headers(exchange):
            headers = {}
            for name, value in read_user_properties(letter.properties):
                headers[name] = value
        seen: dict[int, None] = {}
        if len(keys) > 1:
            route = access.find_common_route(exchange, keys, letter.topic, headers, True)
            if route is not None:
                return self._hand_over(route, letter, seen)
        is_taken = False
        for each in keys:
            topic = access.topic_of(exchange, each)
            if headers is not None:
                route = access.find_headers_route(found, each, topic, headers)
            else:
                route = access.find_route(exchange, each, topic, None, user)
            if self._hand_over(route, letter, seen):
                is_taken = True
        return is_taken

    def on_queue_removed(self, queue: Queue) -> None:
        self._exchanges.on_queue_removed(queue)

    def is_leaving(self, name: str) -> bool:
        return self._exchanges.removal.has_queue(name)

    def finish_leaving(self, name: str) -> None:
        self._exchanges.removal.finish_queue(name)

    def _may_post(self, exchange: str, key: bytes, owner: Owner | None) -> bool:
        if owner is None or self._rights.can_publish(owner, self._exchanges.topic_of(exchange, key)):
            return True
        self._counters.dead_letters_denied += 1
        return False

    def _hand_over(self, route: Route, letter: Message, seen: dict[int, None]) -> bool:
        """To those who have not got it by another of its keys."""
        is_taken = False
        for target in route.targets:
            outlet = target.outlet
            if id(outlet) in seen:
                continue
            seen[id(outlet)] = None
            if isinstance(outlet, Queue):
                if is_cycle(outlet.name, letter) or outlet.find_refusal(letter) is not Reason.SUCCESS:
                    continue
            outlet.deliver(letter, target)
            is_taken = True
        if route.shares is not None:
            for share in route.shares:
                chosen = share.choose(None)
                if chosen is not None:
                    chosen.outlet.deliver(letter, chosen)
                    is_taken = True
        return is_taken
