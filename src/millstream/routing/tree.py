"""The topic tree: filters by level, so that one walk finds every subscription that matches a topic.

A filter that shares its next level with no other is not spread over nodes: its rest stays with the last node as a
tail. So most subscriptions cost one node, and a walk over millions of them touches few places in memory.

Invariants
- A node without subscriptions and without children does not exist: unsubscribing prunes.
- A node with a tail holds exactly one ordinary subscription and nothing else.
- A walk visits at most two branches per level (the level itself and `+`), never more nodes than exist.
- An outlet has at most one subscription per filter and group.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.model.outlet import Outlet
from millstream.model.topic import has_wildcard
from millstream.routing.subscription import Subscription

PLUS: Final = b"+"
HASH: Final = b"#"


@final
class Node:
    def __init__(self) -> None:
        self.children: dict[bytes, Node] | None = None
        self.plus: Node | None = None
        self.hash: Node | None = None
        self.only: Subscription | None = None  # most nodes have one subscription: no dict for it
        self.tail: bytes | None = None  # the levels of `only` below this node, if not spread over nodes
        self.more: dict[Outlet, Subscription] | None = None
        self.shared: dict[bytes, dict[Outlet, Subscription]] | None = None

    def is_empty(self) -> bool:
        return (
            self.only is None
            and self.more is None
            and self.shared is None
            and self.children is None
            and self.plus is None
            and self.hash is None
        )


@final
class Found:
    """What one walk found: ordinary subscriptions, and share groups with their members."""

    def __init__(self) -> None:
        self.subscriptions: list[Subscription] = []
        self.groups: list[dict[Outlet, Subscription]] = []


@final
class TopicTree:
    def __init__(self) -> None:
        self._root = Node()
        self.count: i64 = 0

    def add(self, subscription: Subscription) -> Subscription | None:
        """Store it; the one it replaces is returned."""
        levels = subscription.filter.split(b"/")
        node = self._root
        depth: i64 = 0
        while depth < len(levels):
            following = _step(node, levels[depth])
            if following is None:
                following = _make(node, levels[depth])
                if not subscription.group:
                    following.only = subscription
                    if depth + 1 < len(levels):
                        following.tail = b"/".join(levels[depth + 1 :])
                    self.count += 1
                    return None
            node = following
            depth += 1
            if node.tail is not None:
                _spread(node)
        old = _add_shared(node, subscription) if subscription.group else _add_plain(node, subscription)
        if old is None:
            self.count += 1
        return old

    def remove(self, filter: bytes, group: bytes, outlet: Outlet) -> Subscription | None:
        levels = filter.split(b"/")
        path: list[Node] = [self._root]
        node = self._root
        removed: Subscription | None = None
        depth: i64 = 0
        while depth < len(levels):
            following = _step(node, levels[depth])
            if following is None:
                return None
            node = following
            path.append(node)
            depth += 1
            if node.tail is not None:
                if group or depth == len(levels) or node.tail != b"/".join(levels[depth:]):
                    return None  # an empty tail is one empty level, not none
                break
        removed = _remove_shared(node, group, outlet) if group else _remove_plain(node, outlet)
        if removed is None:
            return None
        node.tail = None
        self.count -= 1
        _prune(path, levels)
        return removed

    def match(self, topic: bytes) -> Found:
        found = Found()
        self._walk(self._root, topic, topic.split(b"/"), 0, not topic.startswith(b"$"), found)
        return found

    def _walk(
        self, node: Node, topic: bytes, levels: list[bytes], depth: i64, wild: bool, found: Found
    ) -> None:
        # Recursion depth is bounded by topic_levels_max. `wild` is False at the root of a `$` topic [MQTT-4.7.2-1].
        tail = node.tail
        if tail is not None:
            if _tail_matches(tail, topic, levels, depth) and node.only is not None:
                found.subscriptions.append(node.only)
            return
        if wild:
            multi = node.hash
            if multi is not None:
                _collect(multi, found)
        if depth == len(levels):
            _collect(node, found)
            return
        children = node.children
        if children is not None:
            child = children.get(levels[depth])
            if child is not None:
                self._walk(child, topic, levels, depth + 1, True, found)
        if wild:
            plus = node.plus
            if plus is not None:
                self._walk(plus, topic, levels, depth + 1, True, found)


def _tail_matches(tail: bytes, topic: bytes, levels: list[bytes], depth: i64) -> bool:
    """Whether the levels of a topic from `depth` on fall under a tail."""
    left: i64 = len(levels) - depth
    if not has_wildcard(tail):
        return left == tail.count(b"/") + 1 and topic.endswith(tail) and _ends_alike(tail, levels, depth)
    wanted = tail.split(b"/")
    at: i64 = 0
    for level in wanted:
        if level == HASH:
            return True
        if at >= left or (level != PLUS and level != levels[depth + at]):
            return False
        at += 1
    return at == left


def _ends_alike(tail: bytes, levels: list[bytes], depth: i64) -> bool:
    """The topic ends with the tail and has as many levels left: only the first of them can still be longer."""
    slash = tail.find(b"/")
    return levels[depth] == (tail if slash < 0 else tail[:slash])


def _collect(node: Node, found: Found) -> None:
    if node.tail is not None:
        return
    if node.only is not None:
        found.subscriptions.append(node.only)
    if node.more is not None:
        found.subscriptions.extend(node.more.values())
    if node.shared is not None:
        found.groups.extend(node.shared.values())


def _spread(node: Node) -> None:
    """Another filter goes through here: push the tail one level down."""
    tail = node.tail
    assert tail is not None
    level, slash, rest = tail.partition(b"/")
    child = _make(node, level)
    child.only = node.only
    child.tail = rest if slash else None
    node.only = None
    node.tail = None


def _step(node: Node, level: bytes) -> Node | None:
    if level == PLUS:
        return node.plus
    if level == HASH:
        return node.hash
    return None if node.children is None else node.children.get(level)


def _make(node: Node, level: bytes) -> Node:
    made = Node()
    if level == PLUS:
        node.plus = made
    elif level == HASH:
        node.hash = made
    elif node.children is None:
        node.children = {level: made}
    else:
        node.children[level] = made
    return made


def _add_plain(node: Node, subscription: Subscription) -> Subscription | None:
    only = node.only
    more = node.more
    if more is not None:
        old = more.get(subscription.outlet)
        more[subscription.outlet] = subscription
        return old
    if only is None or only.outlet is subscription.outlet:
        node.only = subscription
        return only
    node.more = {only.outlet: only, subscription.outlet: subscription}
    node.only = None
    return None


def _add_shared(node: Node, subscription: Subscription) -> Subscription | None:
    if node.shared is None:
        node.shared = {}
    members = node.shared.get(subscription.group)
    if members is None:
        members = node.shared[subscription.group] = {}
    old = members.get(subscription.outlet)
    members[subscription.outlet] = subscription
    return old


def _remove_plain(node: Node, outlet: Outlet) -> Subscription | None:
    more = node.more
    if more is not None:
        removed = more.pop(outlet, None)
        if len(more) == 0:
            node.more = None
        return removed
    only = node.only
    if only is not None and only.outlet is outlet:
        node.only = None
        return only
    return None


def _remove_shared(node: Node, group: bytes, outlet: Outlet) -> Subscription | None:
    shared = node.shared
    if shared is None:
        return None
    members = shared.get(group)
    if members is None:
        return None
    removed = members.pop(outlet, None)
    if len(members) == 0:
        del shared[group]
        if len(shared) == 0:
            node.shared = None
    return removed


def _prune(path: list[Node], levels: list[bytes]) -> None:
    index = len(path) - 1
    while index > 0 and path[index].is_empty():
        parent = path[index - 1]
        level = levels[index - 1]
        if level == PLUS:
            parent.plus = None
        elif level == HASH:
            parent.hash = None
        else:
            children = parent.children
            assert children is not None
            del children[level]
            if len(children) == 0:
                parent.children = None
        index -= 1
