"""The exchanges of one account, and the walk of a message through them.

Invariants
- A walk visits every exchange at most once, so bindings may form a circle; a queue is found once, however many ways lead to it.
- An exchange where nothing matched hands on to its alternate, if there is one; each for itself along the walk.
- `amq.topic` and the topic space are one: a walk that comes by it also reaches subscribers, and the router asks for its
  bindings when it resolves a topic.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.model.outlet import Outlet
from millstream.model.routing_key import key_of_topic
from millstream.routing.binding import Binding
from millstream.routing.binding_costs import BindingCosts
from millstream.routing.exchange import DIRECT, FANOUT, HEADERS, TOPIC, Exchange
from millstream.routing.router import TopicBindings

DEFAULT: Final = ""
TOPIC_SPACE: Final = "amq.topic"
CONDITIONS_PER_STEP: Final[i64] = 13
NODES_PER_STEP: Final[i64] = 25
BINDINGS_PER_STEP: Final[i64] = 20
EXCHANGES_PER_STEP: Final[i64] = 4  # of those only looked at for what they lead to
COPIES_STEPS_MAX: Final[i64] = (
    20_000  # that finding where all the keys of one message lead may take, in one turn of the loop
)
KEYS_PER_STEP: Final[i64] = 2  # of one message, whose rights are asked
PREDECLARED: Final = (
    (DEFAULT, DIRECT),
    ("amq.direct", DIRECT),
    ("amq.fanout", FANOUT),
    (TOPIC_SPACE, TOPIC),
    ("amq.headers", HEADERS),
    ("amq.match", HEADERS),
)


@final
class Walk:
    """What a message reaches from an exchange."""

    def __init__(self) -> None:
        self.outlets: dict[Outlet, None] = {}
        self.reaches_topics = False  # it came by amq.topic: the topic space gets it too
        self.is_narrow = False  # of several keys it came by a binding that may not bring them all
        self.is_cut = False  # of several keys not all were looked at, because it took too long
        self.reaches_default = False  # an alternate led to the default exchange


@final
class Exchanges(TopicBindings):
    def __init__(self) -> None:
        self.by_name: dict[str, Exchange] = {}
        self.binding_count: i64 = 0
        self.costs = BindingCosts()
        self.steps: i64 = 0  # what walks have cost so far, in about microseconds
        self._suspended: i64 = 0  # of the bindings
        self._by_queue: dict[Outlet, dict[Binding, None]] = {}
        self.leaving_queues: dict[Outlet, None] = {}  # they are gone, and some of their bindings are left
        self.leaving_exchanges: dict[Exchange, None] = {}
        for name, kind in PREDECLARED:
            self.by_name[name] = Exchange(name, kind, True, False, False, {})
        self.topics = self.by_name[TOPIC_SPACE]

    def find(self, name: str) -> Exchange | None:
        return self.by_name.get(name)

    def add(self, binding: Binding) -> None:
        binding.source.add(binding)
        if binding.exchange is not None:
            binding.exchange.incoming[binding] = None
        else:
            assert binding.queue is not None
            self._by_queue.setdefault(binding.queue, {})[binding] = None
        self.binding_count += 1
        self.costs.add(binding)

    def remove(self, binding: Binding) -> None:
        binding.source.remove(binding)
        self.binding_count -= 1
        self.costs.remove(binding)
        self.suspend(binding, False)
        if binding.exchange is not None:
            del binding.exchange.incoming[binding]
            return
        assert binding.queue is not None
        bound = self._by_queue[binding.queue]
        del bound[binding]
        if not bound:
            del self._by_queue[binding.queue]

    def suspend(self, binding: Binding, is_suspended: bool) -> bool:
        """Whether that is new."""
        if binding.is_suspended == is_suspended:
            return False
        binding.is_suspended = is_suspended
        self._suspended += 1 if is_suspended else -1
        return True

    def bindings_of(self, queue: Outlet) -> list[Binding]:
        return list(self._by_queue.get(queue, {}))

    def is_left(self, binding: Binding) -> bool:
        """Whether one of its ends is gone already."""
        if binding.exchange is not None and binding.exchange in self.leaving_exchanges:
            return True
        if binding.queue is not None and binding.queue in self.leaving_queues:
            return True
        return binding.source in self.leaving_exchanges

    def needs_headers(self, start: Exchange) -> bool:
        """Whether headers can decide anywhere on a walk from there."""
        seen: dict[str, None] = {start.name: None}
        waiting = [start]
        found = False
        while waiting and not found:
            exchange = waiting.pop()
            found = exchange.kind == HEADERS
            for name in self._followers(exchange):
                following = self.by_name.get(name)
                if following is not None and name not in seen:
                    seen[name] = None
                    waiting.append(following)
        self.steps += len(seen) // EXCHANGES_PER_STEP
        return found

    def _followers(self, exchange: Exchange) -> list[str]:
        names = [binding.target for binding in exchange.onward]
        if exchange.alternate is not None:
            names.append(exchange.alternate)
        return names

    def steps_to_route(self, with_headers: bool, keys: i64) -> i64:
        """At most, about: of a message with so many keys, where its headers matter or not."""
        steps: i64 = 1
        if with_headers:
            steps += self.costs.conditions // CONDITIONS_PER_STEP
        return steps if keys < 2 else keys // KEYS_PER_STEP + min(keys * steps, COPIES_STEPS_MAX)

    def walk(
        self,
        start: Exchange,
        key: bytes,
        headers: dict[bytes, object] | None,
        by_text: bool = False,
        further: list[bytes] | None = None,
    ) -> Walk:
        """All exchanges look at all keys: `further` are those a publisher wants copies for. With them it ends where it `reaches_topics` or
        `is_narrow`, because there each key must go its own way, and where it `is_cut`."""
        walk = Walk()
        steps_max: i64 = self.steps + COPIES_STEPS_MAX
        seen: dict[str, None] = {start.name: None}
        waiting = [start]
        while waiting and not walk.is_narrow and not walk.is_cut:
            exchange = waiting.pop()
            if exchange.kind == HEADERS:
                self.steps += self.costs.conditions // CONDITIONS_PER_STEP
            if exchange is self.topics:
                walk.reaches_topics = True
                if further:
                    break
            elif not exchange.name:
                walk.reaches_default = True
            matched = exchange.match(key, headers, by_text)
            visited: i64 = exchange.take_visited()
            if further is not None and exchange.reads_key():
                for other in further:
                    matched += exchange.match(other, headers, by_text)
                    visited += exchange.take_visited()
                    if self.steps + len(matched) // BINDINGS_PER_STEP + visited // NODES_PER_STEP > steps_max:
                        walk.is_cut = True
                        break
            if self._suspended:
                matched = [binding for binding in matched if not binding.is_suspended]
            if self.leaving_queues or self.leaving_exchanges:
                matched = [binding for binding in matched if not self.is_left(binding)]
            self.steps += 1 + len(matched) // BINDINGS_PER_STEP + visited // NODES_PER_STEP
            for binding in matched:
                following = binding.exchange
                if following is None:
                    assert binding.queue is not None
                    walk.outlets[binding.queue] = None
                else:
                    if binding.is_narrow and further:
                        walk.is_narrow = True
                    if following.name not in seen:
                        seen[following.name] = None
                        waiting.append(following)
            if not matched:
                name = exchange.find_alternate()
                alternate = None if name is None or name in seen else self.by_name.get(name)
                if alternate is not None:
                    seen[alternate.name] = None
                    waiting.append(alternate)
        return walk

    def find_outlets(self, topic: bytes) -> list[Outlet]:
        """The queues that bindings of amq.topic lead a topic to. Topics of the broker's own are not published there."""
        if not self.topics.bindings or topic.startswith(b"$"):
            return []
        return list(self.walk(self.topics, key_of_topic(topic), None).outlets)
