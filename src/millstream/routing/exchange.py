"""An exchange: a named place to publish to, with bindings that say which of its messages go where.

direct    the routing key is the key of the binding        fanout   all of them
topic     the key matches the binding's pattern            headers  the headers match the binding's arguments
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.model.owner import Owner
from millstream.routing.binding import Binding
from millstream.routing.header_match import HeaderPattern
from millstream.routing.pattern_tree import PatternTree, has_wild_word

DIRECT: Final = "direct"
FANOUT: Final = "fanout"
TOPIC: Final = "topic"
HEADERS: Final = "headers"
KINDS: Final = (DIRECT, FANOUT, TOPIC, HEADERS)


@final
class Exchange:
    def __init__(
        self,
        name: str,
        kind: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: dict[str, object],
    ) -> None:
        self.name = name
        self.kind = kind
        self.durable = durable
        self.auto_delete = auto_delete  # it goes with the last binding from it
        self.internal = internal  # only bindings lead to it
        self.arguments = arguments
        alternate = arguments.get("alternate-exchange")
        # where its messages go that match no binding
        self.alternate: str | None = alternate if isinstance(alternate, str) else None
        self.owner: Owner | None = None  # who declared it; None: the account's own
        self.is_alternate_suspended = False  # its owner may not publish there any more
        self.bindings: dict[bytes, Binding] = {}  # from it, by identity
        self.incoming: dict[Binding, None] = {}  # from other exchanges
        self.onward: dict[Binding, None] = {}  # to other exchanges
        self._exact: dict[bytes, Binding] = {}  # keys with one binding
        self._crowded: dict[bytes, dict[bytes, Binding]] = {}  # keys with more
        self._tree = PatternTree()

    def is_predeclared(self) -> bool:
        return not self.name or self.name.startswith("amq.")

    def declared_alternate(self) -> str | None:
        """The one that its owner chose; None: there is none, or a policy says which."""
        alternate = self.arguments.get("alternate-exchange")
        return alternate if isinstance(alternate, str) else None

    def find_alternate(self) -> str | None:
        """Where a message goes now that matched nothing."""
        return None if self.is_alternate_suspended else self.alternate

    def ignores_key(self) -> bool:
        """Whether all its messages go the same way."""
        return self.kind == FANOUT and not self.onward and self.alternate is None

    def reads_key(self) -> bool:
        """Whether a message with another key may go by other bindings."""
        return self.kind == DIRECT or self.kind == TOPIC

    def add(self, binding: Binding) -> None:
        """One whose identity is not here yet."""
        key = binding.key
        if self.kind == HEADERS:
            binding.pattern = HeaderPattern(binding.arguments)
        elif self.kind == TOPIC and has_wild_word(key):
            self._tree.add(binding)
        elif self.kind != FANOUT:
            only = self._exact.pop(key, None)
            if only is not None:
                self._crowded[key] = {only.identity: only, binding.identity: binding}
            elif key in self._crowded:
                self._crowded[key][binding.identity] = binding
            else:
                self._exact[key] = binding
        self.bindings[binding.identity] = binding
        if binding.exchange is not None:
            self.onward[binding] = None

    def remove(self, binding: Binding) -> None:
        del self.bindings[binding.identity]
        self.onward.pop(binding, None)
        key = binding.key
        if self.kind == HEADERS or self.kind == FANOUT:
            return
        if self.kind == TOPIC and has_wild_word(key):
            self._tree.remove(binding)
        elif self._exact.pop(key, None) is None:
            crowd = self._crowded[key]
            del crowd[binding.identity]
            if not crowd:
                del self._crowded[key]

    def take_visited(self) -> i64:
        """How many nodes of patterns were compared since this was asked last."""
        visited = self._tree.visited
        self._tree.visited = 0
        return visited

    def match(self, key: bytes, headers: dict[bytes, object] | None, by_text: bool) -> list[Binding]:
        """The bindings a message goes by. `headers` matter to headers exchanges alone."""
        found: list[Binding] = []
        if self.kind == FANOUT:
            return list(self.bindings.values())
        if self.kind == HEADERS:
            known: dict[bytes, object] = {} if headers is None else headers
            for binding in self.bindings.values():
                pattern = binding.pattern
                if pattern is not None and pattern.matches(known, by_text):
                    found.append(binding)
            return found
        only = self._exact.get(key)
        if only is not None:
            found.append(only)
        elif self._crowded:
            crowd = self._crowded.get(key)
            if crowd is not None:
                found.extend(crowd.values())
        if self.kind == TOPIC:
            self._tree.match(key, found)
        return found
