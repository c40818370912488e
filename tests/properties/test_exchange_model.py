"""Exchanges under random use, with restarts in between, against a model of sets and a walk by hand."""

from __future__ import annotations

from fakes import START_NS, World
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from logged_store import LoggedStore

from millstream.model.errors import Refused
from millstream.model.routing_key import topic_of_publish
from millstream.queues.definition import EPHEMERAL, WORK, Definition
from millstream.queues.queue import Queue

EXCHANGES = st.sampled_from(["a", "b", "c"])
SOURCES = st.sampled_from(["a", "b", "c", "amq.fanout", "amq.topic"])
QUEUES = st.sampled_from(["p", "q", "r"])
KEYS = st.sampled_from([b"", b"k", b"*", b"k.#", b"#.k"])
PUBLISHED = (b"", b"k", b"k.k", b"x.k")


def matches(kind: str, pattern: bytes, key: bytes) -> bool:
    if kind == "fanout":
        return True
    if kind == "direct" or pattern in (b"", b"k"):
        return pattern == key
    words = key.split(b".") if key else []
    if pattern == b"*":
        return len(words) == 1
    return bool(words) and words[0 if pattern == b"k.#" else -1] == b"k"


class ExchangeMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = LoggedStore()
        self.world = World(store=self.store)
        self.kinds = {"amq.fanout": "fanout", "amq.topic": "topic"}
        self.durable = {"amq.fanout", "amq.topic"}
        self.auto: set[str] = set()
        self.queues: dict[str, bool] = {}  # name: is durable
        self.bindings: set[tuple[str, str, bytes]] = set()  # source, target (with its kind in front), key
        self.declare("a", "fanout", True, True)
        self.declare("b", "topic", True, False)
        self.make_queue("p", True)
        self.make_queue("q", False)
        self.bind_queue("a", "p", b"")
        self.bind_exchange("a", "b", b"#.k")

    @rule(
        name=EXCHANGES,
        kind=st.sampled_from(["direct", "fanout", "topic"]),
        durable=st.booleans(),
        auto=st.booleans(),
    )
    def declare(self, name: str, kind: str, durable: bool, auto: bool) -> None:
        try:
            self.world.account.exchanges.declare(name, kind, durable, auto, False, {})
        except Refused:
            assert (self.kinds[name], name in self.durable, name in self.auto) != (kind, durable, auto)
            return
        if name not in self.kinds:
            self.kinds[name] = kind
            self.durable |= {name} if durable else set()
            self.auto |= {name} if auto else set()
        assert (self.kinds[name], name in self.durable, name in self.auto) == (kind, durable, auto)

    @rule(name=EXCHANGES)
    def delete(self, name: str) -> None:
        assert self.world.account.exchanges.delete(name, False) == (name in self.kinds)
        if name in self.kinds:
            self.forget(name)

    @rule(name=QUEUES, durable=st.booleans())
    def make_queue(self, name: str, durable: bool) -> None:
        if name not in self.queues:
            self.world.account.queues.catalog.declare(name, Definition(WORK if durable else EPHEMERAL))
            self.queues[name] = durable

    @precondition(lambda self: self.queues)
    @rule(data=st.data())
    def drop_queue(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.queues)))
        catalog = self.world.account.queues.catalog
        catalog.delete(catalog.get(name))
        del self.queues[name]
        self.unbind_all({bound for bound in self.bindings if bound[1] == "q" + name})

    @rule(source=SOURCES, name=QUEUES, key=KEYS)
    def bind_queue(self, source: str, name: str, key: bytes) -> None:
        if source in self.kinds and name in self.queues:
            queue = self.world.account.queues.catalog.get(name)
            self.world.account.exchanges.bind_queue(queue, source, key, {})
            self.bindings.add((source, "q" + name, key))

    @rule(source=SOURCES, following=EXCHANGES, key=KEYS)
    def bind_exchange(self, source: str, following: str, key: bytes) -> None:
        if source in self.kinds and following in self.kinds:
            self.world.account.exchanges.bind_exchange(following, source, key, {})
            self.bindings.add((source, "e" + following, key))

    @precondition(lambda self: self.bindings)
    @rule(data=st.data())
    def unbind(self, data: st.DataObject) -> None:
        source, bound, key = data.draw(st.sampled_from(sorted(self.bindings)))
        access = self.world.account.exchanges
        if bound[0] == "q":
            queue = self.world.account.queues.catalog.get(bound[1:])
            assert access.unbind_queue(queue, source, key, {})
            assert source in self.auto or not access.unbind_queue(queue, source, key, {})
        else:
            assert access.unbind_exchange(bound[1:], source, key, {})
        self.unbind_all({(source, bound, key)})

    @rule()
    def restart(self) -> None:
        """Only what is durable comes back; one that would have gone with its last binding does not hear of those."""
        self.world = World(store=self.store)
        self.world.broker.restore(START_NS)
        self.queues = {name: durable for name, durable in self.queues.items() if durable}
        self.kinds = {name: kind for name, kind in self.kinds.items() if name in self.durable}
        self.auto &= self.durable
        self.bindings = {
            bound
            for bound in self.bindings
            if bound[0] in self.kinds
            and (bound[1][1:] in (self.kinds if bound[1][0] == "e" else self.queues))
        }

    def forget(self, name: str) -> None:
        del self.kinds[name]
        self.durable.discard(name)
        self.auto.discard(name)
        self.bindings = {bound for bound in self.bindings if bound[0] != name}
        self.unbind_all({bound for bound in self.bindings if bound[1] == "e" + name})

    def unbind_all(self, gone: set[tuple[str, str, bytes]]) -> None:
        self.bindings -= gone
        for source in {bound[0] for bound in gone}:
            if source in self.auto and not any(bound[0] == source for bound in self.bindings):
                self.forget(source)

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        access = self.world.account.exchanges
        assert access.binding_count() == len(self.bindings)
        names = {exchange.name for exchange in access.all()}
        assert {name for name in names if name and not name.startswith("amq.")} == {
            name for name in self.kinds if not name.startswith("amq.")
        }
        for start in self.kinds:
            for key in PUBLISHED:
                topic = topic_of_publish(start.encode(), key)
                targets = access.find_route(start, key, topic, None, "").targets
                found = [target.outlet.name for target in targets if isinstance(target.outlet, Queue)]
                assert sorted(found) == sorted(self.reached(start, key))

    def reached(self, start: str, key: bytes) -> set[str]:
        seen, waiting, found = {start}, [start], set()
        while waiting:
            at = waiting.pop()
            for source, target, pattern in self.bindings:
                if source != at or not matches(self.kinds[at], pattern, key):
                    continue
                if target[0] == "q":
                    found.add(target[1:])
                elif target[1:] not in seen:
                    seen.add(target[1:])
                    waiting.append(target[1:])
        return found


TestExchangeMachine = ExchangeMachine.TestCase
TestExchangeMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
