"""Bindings of a topic exchange: words split by `.`, where `*` is one word and `#` any number of them, at any place.

A key is matched word by word against all patterns at once: `_active` holds the nodes that the words so far lead to, each
once. So a match costs words times nodes reached, whatever patterns there are; no pattern makes it branch without end.

Invariants
- Patterns without a wildcard are in the table of the exchange, all others here.
- A node without bindings and without children does not exist: removing prunes.
- The empty key has no words; `#` matches it and `*` does not.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.routing.binding import Binding

STAR: Final = b"*"
HASH: Final = b"#"


def split_words(key: bytes) -> list[bytes]:
    return key.split(b".") if key else []


def has_wild_word(pattern: bytes) -> bool:
    if b"*" not in pattern and b"#" not in pattern:
        return False
    words = pattern.split(b".")
    return STAR in words or HASH in words


@final
class _Node:
    def __init__(self, is_hash: bool) -> None:
        self.is_hash = is_hash  # it stays where it is with every further word
        self.mark: i64 = 0  # the step in which it was reached last
        self.children: dict[bytes, _Node] | None = None
        self.star: _Node | None = None
        self.hash: _Node | None = None
        self.only: Binding | None = None  # most have one: no dict for it
        self.more: dict[bytes, Binding] | None = None

    def is_empty(self) -> bool:
        return (
            self.only is None
            and self.more is None
            and self.children is None
            and self.star is None
            and self.hash is None
        )

    def find(self, word: bytes) -> _Node | None:
        if word == STAR:
            return self.star
        if word == HASH:
            return self.hash
        return None if self.children is None else self.children.get(word)

    def make(self, word: bytes) -> _Node:
        node = _Node(word == HASH)
        if word == STAR:
            self.star = node
        elif word == HASH:
            self.hash = node
        elif self.children is None:
            self.children = {word: node}
        else:
            self.children[word] = node
        return node

    def drop(self, word: bytes) -> None:
        if word == STAR:
            self.star = None
        elif word == HASH:
            self.hash = None
        else:
            assert self.children is not None
            del self.children[word]
            if not self.children:
                self.children = None


@final
class PatternTree:
    def __init__(self) -> None:
        self._root = _Node(False)
        self._step: i64 = 0
        self.visited: i64 = 0  # nodes that words were compared at: what matches have cost

    def is_empty(self) -> bool:
        return self._root.is_empty()

    def add(self, binding: Binding) -> None:
        node = self._root
        for word in split_words(binding.key):
            following = node.find(word)
            node = node.make(word) if following is None else following
        if node.more is not None:
            node.more[binding.identity] = binding
        elif node.only is None:
            node.only = binding
        else:
            node.more = {node.only.identity: node.only, binding.identity: binding}
            node.only = None

    def remove(self, binding: Binding) -> None:
        words = split_words(binding.key)
        path: list[_Node] = [self._root]
        for word in words:
            following = path[-1].find(word)
            assert following is not None
            path.append(following)
        node = path[-1]
        if node.more is not None:
            del node.more[binding.identity]
            if not node.more:
                node.more = None
        else:
            assert node.only is binding
            node.only = None
        at = len(words)
        while at > 0 and path[at].is_empty():
            path[at - 1].drop(words[at - 1])
            at -= 1

    def match(self, key: bytes, found: list[Binding]) -> None:
        if self._root.is_empty():
            return
        active: list[_Node] = []
        self._step += 1
        self._enter(self._root, active)
        for word in split_words(key):
            following: list[_Node] = []
            self._step += 1
            self.visited += len(active)
            for node in active:
                if node.is_hash:
                    self._enter(node, following)
                if node.children is not None:
                    child = node.children.get(word)
                    if child is not None:
                        self._enter(child, following)
                if node.star is not None:
                    self._enter(node.star, following)
            if not following:
                return
            active = following
        for node in active:
            if node.only is not None:
                found.append(node.only)
            elif node.more is not None:
                found.extend(node.more.values())

    def _enter(self, start: _Node, active: list[_Node]) -> None:
        """With what is reached from there by no word at all."""
        node: _Node | None = start
        while node is not None and node.mark != self._step:
            node.mark = self._step
            active.append(node)
            node = node.hash
