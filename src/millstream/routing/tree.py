"""The topic tree: filters by level, so that one walk finds every subscription that matches a topic.

Invariants
- A node without subscriptions and without children does not exist: unsubscribing prunes.
- A walk visits at most two branches per level (the level itself and `+`), never more nodes than exist.
- An outlet has at most one subscription per filter and group.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.model.outlet import Outlet
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
        node = self._root
        for level in subscription.filter.split(b"/"):
            node = self._step_or_make(node, level)
        if subscription.group:
            old = self._add_shared(node, subscription)
        else:
            old = self._add_plain(node, subscription)
        if old is None:
            self.count += 1
        return old

    def remove(self, filter: bytes, group: bytes, outlet: Outlet) -> Subscription | None:
        levels = filter.split(b"/")
        path: list[Node] = [self._root]
        node = self._root
        for level in levels:
            following = self._step(node, level)
            if following is None:
                return None
            node = following
            path.append(node)
        removed = self._remove_shared(node, group, outlet) if group else self._remove_plain(node, outlet)
        if removed is None:
            return None
        self.count -= 1
        self._prune(path, levels)
        return removed

    def match(self, topic: bytes) -> Found:
        found = Found()
        self._walk(self._root, topic.split(b"/"), 0, not topic.startswith(b"$"), found)
        return found

    def _walk(self, node: Node, levels: list[bytes], depth: i64, wild: bool, found: Found) -> None:
        # Recursion depth is bounded by topic_levels_max. `wild` is False at the root of a `$` topic [MQTT-4.7.2-1].
        if wild:
            multi = node.hash
            if multi is not None:
                self._collect(multi, found)
        if depth == len(levels):
            self._collect(node, found)
            return
        children = node.children
        if children is not None:
            child = children.get(levels[depth])
            if child is not None:
                self._walk(child, levels, depth + 1, True, found)
        if wild:
            plus = node.plus
            if plus is not None:
                self._walk(plus, levels, depth + 1, True, found)

    def _collect(self, node: Node, found: Found) -> None:
        if node.only is not None:
            found.subscriptions.append(node.only)
        if node.more is not None:
            found.subscriptions.extend(node.more.values())
        if node.shared is not None:
            found.groups.extend(node.shared.values())

    def _add_plain(self, node: Node, subscription: Subscription) -> Subscription | None:
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

    def _add_shared(self, node: Node, subscription: Subscription) -> Subscription | None:
        if node.shared is None:
            node.shared = {}
        members = node.shared.get(subscription.group)
        if members is None:
            members = node.shared[subscription.group] = {}
        old = members.get(subscription.outlet)
        members[subscription.outlet] = subscription
        return old

    def _remove_plain(self, node: Node, outlet: Outlet) -> Subscription | None:
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
        return removed

    def _step(self, node: Node, level: bytes) -> Node | None:
        if level == PLUS:
            return node.plus
        if level == HASH:
            return node.hash
        return None if node.children is None else node.children.get(level)

    def _step_or_make(self, node: Node, level: bytes) -> Node:
        following = self._step(node, level)
        if following is not None:
            return following
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

    def _prune(self, path: list[Node], levels: list[bytes]) -> None:
        index = len(levels)
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
