"""What the documents say about rights, over a small world of topics. It imports nothing of the broker.

Whether a filter covers another, or overlaps it, is found by looking at every topic of the world.
"""

from __future__ import annotations

import random
from itertools import product

Rule = dict[str, object]

WORDS = ("a", "b", "x", "y", "z")
NAMES = ("q", "d", "a%2Fb", "z")
ORDINARY = ["/".join(levels) for depth in (1, 2, 3) for levels in product(WORDS, repeat=depth)]
BEHIND = ("", "/k", "/k/l", "/z")
QUEUES = [f"{prefix}/{name}{rest}" for prefix in ("$queue", "$dlq") for name in NAMES for rest in BEHIND]
WORLD = [*ORDINARY, *QUEUES]

FILTERS = (
    *("#", "a/#", "a/b", "a/+", "+/b", "b/#", "b", "x/#", "x/a", "x/b", "y/#", "y/a", "y/b", "z/#"),
    *(
        "$queue/#",
        "$queue/+",
        "$queue/q",
        "$queue/q/#",
        "$queue/d",
        "$queue/d/#",
        "$queue/a%2Fb",
        "$queue/z/#",
    ),
    *("$queue/q/k", "$dlq/#", "$dlq/q", "$dlq/d"),
)
WIDE = ("#", "$queue/#", "x/#", "y/#", "a/#")


def make_rules(chance: random.Random) -> list[Rule]:
    """Mostly allowing, with some denied parts: else nothing could be set up at all."""
    rules: list[Rule] = []
    for _ in range(chance.randint(1, 3)):
        action = chance.choice(("publish", "subscribe", "all", "all", "all"))
        pool = WIDE if chance.random() < 0.7 else FILTERS
        rules.append({"allow": action, "topics": chance.sample(pool, chance.randint(1, 4))})
    if chance.random() < 0.5:
        action = chance.choice(("publish", "subscribe", "all"))
        rules.append({"deny": action, "topics": [chance.choice(FILTERS[1:])]})
    return rules


def to_document(rules: list[Rule]) -> object:
    """As a file says it: there a percent sign is written twice."""
    return {
        "rules": [{**rule, "topics": [name.replace("%", "%%") for name in topics_of(rule)]} for rule in rules]
    }


def topics_of(rule: Rule) -> list[str]:
    topics = rule["topics"]
    assert isinstance(topics, list)
    return topics


def is_match(filter: str, topic: str) -> bool:
    if topic.startswith("$") and filter[0] in "+#":
        return False
    wanted, levels = filter.split("/"), topic.split("/")
    for at, word in enumerate(wanted):
        if word == "#":
            return True
        if at >= len(levels) or word not in ("+", levels[at]):
            return False
    return len(wanted) == len(levels)


def spread(filter: str) -> list[str]:
    return [topic for topic in WORLD if is_match(filter, topic)]


class Oracle:
    def __init__(self, rules: list[Rule]) -> None:
        self._rules = rules

    def filters(self, verb: str, action: str) -> list[str]:
        return [
            filter for rule in self._rules if rule.get(verb) in (action, "all") for filter in topics_of(rule)
        ]

    def can_publish(self, topic: str) -> bool:
        if not is_canonical(topic) or any(
            is_match(filter, topic) for filter in self.filters("deny", "publish")
        ):
            return False
        return any(is_match(filter, topic) for filter in self.filters("allow", "publish"))

    def is_denied(self, topic: str, action: str) -> bool:
        return any(is_match(filter, topic) for filter in self.filters("deny", action))

    def can_receive(self, topic: str) -> bool:
        if any(is_match(filter, topic) for filter in self.filters("deny", "subscribe")):
            return False
        return any(is_match(filter, topic) for filter in self.filters("allow", "subscribe"))

    def can_subscribe(self, filter: str) -> bool:
        if not is_canonical(filter):
            return False
        reached = spread(filter)
        denied = self.filters("deny", "subscribe")
        if filter.startswith(("$queue/", "$dlq/")):
            records = reached if "/" in filter.partition("/")[2] else spread(filter + "/#")
            if any(is_match(other, topic) for other in denied for topic in records):
                return False
        elif any(all(is_match(other, topic) for topic in reached) for other in denied):
            return False
        return self._is_covered(reached, "subscribe")

    def has_all(self, filter: str, action: str) -> bool:
        reached = spread(filter)
        if not is_canonical(filter):
            return False
        if any(is_match(other, topic) for other in self.filters("deny", action) for topic in reached):
            return False
        return self._is_covered(reached, action)

    def _is_covered(self, reached: list[str], action: str) -> bool:
        return any(
            all(is_match(other, topic) for topic in reached) for other in self.filters("allow", action)
        )


def is_canonical(topic: str) -> bool:
    """One spelling of a queue's name: %2F, %2B, %23 and %25 in capitals, nothing else written so, no $dlq behind $queue."""
    if not topic.startswith(("$queue/", "$dlq/")):
        return True
    name = topic.split("/")[1]
    if topic.startswith("$queue/") and name == "$dlq":
        return False
    at = name.find("%")
    while at >= 0:
        code = name[at + 1 : at + 3]
        if len(code) != 2 or code not in ("2F", "2B", "23", "25"):
            return False
        at = name.find("%", at + 1)
    return True
