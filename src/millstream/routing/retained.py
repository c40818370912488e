"""Retained messages: the last message of each topic, found by filter when somebody subscribes."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from millstream.model.message import Message


@final
class _Node:
    def __init__(self) -> None:
        self.children: dict[bytes, _Node] | None = None
        self.message: Message | None = None


@final
class Retained:
    """Bounded in count and bytes; expired messages are never handed out."""

    def __init__(self, messages_max: i64, bytes_max: i64) -> None:
        self._root = _Node()
        self._messages_max: i64 = messages_max
        self._bytes_max: i64 = bytes_max
        self.count: i64 = 0
        self.size_bytes: i64 = 0

    def store(self, message: Message) -> bool:
        """Keep it as the topic's last message; False when a bound forbids it."""
        old = self.find(message.topic)
        size = self.size_bytes + message.size_bytes()
        if old is not None:
            size -= old.size_bytes()
        elif self.count >= self._messages_max:
            return False
        if size > self._bytes_max:
            return False
        node = self._root
        for level in message.topic.split(b"/"):
            if node.children is None:
                node.children = {}
            following = node.children.get(level)
            if following is None:
                following = node.children[level] = _Node()
            node = following
        if old is None:
            self.count += 1
        self.size_bytes = size
        node.message = message
        return True

    def remove(self, topic: bytes) -> bool:
        levels = topic.split(b"/")
        path = [self._root]
        for level in levels:
            children = path[-1].children
            following = None if children is None else children.get(level)
            if following is None:
                return False
            path.append(following)
        message = path[-1].message
        if message is None:
            return False
        path[-1].message = None
        self.count -= 1
        self.size_bytes -= message.size_bytes()
        index = len(levels)
        while index > 0 and path[index].message is None and path[index].children is None:
            children = path[index - 1].children
            assert children is not None
            del children[levels[index - 1]]
            if len(children) == 0:
                path[index - 1].children = None
            index -= 1
        return True

    def find(self, topic: bytes) -> Message | None:
        node = self._root
        for level in topic.split(b"/"):
            children = node.children
            following = None if children is None else children.get(level)
            if following is None:
                return None
            node = following
        return node.message

    def match(self, filter: bytes, now_ns: i64) -> list[Message]:
        """All live messages under a filter, in the order of the tree."""
        found: list[Message] = []
        self._walk(self._root, filter.split(b"/"), 0, now_ns, found)
        return found

    def take_expired(self, now_ns: i64) -> list[bytes]:
        """Remove what has expired; the topics removed are returned."""
        topics: list[bytes] = []
        everything: list[Message] = []
        self._gather(self._root, False, 0, everything)
        for message in everything:
            if message.is_expired(now_ns):
                topics.append(message.topic)
        for topic in topics:
            self.remove(topic)
        return topics

    def _walk(self, node: _Node, levels: list[bytes], depth: i64, now_ns: i64, found: list[Message]) -> None:
        if depth == len(levels):
            if node.message is not None and not node.message.is_expired(now_ns):
                found.append(node.message)
            return
        level = levels[depth]
        if level == b"#":
            self._gather(node, depth == 0, now_ns, found)
            return
        children = node.children
        if children is None:
            return
        if level != b"+":
            child = children.get(level)
            if child is not None:
                self._walk(child, levels, depth + 1, now_ns, found)
            return
        for name, child in children.items():
            if depth == 0 and name.startswith(b"$"):  # [MQTT-4.7.2-1]
                continue
            self._walk(child, levels, depth + 1, now_ns, found)

    def _gather(self, node: _Node, at_root: bool, now_ns: i64, found: list[Message]) -> None:
        if node.message is not None and (now_ns == 0 or not node.message.is_expired(now_ns)):
            found.append(node.message)
        if node.children is not None:
            for name, child in node.children.items():
                if at_root and name.startswith(b"$"):
                    continue
                self._gather(child, False, now_ns, found)
