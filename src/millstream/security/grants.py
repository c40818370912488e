"""What the rules come to for one user: four sets of filters, ready to be asked.

Invariants
- Asking costs one dictionary look-up and one linear match per filter that begins with the same level or a
  wildcard.
- A rule number is never 0, so 0 says "no rule".
"""

from __future__ import annotations

from typing import Final, final

from millstream.model.queue_topic import SETTLING
from millstream.model.topic import covers, has_wildcard, matches, overlaps
from millstream.security.rules import Rule

NO_RULE: Final = 0


@final
class FilterSet:
    __slots__ = ("_by_first_level", "_exact", "_leading", "_special")

    def __init__(self) -> None:
        self._exact: dict[bytes, int] = {}
        self._by_first_level: dict[bytes, list[tuple[bytes, int]]] = {}
        self._leading: list[tuple[bytes, int]] = []
        self._special: list[tuple[bytes, int]] = []  # of the exact ones those about topics that begin with $

    def add(self, filter: bytes, number: int) -> None:
        if not has_wildcard(filter):
            if filter.startswith(b"$") and filter not in self._exact:
                self._special.append((filter, number))
            self._exact.setdefault(filter, number)
        elif filter.startswith((b"+", b"#")):
            self._leading.append((filter, number))
        else:
            self._by_first_level.setdefault(filter.partition(b"/")[0], []).append((filter, number))

    def find_match(self, topic: bytes) -> int:
        """The number of a rule whose filter matches `topic`."""
        number = self._exact.get(topic, NO_RULE)
        if number:
            return number
        if self._by_first_level:
            for filter, number in self._by_first_level.get(topic.partition(b"/")[0], ()):
                if matches(filter, topic):
                    return number
        for filter, number in self._leading:
            if matches(filter, topic):
                return number
        return NO_RULE

    def find_cover(self, narrow: bytes) -> int:
        """The number of a rule whose filter matches every topic that `narrow` matches."""
        number = self._exact.get(narrow, NO_RULE)
        if number:
            return number
        if self._by_first_level:
            for filter, number in self._by_first_level.get(narrow.partition(b"/")[0], ()):
                if covers(filter, narrow):
                    return number
        for filter, number in self._leading:
            if covers(filter, narrow):
                return number
        return NO_RULE

    def has_overlap(self, wanted: bytes) -> bool:
        """Whether some topic that `wanted` matches is also matched by one of these. Looks at all of them."""
        for filter in self._exact:
            if overlaps(filter, wanted):
                return True
        for entries in self._by_first_level.values():
            for filter, _ in entries:
                if overlaps(filter, wanted):
                    return True
        return any([overlaps(filter, wanted) for filter, _ in self._leading])

    def find_record_rule(self, wanted: bytes) -> int:
        """The number of a rule about some of the records that `wanted`, a filter of a queue, matches. Rules about answers to
        deliveries are about no record."""
        for filter, number in self._special:
            if not filter.endswith(SETTLING) and overlaps(filter, wanted):
                return number
        for filter, number in self._by_first_level.get(wanted.partition(b"/")[0], ()):
            if not filter.endswith(SETTLING) and overlaps(filter, wanted):
                return number
        return NO_RULE


@final
class Grants:
    __slots__ = ("allow_publish", "allow_subscribe", "deny_publish", "deny_subscribe")

    def __init__(self, rules: list[Rule], user_name: str, client_id: str) -> None:
        """`rules` are those that concern this client."""
        self.allow_publish = FilterSet()
        self.allow_subscribe = FilterSet()
        self.deny_publish = FilterSet()
        self.deny_subscribe = FilterSet()
        for rule in rules:
            for template in rule.filters:
                filter = template.expand(user_name, client_id)
                if filter is None:
                    continue
                if rule.on_publish:
                    (self.deny_publish if rule.is_deny else self.allow_publish).add(filter, rule.number)
                if rule.on_subscribe:
                    (self.deny_subscribe if rule.is_deny else self.allow_subscribe).add(filter, rule.number)

    def find_set(self, on_publish: bool, is_deny: bool) -> FilterSet:
        if on_publish:
            return self.deny_publish if is_deny else self.allow_publish
        return self.deny_subscribe if is_deny else self.allow_subscribe
