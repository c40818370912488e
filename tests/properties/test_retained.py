"""Retained messages against a dictionary and brute-force matching."""

from __future__ import annotations

from fakes import make_message
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from millstream.model.message import Message
from millstream.model.topic import matches
from millstream.routing.retained import Retained, RetainedCursor

LEVELS = st.sampled_from([b"a", b"b", b"", b"$s"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=3).map(b"/".join).filter(bool)
FILTERS = st.tuples(st.lists(LEVELS | st.just(b"+"), max_size=3), st.booleans()).map(
    lambda parts: b"/".join([*parts[0], *([b"#"] if parts[1] else [])]) or b"#"
)


class Walk:
    """A cursor, what was there when it began, and what it has found so far."""

    def __init__(self, cursor: RetainedCursor, there: dict[bytes, Message]) -> None:
        self.cursor = cursor
        self.there = there
        self.found: list[bytes] = []

    def go_on(self, steps: int, kept: dict[bytes, Message]) -> None:
        message = self.cursor.find_next(steps)
        self.cursor.pause()
        if message is not None:
            assert self.there[message.topic] is message  # neither older nor newer
            assert kept[message.topic] is message
            assert message.topic not in self.found
            self.found.append(message.topic)


class RetainedMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ns = 1_000
        self.kept: dict[bytes, Message] = {}
        self.messages_max = self.bytes_max = 0
        self.retained = Retained(0, 0)
        self.walks: list[Walk] = []

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

    @rule(filter=FILTERS)
    def start_a_walk(self, filter: bytes) -> None:
        cursor = RetainedCursor(self.retained, filter, self.retained.sequence, False)
        cursor.pause()
        there = {topic: one for topic, one in self.kept.items() if matches(filter, topic)}
        self.walks.append(Walk(cursor, there))

    @rule(which=st.integers(0, 9), steps=st.integers(1, 4))
    def go_on_with_a_walk(self, which: int, steps: int) -> None:
        if self.walks:
            self.walks[which % len(self.walks)].go_on(steps, self.kept)

    @rule(which=st.integers(0, 9))
    def give_a_walk_up(self, which: int) -> None:
        if self.walks:
            self.walks.pop(which % len(self.walks)).cursor.close()

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
        for walk in self.walks:
            while not walk.cursor.is_done():
                walk.go_on(3, self.kept)
            lasting = {topic for topic, one in walk.there.items() if self.kept.get(topic) is one}
            assert lasting <= set(walk.found)
        assert self.retained.places.count() == 0
        for topic in list(self.kept):
            self.remove(topic)
        assert self.retained.count == 0
        assert self.retained.size_bytes == 0
        assert self.retained.root.children is None


TestRetained = RetainedMachine.TestCase
TestRetained.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
