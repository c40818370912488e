"""The nodes of the tree of retained messages, and the places in it where walks rest.

Invariants
- The children of a node are a chain in the order they came, new ones at its end.
- A place rests on a node that is in the tree: when that is removed, the place moves to where the walk goes on as before.
- Places that come to rest at one spot become one, so a removal moves at most two, however many walks rest.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from millstream.model.message import Message


@final
class RetainedNode:
    def __init__(self, level: bytes, parent: RetainedNode | None) -> None:
        self.level = level
        self.parent = parent
        self.children: dict[bytes, RetainedNode] | None = None
        self.first: RetainedNode | None = None  # of its children
        self.last: RetainedNode | None = None
        self.previous: RetainedNode | None = None  # of its parent's children
        self.following: RetainedNode | None = None
        self.message: Message | None = None
        self.sequence: i64 = 0  # of the message
        self.user = ""  # who published it

    def add_child(self, level: bytes) -> RetainedNode:
        child = RetainedNode(level, self)
        if self.children is None:
            self.children = {level: child}
        else:
            self.children[level] = child
        last = self.last
        if last is None:
            self.first = child
        else:
            last.following = child
            child.previous = last
        self.last = child
        return child

    def remove_child(self, child: RetainedNode) -> None:
        children = self.children
        assert children is not None
        del children[child.level]
        if not children:
            self.children = None
        before = child.previous
        after = child.following
        if before is None:
            self.first = after
        else:
            before.following = after
        if after is None:
            self.last = before
        else:
            after.previous = before
        child.parent = None
        child.previous = None
        child.following = None


@final
class Place:
    """A node that a walk has looked at. `is_left`: what is below it as well."""

    def __init__(self, node: RetainedNode, depth: i64, is_left: bool) -> None:
        self.node = node
        self.depth: i64 = depth
        self.is_left = is_left
        self.walks: i64 = 1  # that rest here
        self.merged: Place | None = None  # the one that stands for it now

    def resolve(self) -> Place:
        place = self
        while place.merged is not None:
            place = place.merged
        return place


@final
class RestingPlaces:
    def __init__(self) -> None:
        self._open: dict[RetainedNode, Place] = {}
        self._left: dict[RetainedNode, Place] = {}

    def count(self) -> int:
        return len(self._open) + len(self._left)

    def rest(self, node: RetainedNode, depth: i64, is_left: bool) -> Place:
        places = self._left if is_left else self._open
        place = places.get(node)
        if place is None:
            place = places[node] = Place(node, depth, is_left)
        else:
            place.walks += 1
        return place

    def leave(self, start: Place) -> Place:
        """A walk goes on, or ends: gives where it is."""
        place = start.resolve()
        place.walks -= 1
        if place.walks == 0:
            del (self._left if place.is_left else self._open)[place.node]
        return place

    def on_removing(self, node: RetainedNode) -> None:
        """Before a node without children leaves the tree."""
        if not self._open and not self._left:
            return
        open_place = self._open.pop(node, None)
        if open_place is not None:
            self._move(open_place)
        left_place = self._left.pop(node, None)
        if left_place is not None:
            self._move(left_place)

    def _move(self, place: Place) -> None:
        """To the one before it, of which everything has been seen; or above, where the next one is the first again."""
        node = place.node
        if node.previous is not None:
            place.node = node.previous
            place.is_left = True
        else:
            assert node.parent is not None
            place.node = node.parent
            place.depth -= 1
            place.is_left = False
        places = self._left if place.is_left else self._open
        other = places.get(place.node)
        if other is None:
            places[place.node] = place
        elif other.walks >= place.walks:
            other.walks += place.walks
            place.merged = other
        else:
            place.walks += other.walks
            other.merged = place
            places[place.node] = place
