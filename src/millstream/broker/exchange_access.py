"""The exchanges of an account as its clients use them: declared, bound, published to.

Invariants
- Every change raises the router's generation: a route is good while its generation is.
- What is durable is a fact before the caller may answer: an exchange declared so, a binding whose two ends are.
- The default exchange cannot be bound, the predeclared ones cannot be removed.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.broker.binding_owners import BindingOwners
from millstream.broker.binding_removal import BindingRemoval
from millstream.broker.exchange_rules import (
    ALTERNATE,
    HOST,
    NAME_SIZE_MAX,
    RESERVED,
    check_alternate,
    check_equivalent,
    check_name,
    check_not_default,
    refuse_leaving,
    refuse_reserved,
)
from millstream.broker.queue_access import QueueAccess
from millstream.broker.tasks import TaskQueue
from millstream.model.errors import Reason, Refused
from millstream.model.limits import Limits
from millstream.model.outlet import Outlet
from millstream.model.owner import Owner
from millstream.model.queue_topic import is_queue_topic
from millstream.model.routing_key import key_of_topic, topic_of_key, topic_of_name, topic_of_publish
from millstream.queues.queue import Queue
from millstream.routing.binding import Binding
from millstream.routing.exchange import KINDS, Exchange
from millstream.routing.exchanges import PREDECLARED, Exchanges
from millstream.routing.header_match import HeaderPattern
from millstream.routing.router import NODES_PER_STEP, Route, Router, weigh
from millstream.storage.records import exchange_records
from millstream.storage.records.exchange_records import StoredBinding, StoredExchange
from millstream.storage.store import Store

EXCHANGES_MAX: Final = 10_000
BINDINGS_MAX: Final = 1_000_000  # half a kilobyte each, with wildcards up to one: a gigabyte at most


@final
class ExchangeAccess:
    def __init__(
        self,
        account: str,
        exchanges: Exchanges,
        router: Router,
        queues: QueueAccess,
        store: Store,
        limits: Limits,
        tasks: TaskQueue,
    ) -> None:
        self._account = account
        self._exchanges = exchanges
        self._router = router
        self._queues = queues
        self._store = store
        self._owners = BindingOwners(account, store, queues.catalog.quotas)
        self._limits = limits
        self.removal = BindingRemoval(self, exchanges, tasks)
        self._cache_max: i64 = limits.route_cache_max
        # made for the generation of the router that stands beside them
        self._routes: dict[str, dict[bytes, Route]] = {}
        self._by_headers: dict[str, bool] = {}
        self._weight: i64 = 0  # of the routes
        self._generation: i64 = -1

    # --------------------------------------------------------------- exchanges

    def cache_weight(self) -> i64:
        return self._weight

    def find(self, name: str) -> Exchange | None:
        return self._exchanges.find(name)

    def get(self, name: str) -> Exchange:
        exchange = self._exchanges.find(name)
        if exchange is None:
            raise Refused(Reason.NOT_FOUND, f"no exchange '{name}' in {HOST}")
        return exchange

    def all(self) -> list[Exchange]:
        return list(self._exchanges.by_name.values())

    def binding_count(self) -> i64:
        return self._exchanges.binding_count

    def declare(
        self,
        name: str,
        kind: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: dict[str, object],
        owner: Owner | None = None,
    ) -> Exchange:
        """Make it, or see that it is what was asked for."""
        check_not_default(name)
        if kind not in KINDS:
            raise Refused(Reason.UNSPECIFIED, f"unknown exchange type '{kind}'")
        wanted = Exchange(name, kind, durable, auto_delete, internal, arguments)
        exchange = self._exchanges.find(name)
        if exchange is not None:
            check_equivalent(exchange, wanted)
            return exchange
        if name.startswith(RESERVED):
            raise refuse_reserved(name)
        check_alternate(wanted)
        check_name(name)
        if self.removal.has_exchange(name):
            raise refuse_leaving("exchange", name)
        if len(self._exchanges.by_name) >= EXCHANGES_MAX + len(PREDECLARED):
            text = f"the account has {EXCHANGES_MAX} exchanges, as many as it may"
            raise Refused(Reason.QUOTA_EXCEEDED, text)
        wanted.owner = owner
        self._exchanges.by_name[name] = wanted
        if durable:
            stored = StoredExchange(self._account, name, kind, auto_delete, internal, arguments, owner)
            self._store.exchange_fact(
                exchange_records.EXCHANGE_SAVED, exchange_records.encode_exchange(stored)
            )
        self._router.forget_all()  # it may be the alternate of another
        return wanted

    def delete(self, name: str, if_unused: bool) -> bool:
        """False when there was none."""
        check_not_default(name)
        if name.startswith(RESERVED):
            raise refuse_reserved(name)
        exchange = self._exchanges.find(name)
        if exchange is None:
            return False
        if if_unused and self._is_in_use(exchange):
            raise Refused(Reason.PRECONDITION_FAILED, f"exchange '{name}' in {HOST} in use")
        self._remove(exchange)
        return True

    def set_alternate(self, exchange: Exchange, alternate: str | None) -> None:
        """By a policy: the argument it was declared with wins."""
        if ALTERNATE not in exchange.arguments and exchange.alternate != alternate:
            exchange.alternate = alternate
            self._router.forget_all()

    # ---------------------------------------------------------------- bindings

    def bind_queue(
        self,
        queue: Queue,
        source: str,
        key: bytes,
        arguments: dict[str, object],
        owner: Owner | None = None,
    ) -> None:
        """By the right of `owner`; None: it is the account's own."""
        check_not_default(source)
        exchange = self.get(source)
        identity = exchange_records.encode_identity(False, queue.name, key, arguments)
        is_durable = queue.is_durable and exchange.durable
        binding = Binding(exchange, queue.name, queue, None, key, arguments, identity, is_durable)
        self._bind(binding, owner, False)

    def is_bound(self, queue: Queue, source: str, key: bytes, arguments: dict[str, object]) -> bool:
        exchange = self._exchanges.find(source)
        identity = exchange_records.encode_identity(False, queue.name, key, arguments)
        return exchange is not None and self._find_binding(exchange, identity) is not None

    def unbind_queue(self, queue: Queue, source: str, key: bytes, arguments: dict[str, object]) -> bool:
        """False when it was not bound so."""
        check_not_default(source)
        identity = exchange_records.encode_identity(False, queue.name, key, arguments)
        return self._unbind(self.get(source), identity)

    def bind_exchange(
        self,
        target: str,
        source: str,
        key: bytes,
        arguments: dict[str, object],
        owner: Owner | None = None,
        is_narrow: bool = False,
    ) -> None:
        """`is_narrow`: the owner may publish to the target with this key, and not with every other."""
        check_not_default(source)
        check_not_default(target)
        exchange = self.get(source)
        following = self.get(target)
        identity = exchange_records.encode_identity(True, target, key, arguments)
        is_durable = following.durable and exchange.durable
        binding = Binding(exchange, target, None, following, key, arguments, identity, is_durable)
        self._bind(binding, owner, is_narrow)

    def unbind_exchange(self, target: str, source: str, key: bytes, arguments: dict[str, object]) -> bool:
        check_not_default(source)
        check_not_default(target)
        self.get(target)
        identity = exchange_records.encode_identity(True, target, key, arguments)
        return self._unbind(self.get(source), identity)

    def bindings_of_queue(self, queue: Queue) -> list[Binding]:
        return self._exchanges.bindings_of(queue)

    def _is_in_use(self, exchange: Exchange) -> bool:
        """Whether anything is bound to it. Not by making a list: there may be a million bindings."""
        for binding in exchange.bindings.values():  # noqa: SIM110 compiled code has no generators
            if not self._exchanges.is_left(binding):
                return True
        return False

    def _find_binding(self, source: Exchange, identity: bytes) -> Binding | None:
        binding = source.bindings.get(identity)
        return None if binding is None or self._exchanges.is_left(binding) else binding

    def _bind(self, binding: Binding, owner: Owner | None, is_narrow: bool) -> None:
        source = binding.source
        known = source.bindings.get(binding.identity)
        if known is not None:
            if not self._exchanges.is_left(known):
                self._bind_again(known, owner, is_narrow)
                return
            self._take_away(known)
        if len(binding.key) > NAME_SIZE_MAX:
            raise Refused(Reason.PRECONDITION_FAILED, f"a binding key has at most {NAME_SIZE_MAX} bytes")
        if source.kind == "headers":
            HeaderPattern(binding.arguments)  # refuses what cannot be matched
        if self._exchanges.binding_count >= BINDINGS_MAX:
            text = f"the account has {BINDINGS_MAX} bindings, as many as it may"
            raise Refused(Reason.QUOTA_EXCEEDED, text)
        limits = self._limits
        self._exchanges.costs.check_room(
            source.kind,
            binding.key,
            binding.arguments,
            limits.shapes_max,
            limits.amqp_header_conditions_max,
        )
        self._owners.admit(binding, owner)
        self._exchanges.add(binding)
        self._owners.begin(binding, owner, is_narrow)
        self._router.forget_all()

    def _bind_again(self, binding: Binding, owner: Owner | None, is_narrow: bool) -> None:
        """It stands by the right of all who made it. What is the account's own stays so."""
        if not binding.owners:
            return
        for known in binding.owners:
            if owner is not None and known.is_same(owner) and not binding.is_suspended:
                return
        self._owners.add(binding, owner, is_narrow)
        if self._exchanges.suspend(binding, False):
            self._router.forget_all()

    def _unbind(self, source: Exchange, identity: bytes) -> bool:
        binding = self._find_binding(source, identity)
        if binding is None:
            return False
        self.remove_binding(binding)
        self._router.forget_all()
        return True

    def on_queue_removed(self, queue: Queue) -> None:
        self.removal.remove_queue(queue.name, queue)
        self._router.forget_all()

    def owned_bindings(self) -> list[Binding]:
        """Those that stand by somebody's right."""
        found: list[Binding] = []
        for exchange in self._exchanges.by_name.values():
            found += [binding for binding in exchange.bindings.values() if binding.owners]
        return found

    def is_there(self, binding: Binding) -> bool:
        source = binding.source
        return source.bindings.get(binding.identity) is binding and self.find(source.name) is source

    def suspend(self, binding: Binding, is_suspended: bool) -> bool:
        """Whether that is new. The caller tells the router."""
        return self._exchanges.suspend(binding, is_suspended)

    def remove_binding(self, binding: Binding) -> None:
        self._take_away(binding)
        source = binding.source  # which may go with its last binding
        if source.auto_delete and not source.bindings and self.find(source.name) is source:
            self._remove(source)

    def take_away(self, binding: Binding) -> None:
        """One whose end is gone, unless somebody was faster."""
        if binding.source.bindings.get(binding.identity) is binding:
            self.remove_binding(binding)

    def _take_away(self, binding: Binding) -> None:
        self._exchanges.remove(binding)
        self._owners.end(binding)

    def _remove(self, exchange: Exchange) -> None:
        del self._exchanges.by_name[exchange.name]
        if exchange.durable:
            body = exchange_records.encode_exchange_name(self._account, exchange.name)
            self._store.exchange_fact(exchange_records.EXCHANGE_REMOVED, body)
        self.removal.remove_exchange(exchange)
        self._router.forget_all()

    # ------------------------------------------------------------------ routes

    def routing_steps(self) -> i64:
        """What finding routes in this account has cost so far, in about microseconds."""
        return self._exchanges.steps + self._router.visited // NODES_PER_STEP

    def steps_to_route(self, name: str, keys: i64) -> i64:
        """What it takes at most to find where one message with so many keys goes, about."""
        with_headers = self.find(name) is not None and self.needs_headers(name)
        return self._exchanges.steps_to_route(with_headers, keys)

    def spend(self, steps: i64) -> None:
        """On what belongs to finding a route, beside the route itself."""
        self._exchanges.steps += steps

    def needs_headers(self, name: str) -> bool:
        """Whether the headers of what is published there decide where it goes."""
        self._forget_old()
        known = self._by_headers.get(name)
        if known is None:
            known = self._exchanges.needs_headers(self.get(name))
            self._by_headers[name] = known
        return known

    def find_route(
        self, exchange: str, key: bytes, topic: bytes, headers: dict[bytes, object] | None, user: str
    ) -> Route:
        """Where a message goes; `topic` is what it is called in the topic space. A queue that is made by it is that user's."""
        known = self._routes.get(exchange)
        if known is not None:
            route = known.get(key)
            if route is not None and route.generation == self._router.generation:
                return route
        found = self.get(exchange)
        if self.needs_headers(exchange):
            return self._walk(found, key, topic, headers, False, False)
        if key and found.ignores_key():
            return self.find_route(
                exchange, b"", topic, None, user
            )  # one for all keys: they may be as many as messages
        if not exchange:
            route = self._find_default(key, topic, user)
        elif found is self._exchanges.topics:
            route = self._find_topics(found, key, topic)
        else:
            route = self._walk(found, key, topic, None, False, True)
        if route.refusal is Reason.SUCCESS:  # else it may be refused for one user only, or for now
            self._remember(exchange, key, route)
        return route

    def find_common_route(
        self,
        exchange: str,
        keys: list[bytes],
        topic: bytes,
        headers: dict[bytes, object] | None,
        by_text: bool = False,
    ) -> Route | None:
        """Where a message with several keys goes. None where each key is a place of its own: behind the default exchange, in the
        topic space, and where a binding on the way may not bring them all; and where all of them took too long."""
        if not exchange:
            return None
        walk = self._exchanges.walk(self.get(exchange), keys[0], headers, by_text, keys[1:])
        if walk.reaches_topics or walk.is_narrow or walk.is_cut:
            return None
        if walk.reaches_default:
            for key in keys:
                queue = self._find_queue(key)
                if queue is not None:
                    walk.outlets[queue] = None
        route = Route(topic, self._router.generation)
        self._router.add_outlets(route, list(walk.outlets))
        route.is_by_headers = True
        return route

    def topic_of(self, exchange: str, key: bytes) -> bytes:
        """What a publish to an exchange is called in the topic space: rights are asked for this topic, and it goes there. Behind
        the default exchange a key is the topic of a queue, the name of a queue that is there, or else a topic."""
        if exchange or is_queue_topic(key) or self._find_queue(key) is not None:
            return topic_of_publish(exchange.encode(), key)
        return topic_of_name(key)

    def _find_default(self, key: bytes, topic: bytes, user: str) -> Route:
        """Into the queue that the key names; else to the topic it stands for."""
        queue = self._find_queue(key)
        if queue is not None:
            route = Route(topic, self._router.generation)
            self._router.add_outlets(route, [queue])
            return route
        if is_queue_topic(key):
            return self._queues.make_route(topic_of_publish(b"", key), self._router.generation, user)
        return self._router.find_route(topic_of_name(key))

    def _find_topics(self, topics: Exchange, key: bytes, topic: bytes) -> Route:
        name = topic_of_key(key)
        if key_of_topic(name) == key:
            return self._router.find_route(name)  # which asks for our bindings itself
        return self._walk(topics, key, topic, None, False, True)

    def find_headers_route(
        self, start: Exchange, key: bytes, topic: bytes, headers: dict[bytes, object]
    ) -> Route:
        """Of a dead letter, whose headers are known as texts alone."""
        return self._walk(start, key, topic, headers, True, False)

    def _walk(
        self,
        start: Exchange,
        key: bytes,
        topic: bytes,
        headers: dict[bytes, object] | None,
        by_text: bool,
        is_kept: bool,
    ) -> Route:
        walk = self._exchanges.walk(start, key, headers, by_text)
        outlets: list[Outlet] = list(walk.outlets)
        if walk.reaches_default:
            queue = self._find_queue(key)
            if queue is not None and queue not in walk.outlets:
                outlets.append(queue)
        if walk.reaches_topics:
            route = self._router.derive_route(topic_of_key(key), outlets, is_kept)
        else:
            route = Route(topic, self._router.generation)
            self._router.add_outlets(route, outlets)
        route.is_by_headers = not is_kept
        return route

    def _find_queue(self, key: bytes) -> Queue | None:
        """By its bare name; behind `$queue/` and `$dlq/` stand topics."""
        if is_queue_topic(key):
            return None
        try:
            return self._queues.catalog.find(key.decode())
        except UnicodeDecodeError:
            return None

    def _remember(self, exchange: str, key: bytes, route: Route) -> None:
        self._forget_old()
        if self._weight >= self._cache_max:
            self._router.forget_all()  # channels hold routes too: only a new generation reaches them
            self._forget_old()
            return
        known = self._routes.get(exchange)
        if known is None:
            known = self._routes[exchange] = {}
        if key not in known:
            self._weight += weigh(route, self._cache_max)
        known[key] = route

    def _forget_old(self) -> None:
        if self._generation != self._router.generation:
            self._generation = self._router.generation
            self._routes.clear()
            self._by_headers.clear()
            self._weight = 0

    # ---------------------------------------------------------------- recovery

    def restore_exchange(self, stored: StoredExchange) -> None:
        if stored.kind in KINDS and stored.name not in self._exchanges.by_name:
            exchange = Exchange(
                stored.name, stored.kind, True, stored.auto_delete, stored.internal, stored.arguments
            )
            exchange.owner = stored.owner
            self._exchanges.by_name[stored.name] = exchange

    def restore_binding(self, stored: StoredBinding) -> None:
        """Queues and exchanges are there. One of whose ends is gone is taken away for good: another of the same name
        must not get it."""
        source = self._exchanges.find(stored.source)
        queue = None if stored.to_exchange else self._queues.catalog.find(stored.target)
        following = self._exchanges.find(stored.target) if stored.to_exchange else None
        if source is None or (queue is None and following is None):
            body = exchange_records.encode_binding(self._account, stored.source, stored.identity)
            self._store.exchange_fact(exchange_records.BINDING_REMOVED, body)
            return
        binding = Binding(
            source, stored.target, queue, following, stored.key, stored.arguments, stored.identity, True
        )
        self._exchanges.add(binding)
        self._owners.restore(binding, stored.owners)
        self._router.forget_all()
