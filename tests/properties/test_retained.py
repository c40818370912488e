"""Retained messages against a dictionary and brute-force matching."""

from __future__ import annotations

from fakes import make_message
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from millstream.model.message import Message
from millstream.model.topic import matches
from millstream.routing.retained import Retained

LEVELS = st.sampled_from([b"a", b"b", b"", b"$s"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=3).map(b"/".join).filter(bool)
FILTERS = st.tuples(st.lists(LEVELS | st.just(b"+"), max_size=3), st.booleans()).map(
    lambda parts: b"/".join([*parts[0], *([b"#"] if parts[1] else [])]) or b"#"
)


class RetainedMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ns = 1_000
        self.kept: dict[bytes, Message] = {}
        self.messages_max = self.bytes_max = 0
        self.retained = Retained(0, 0)

    @initialize(messages_max=st.integers(1, 8), bytes_max=st.integers(200, 2000))
    def start(self, messages_max: int, bytes_max: int) -> None:
        self.messages_max, self.bytes_max = messages_max, bytes_max
        self.retained = Retained(messages_max, bytes_max)

    @rule(topic=TOPICS, size=st.integers(0, 300), lifetime=st.sampled_from([0, 0, 5, 50]))
    def store(self, topic: bytes, size: int, lifetime: int) -> None:
        message = make_message(topic, b"p" * size, 1, True, self.now_ns + lifetime if lifetime else 0)
        others = {name: one for name, one in self.kept.items() if name != topic}
        total = sum(int(one.size_bytes()) for one in others.values()) + int(message.size_bytes())
        fits = len(others) < self.messages_max and total <= self.bytes_max
        assert self.retained.store(message) == fits
        if fits:
            self.kept[topic] = message

    @rule(topic=TOPICS)
    def remove(self, topic: bytes) -> None:
        assert self.retained.remove(topic) == (self.kept.pop(topic, None) is not None)

    @rule(step=st.integers(1, 30))
    def move_the_clock(self, step: int) -> None:
        self.now_ns += step

    @rule()
    def sweep(self) -> None:
        gone = {topic for topic, one in self.kept.items() if one.is_expired(self.now_ns)}
        assert sorted(self.retained.take_expired(self.now_ns)) == sorted(gone)
        for topic in gone:
            del self.kept[topic]

    @rule(filter=FILTERS)
    def subscribe(self, filter: bytes) -> None:
        wanted = {
            topic
            for topic, one in self.kept.items()
            if matches(filter, topic) and not one.is_expired(self.now_ns)
        }
        found = self.retained.match(filter, self.now_ns)
        assert sorted(one.topic for one in found) == sorted(wanted)
        assert all(self.kept[one.topic] is one for one in found)

    @rule(topic=TOPICS)
    def look_up(self, topic: bytes) -> None:
        assert self.retained.find(topic) is self.kept.get(topic)

    @invariant()
    def the_sums_are_right_and_within_bounds(self) -> None:
        assert self.retained.count == len(self.kept) <= self.messages_max
        assert self.retained.size_bytes == sum(int(one.size_bytes()) for one in self.kept.values())
        assert self.retained.size_bytes <= self.bytes_max

    def teardown(self) -> None:
        for topic in list(self.kept):
            self.remove(topic)
        assert self.retained.count == 0
        assert self.retained.size_bytes == 0
        assert self.retained._root.children is None


TestRetained = RetainedMachine.TestCase
TestRetained.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
