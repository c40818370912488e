"""Retained messages: the last message of each topic, found by filter when somebody subscribes.

Invariants
- A cursor gives every message that was there when it was made and is still the last of its topic, once.
- A cursor holds one place in the tree and no message, however many there are.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.model.message import Message
from millstream.routing.retained_node import Place, RestingPlaces, RetainedNode

PLUS: Final = b"+"
HASH: Final = b"#"
NOWHERE: Final[i64] = 1 << 30  # deeper than any topic


@final
class Retained:
    """Bounded in count and bytes."""

    def __init__(self, messages_max: i64, bytes_max: i64) -> None:
        self.root = RetainedNode(b"", None)
        self.places = RestingPlaces()
        self._messages_max: i64 = messages_max
        self._bytes_max: i64 = bytes_max
        self.count: i64 = 0
        self.nodes: i64 = 0  # levels of their topics, each of which may lead to many
        self.size_bytes: i64 = 0
        self.sequence: i64 = 0  # of the message stored last
        self.bytes_by: dict[str, int] = {}  # of the users who published them since the start

    def store(self, message: Message, user: str = "") -> bool:
        """Keep it as the topic's last message, published by that user; False when a bound forbids it."""
        levels = message.topic.split(b"/")
        node = self._find_node(levels)
        old = None if node is None else node.message
        size = self.size_bytes + message.size_bytes()
        if old is not None:
            size -= old.size_bytes()
        elif self.count >= self._messages_max:
            return False
        if size > self._bytes_max:
            return False
        if node is None:
            node = self._make_node(levels)
        if old is None:
            self.count += 1
        else:
            self._count_for(node.user, -old.size_bytes())
        self._count_for(user, message.size_bytes())
        node.user = user
        self.size_bytes = size
        self.sequence += 1
        node.message = message
        node.sequence = self.sequence
        return True

    def remove(self, topic: bytes) -> bool:
        node = self._find_node(topic.split(b"/"))
        if node is None or node.message is None:
            return False
        message = node.message
        node.message = None
        self.count -= 1
        self.size_bytes -= message.size_bytes()
        self._count_for(node.user, -message.size_bytes())
        self._prune(node)
        return True

    def _count_for(self, user: str, change: i64) -> None:
        if user:
            left = self.bytes_by.get(user, 0) + int(change)
            if left > 0:
                self.bytes_by[user] = left
            else:
                self.bytes_by.pop(user, None)

    def _prune(self, start: RetainedNode) -> None:
        """Take away a node that holds nothing and leads to nothing, and those above it that led only there."""
        node = start
        while node.message is None and node.children is None:
            parent = node.parent
            if parent is None:
                return
            self.places.on_removing(node)
            parent.remove_child(node)
            self.nodes -= 1
            node = parent

    def find(self, topic: bytes) -> Message | None:
        node = self._find_node(topic.split(b"/"))
        return None if node is None else node.message

    def match(self, filter: bytes, now_ns: i64) -> list[Message]:
        """All live messages under a filter at once: for a caller that knows they are few."""
        found: list[Message] = []
        cursor = RetainedCursor(self, filter, self.sequence, False)
        while True:
            message = cursor.find_next(NOWHERE)
            if message is None:
                return found
            if not message.is_expired(now_ns):
                found.append(message)

    def _find_node(self, levels: list[bytes]) -> RetainedNode | None:
        node = self.root
        for level in levels:
            children = node.children
            following = None if children is None else children.get(level)
            if following is None:
                return None
            node = following
        return node

    def _make_node(self, levels: list[bytes]) -> RetainedNode:
        node = self.root
        for level in levels:
            children = node.children
            following = None if children is None else children.get(level)
            if following is None:
                following = node.add_child(level)
                self.nodes += 1
            node = following
        return node


@final
class RetainedCursor:
    """A walk over the messages under a filter that goes on whenever it is asked to, whatever was stored or removed meanwhile.
    Between two calls of `find_next` with changes in between it must have paused."""

    def __init__(self, retained: Retained, filter: bytes, sequence: i64, with_system: bool) -> None:
        """Messages stored later than `sequence` are not given. `with_system`: topics that begin with `$` are."""
        self._places = retained.places
        self._place: Place | None = None  # while it pauses
        self._node: RetainedNode | None = retained.root  # looked at last; None: it has seen all
        self._depth: i64 = 0
        self._is_left = False
        self._sequence: i64 = sequence
        self._with_system = with_system
        self._levels = filter.split(b"/")
        self._multi_at: i64 = NOWHERE  # the depth from which on everything matches
        if self._levels[len(self._levels) - 1] == HASH:
            self._multi_at = len(self._levels) - 1
        self.steps: i64 = 0  # nodes it has looked at so far

    def is_done(self) -> bool:
        return self._node is None

    def find_next(self, steps_max: i64) -> Message | None:
        """The next message. None: there is no other, or none within so many steps; `is_done` tells which."""
        if self._place is not None:
            self._resume()
        until: i64 = self.steps + steps_max
        while self.steps < until and self._node is not None:
            self.steps += 1
            node = self._advance(self._node)
            if node is None:
                break
            message = node.message
            if (
                message is not None
                and node.sequence <= self._sequence
                and (self._depth >= self._multi_at or self._depth == len(self._levels))
            ):
                return message
        return None

    def pause(self) -> None:
        """Others may change the tree from here on."""
        if self._place is None and self._node is not None:
            self._place = self._places.rest(self._node, self._depth, self._is_left)

    def close(self) -> None:
        if self._place is not None:
            self._places.leave(self._place)
            self._place = None
        self._node = None

    def _resume(self) -> None:
        assert self._place is not None
        place = self._places.leave(self._place)
        self._place = None
        self._node = place.node
        self._depth = place.depth
        self._is_left = place.is_left

    def _advance(self, start: RetainedNode) -> RetainedNode | None:
        """To the next node that the filter leads to: below this one, or beside or above it."""
        node: RetainedNode | None = start
        if not self._is_left:
            below = self._find_below(start)
            if below is not None:
                self._node = below
                self._depth += 1
                return below
        self._is_left = False
        while node is not None and self._depth > 0:
            if self._has_choice(self._depth - 1):
                beside = node.following if self._depth > 1 else self._skip_system(node.following)
                if beside is not None:
                    self._node = beside
                    return beside
            node = node.parent
            self._depth -= 1
        self._node = None
        return None

    def _find_below(self, node: RetainedNode) -> RetainedNode | None:
        depth: i64 = self._depth
        if node.children is None or (depth >= len(self._levels) and depth < self._multi_at):
            return None
        if not self._has_choice(depth):
            return node.children.get(self._levels[depth])
        return node.first if depth > 0 else self._skip_system(node.first)

    def _has_choice(self, depth: i64) -> bool:
        """Whether any node may follow at that depth."""
        return depth >= self._multi_at or self._levels[depth] == PLUS

    def _skip_system(self, start: RetainedNode | None) -> RetainedNode | None:
        """A wildcard at the front does not find topics that begin with `$` [MQTT-4.7.2-1]."""
        node = start
        while node is not None and not self._with_system and node.level.startswith(b"$"):
            self.steps += 1
            node = node.following
        return node
