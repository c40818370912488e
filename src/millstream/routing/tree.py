"""Which subscriptions match a topic: a table of exact filters, and a tree by level of those with wildcards.

What a match costs beyond a million subscriptions is not steps but distinct places in memory, so both halves
are laid out to touch few. An exact filter is one entry of a table, found by the topic itself. In the
tree, a filter that shares its next level with no other is not spread over nodes: its rest stays with the last
node as a tail.

Invariants
- Filters with a wildcard are in the tree, all others in the table.
- A node without subscriptions and without children does not exist: unsubscribing prunes.
- A node with a tail holds exactly one ordinary subscription and nothing else.
- A walk visits at most two branches per level (the level itself and `+`), never more nodes than exist, and never more than
  the shapes of all filters have levels.
- An outlet has at most one subscription per filter and group.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.model.outlet import Outlet
from millstream.model.topic import has_wildcard
from millstream.routing.shapes import Shapes, find_shape
from millstream.routing.subscription import Subscription

PLUS: Final = b"+"
HASH: Final = b"#"
SLASH: Final = 0x2F
COMMON_LEVELS_MAX: Final = 4096
COMMON_LENGTH_MAX: Final = (
    64  # bytes of a level: what is longer hardly stands in many filters, and stays behind them
)


@final
class Node:
    def __init__(self) -> None:
        # what a walk looks at first stands first, to share a cache line
        self.tail: bytes | None = None  # the levels of `only` below this node, if not spread over nodes
        self.tail_levels: i64 = 0  # how many; 0 when the tail holds a wildcard
        self.only: Subscription | None = None  # most nodes have one subscription: no dict for it
        self.children: dict[bytes, Node] | None = None
        self.plus: Node | None = None
        self.hash: Node | None = None
        self.more: dict[Outlet, Subscription] | None = None
        self.shared: dict[bytes, dict[Outlet, Subscription]] | None = None

    def set_tail(self, tail: bytes) -> None:
        self.tail = tail
        self.tail_levels = 0 if has_wildcard(tail) else tail.count(b"/") + 1

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
        self.visited: i64 = 0  # levels of nodes and tails compared


@final
class TopicTree:
    def __init__(self) -> None:
        self._root = Node()
        self._exact: dict[bytes, Subscription] = {}  # filters with one ordinary subscription
        self._crowded: dict[bytes, Node] = {}  # exact filters with more than that
        self._common: dict[bytes, bytes] = {}  # levels that stand in many filters, as one object for all
        self.shapes = Shapes()  # of the filters in the tree
        self.extra_groups: i64 = 0  # share groups beside the first of each filter
        self.count: i64 = 0

    def add(self, subscription: Subscription) -> Subscription | None:
        """Store it; the one it replaces is returned."""
        if has_wildcard(subscription.filter):
            old = self._add_wild(subscription)
            if old is None:
                self.shapes.add(find_shape(subscription.filter))
        else:
            old = self._add_exact(subscription)
        if old is None:
            self.count += 1
        return old

    def remove(self, filter: bytes, group: bytes, outlet: Outlet) -> Subscription | None:
        if has_wildcard(filter):
            removed = self._remove_wild(filter, group, outlet)
            if removed is not None:
                self.shapes.remove(find_shape(filter))
        else:
            removed = self._remove_exact(filter, group, outlet)
        if removed is not None:
            self.count -= 1
        return removed

    def match(self, topic: bytes) -> Found:
        found = Found()
        subscription = self._exact.get(topic)
        if subscription is not None:
            found.subscriptions.append(subscription)
        elif self._crowded:
            node = self._crowded.get(topic)
            if node is not None:
                _collect(node, found)
        if not self._root.is_empty():
            self._walk(self._root, topic, topic.split(b"/"), 0, not topic.startswith(b"$"), found)
        return found

    def is_empty(self) -> bool:
        return not self._exact and not self._crowded and self._root.is_empty()

    def _add_exact(self, subscription: Subscription) -> Subscription | None:
        filter = subscription.filter
        node = self._crowded.get(filter)
        if node is None:
            old = self._exact.get(filter)
            if not subscription.group and (old is None or old.outlet is subscription.outlet):
                # the key is the subscription's own filter: take the new one with it
                self._exact.pop(filter, None)
                self._exact[filter] = subscription
                return old
            node = self._crowded[filter] = Node()
            node.only = self._exact.pop(filter, None)
        if subscription.group:
            return self._add_shared(node, subscription)
        return _add_plain(node, subscription)

    def _remove_exact(self, filter: bytes, group: bytes, outlet: Outlet) -> Subscription | None:
        node = self._crowded.get(filter)
        if node is not None:
            removed = self._remove_shared(node, group, outlet) if group else _remove_plain(node, outlet)
            if node.is_empty():
                del self._crowded[filter]
            return removed
        only = self._exact.get(filter)
        if only is None or group or only.outlet is not outlet:
            return None
        del self._exact[filter]
        return only

    def _add_wild(self, subscription: Subscription) -> Subscription | None:
        levels = subscription.filter.split(b"/")
        node = self._root
        depth: i64 = 0
        while depth < len(levels):
            following = _step(node, levels[depth])
            if following is None:
                following = _make(node, self._share(levels[depth]))
                if not subscription.group:
                    following.only = subscription
                    if depth + 1 < len(levels):
                        following.set_tail(b"/".join(levels[depth + 1 :]))
                    return None
            node = following
            depth += 1
            if node.tail is not None:
                self._spread(node)
        return self._add_shared(node, subscription) if subscription.group else _add_plain(node, subscription)

    def _remove_wild(self, filter: bytes, group: bytes, outlet: Outlet) -> Subscription | None:
        levels = filter.split(b"/")
        path: list[Node] = [self._root]
        node = self._root
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
        removed = self._remove_shared(node, group, outlet) if group else _remove_plain(node, outlet)
        if removed is None:
            return None
        node.tail = None
        _prune(path, levels)
        return removed

    def has_room_for_group(self, filter: bytes, group: bytes, extra_max: i64) -> bool:
        """Whether a member may join, though its group may be one more on that filter."""
        if self.extra_groups < extra_max:
            return True
        node = self._find_node(filter)
        return node is None or node.shared is None or group in node.shared

    def find_members(self, filter: bytes, group: bytes) -> dict[Outlet, Subscription] | None:
        """Of a share group, if there is one."""
        node = self._find_node(filter)
        return None if node is None or node.shared is None else node.shared.get(group)

    def _find_node(self, filter: bytes) -> Node | None:
        if not has_wildcard(filter):
            return self._crowded.get(filter)
        node: Node | None = self._root
        for level in filter.split(b"/"):
            if node is None or node.tail is not None:
                return None  # a tail has no groups
            node = _step(node, level)
        return node

    def _add_shared(self, node: Node, subscription: Subscription) -> Subscription | None:
        shared = node.shared
        if shared is None:
            shared = node.shared = {}
        members = shared.get(subscription.group)
        if members is None:
            if shared:
                self.extra_groups += 1
            members = shared[subscription.group] = {}
        old = members.get(subscription.outlet)
        members[subscription.outlet] = subscription
        return old

    def _remove_shared(self, node: Node, group: bytes, outlet: Outlet) -> Subscription | None:
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
            else:
                self.extra_groups -= 1
        return removed

    def _spread(self, node: Node) -> None:
        """Another filter goes through here: push the tail one level down."""
        tail = node.tail
        assert tail is not None
        level, slash, rest = tail.partition(b"/")
        child = _make(node, self._share(level))
        child.only = node.only
        if slash:
            child.set_tail(rest)
        node.only = None
        node.tail = None

    def _share(self, level: bytes) -> bytes:
        """One object for a level wherever it stands: a walk then meets it in the cache."""
        if len(level) > COMMON_LENGTH_MAX:
            return level
        known = self._common.get(level)
        if known is not None:
            return known
        if len(self._common) >= COMMON_LEVELS_MAX:
            self._common.clear()
        self._common[level] = level
        return level

    def _walk(
        self, node: Node, topic: bytes, levels: list[bytes], depth: i64, wild: bool, found: Found
    ) -> None:
        # Recursion depth is bounded by topic_levels_max. `wild` is False at the root of a `$` topic [MQTT-4.7.2-1].
        found.visited += 1
        tail = node.tail
        if tail is not None:
            if node.tail_levels:
                is_match = node.tail_levels == len(levels) - depth and _ends_with(topic, tail)
            else:
                found.visited += len(levels) - depth
                is_match = _tail_matches(tail, levels, depth)
            if is_match and node.only is not None:
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


def _ends_with(topic: bytes, tail: bytes) -> bool:
    """Whether the last whole levels of a topic are `tail`."""
    before: i64 = len(topic) - len(tail) - 1
    return before >= 0 and topic[before] == SLASH and topic.endswith(tail)


def _tail_matches(tail: bytes, levels: list[bytes], depth: i64) -> bool:
    """Whether the levels of a topic from `depth` on fall under a tail with wildcards."""
    left: i64 = len(levels) - depth
    at: i64 = 0
    for level in tail.split(b"/"):
        if level == HASH:
            return True
        if at >= left or (level != PLUS and level != levels[depth + at]):
            return False
        at += 1
    return at == left


def _collect(node: Node, found: Found) -> None:
    if node.tail is not None:
        return
    if node.only is not None:
        found.subscriptions.append(node.only)
    if node.more is not None:
        found.subscriptions.extend(node.more.values())
    if node.shared is not None:
        found.groups.extend(node.shared.values())


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
