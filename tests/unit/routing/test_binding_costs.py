"""What bindings make a message cost: bounded for all exchanges of an account together."""

from __future__ import annotations

import itertools

import pytest

from millstream.model.errors import Reason, Refused
from millstream.routing.binding import Binding
from millstream.routing.binding_costs import count_conditions, find_pattern_shape, weigh_pattern
from millstream.routing.exchange import Exchange
from millstream.routing.exchanges import Exchanges
from millstream.routing.pattern_tree import PatternTree


class Account:
    """Exchanges that are bound as far as the bounds allow."""

    def __init__(self, patterns_max: int = 4096, conditions_max: int = 200_000) -> None:
        self.exchanges = Exchanges()
        self._patterns_max = patterns_max
        self._conditions_max = conditions_max
        for kind in ("topic", "headers", "fanout"):
            self.exchanges.by_name[kind] = Exchange(kind, kind, True, False, False, {})

    def bind(self, kind: str, key: bytes = b"", **arguments: object) -> Binding:
        source = self.exchanges.by_name[kind]
        self.exchanges.costs.check_room(kind, key, arguments, self._patterns_max, self._conditions_max)
        target = self.exchanges.by_name["fanout"]
        identity = key + repr(arguments).encode()
        binding = Binding(source, target.name, None, target, key, arguments, identity, False)
        self.exchanges.add(binding)
        return binding


def test_patterns_are_counted_by_where_their_wildcards_stand() -> None:
    assert find_pattern_shape(b"a.*.b.#") == find_pattern_shape(b"x.*.y.#") == b"-*-#"
    assert weigh_pattern(b"-*-#") == 1
    account = Account(patterns_max=2)
    for number in range(100):
        account.bind("topic", b"device.%d.#" % number)
    account.bind("topic", b"*.state")
    with pytest.raises(Refused, match=r"broker\.max_filter_shapes") as refused:
        account.bind("topic", b"state.*")
    assert refused.value.reason is Reason.QUOTA_EXCEEDED
    account.bind("topic", b"state.exact")  # no wildcard: it costs a look-up


def test_a_pattern_with_words_behind_a_hash_counts_by_its_words() -> None:
    assert [weigh_pattern(find_pattern_shape(key)) for key in (b"#", b"a.#", b"#.a", b"#.a.#.b.#.c")] == [
        1,
        1,
        2,
        6,
    ]
    account = Account(patterns_max=10)
    account.bind("topic", b"#.a.#.b.#.c")
    account.bind("topic", b"#.d.#.e")
    with pytest.raises(Refused):
        account.bind("topic", b"#.f")


def test_no_pattern_makes_a_match_visit_more_than_the_bound() -> None:
    """Words of a key times the weight of all patterns, whatever they are."""
    account = Account(patterns_max=300)
    tree = PatternTree()
    admitted = 0
    for words in itertools.product(b"abcd", repeat=4):
        key = b"#." + b".#.".join([bytes([word]) for word in words])
        try:
            tree.add(account.bind("topic", key))
            admitted += 1
        except Refused:
            break
    assert admitted == 300 // 8
    key = b".".join([b"a", b"b", b"c", b"d"] * 30)
    before = tree.visited
    tree.match(key, [])
    assert tree.visited - before <= 120 * 300 + 300


def test_headers_bindings_are_counted_by_the_values_they_compare() -> None:
    assert count_conditions({"x-match": "any", "a": 1, "b": [1, 2, {"c": 3}]}) == 1 + 1 + 5
    account = Account(conditions_max=10)
    first = account.bind("headers", a=1, b=2)
    account.bind("headers", a={"x": 1, "y": 2, "z": 3})
    with pytest.raises(Refused, match=r"amqp\.max_header_conditions") as refused:
        account.bind("headers", a=2, b=3)
    assert refused.value.reason is Reason.QUOTA_EXCEEDED
    account.exchanges.remove(first)
    account.bind("headers", a=2, b=3)


def test_what_was_unbound_costs_nothing_any_more() -> None:
    account = Account()
    bindings = [account.bind("topic", key) for key in (b"a.#", b"b.#", b"#.c.#")]
    bindings += [account.bind("headers", a=1), account.bind("fanout", b"#")]
    assert account.exchanges.costs.patterns == 1 + 3
    assert account.exchanges.costs.conditions == 2
    for binding in bindings:
        account.exchanges.remove(binding)
    assert account.exchanges.costs.patterns == 0
    assert account.exchanges.costs.conditions == 0
