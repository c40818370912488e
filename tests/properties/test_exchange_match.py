"""Topic patterns, headers and walks through exchanges, against the plainest thing that could say the same."""

from __future__ import annotations

import functools

from fakes import FakeOutlet
from hypothesis import given
from hypothesis import strategies as st

from millstream.routing.binding import Binding
from millstream.routing.exchange import DIRECT, FANOUT, HEADERS, TOPIC, Exchange
from millstream.routing.exchanges import Exchanges
from millstream.routing.header_match import HeaderPattern
from millstream.routing.pattern_tree import split_words

WORDS = st.sampled_from([b"a", b"b", b"", b"*", b"#", b"a#", b"**"])
PATTERNS = st.lists(WORDS, max_size=6).map(b".".join)
KEYS = st.lists(st.sampled_from([b"a", b"b", b"c", b"", b"a#", b"*"]), max_size=6).map(b".".join)


def brute_match(pattern: list[bytes], words: list[bytes]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == b"#":
        return any(brute_match(pattern[1:], words[at:]) for at in range(len(words) + 1))
    return bool(words) and pattern[0] in (b"*", words[0]) and brute_match(pattern[1:], words[1:])


def bind(source: Exchange, number: int, key: bytes, arguments: dict[str, object] | None = None) -> Binding:
    identity = b"%d:" % number + key
    return Binding(source, str(number), FakeOutlet(), None, key, arguments or {}, identity, False)


@given(patterns=st.lists(PATTERNS, max_size=12), key=KEYS, gone=st.sets(st.integers(0, 11)))
def test_a_topic_exchange_finds_what_each_pattern_alone_would(
    patterns: list[bytes], key: bytes, gone: set[int]
) -> None:
    exchange = Exchange("x", TOPIC, False, False, False, {})
    bindings = [bind(exchange, number, pattern) for number, pattern in enumerate(patterns)]
    for binding in bindings:
        exchange.add(binding)
    for number in gone:
        if number < len(bindings):
            exchange.remove(bindings[number])
    found = [binding.target for binding in exchange.match(key, None, False)]
    expected = [
        str(number)
        for number, pattern in enumerate(patterns)
        if number not in gone and brute_match(split_words(pattern), split_words(key))
    ]
    assert sorted(found) == sorted(expected)
    for number in range(len(bindings)):
        if number not in gone:
            exchange.remove(bindings[number])
    assert exchange._tree.is_empty()
    assert not exchange._exact
    assert not exchange._crowded


SCALARS = st.one_of(st.booleans(), st.integers(0, 3), st.sampled_from(["a", "b", ""]), st.none())
NAMES = st.sampled_from(["k", "l", "x-m"])
PAIRS = st.dictionaries(NAMES, SCALARS, max_size=3)
MATCHES = st.sampled_from(["all", "any", "all-with-x", "any-with-x"])


def as_sent(headers: dict[str, object]) -> dict[bytes, object]:
    return {
        name.encode(): value.encode() if isinstance(value, str) else value for name, value in headers.items()
    }


@given(wanted=PAIRS, match=st.one_of(st.none(), MATCHES), headers=PAIRS)
def test_headers_match_as_their_x_match_says(
    wanted: dict[str, object], match: str | None, headers: dict[str, object]
) -> None:
    arguments: dict[str, object] = dict(wanted) if match is None else {**wanted, "x-match": match}
    counted = [name for name in wanted if not name.startswith("x-") or (match or "").endswith("-with-x")]
    answers = [
        name in headers
        and (
            wanted[name] is None or (type(wanted[name]), wanted[name]) == (type(headers[name]), headers[name])
        )
        for name in counted
    ]
    expected = any(answers) if (match or "all").startswith("any") else all(answers)
    assert HeaderPattern(arguments).matches(as_sent(headers), False) == expected


EDGES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.sampled_from([b"k", b"l"])), max_size=10)
QUEUES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.sampled_from([b"k", b"l"])), max_size=8)
ALTERNATES = st.lists(st.one_of(st.none(), st.integers(0, 5)), min_size=5, max_size=5)


@given(
    kinds=st.lists(st.sampled_from([DIRECT, FANOUT, TOPIC, HEADERS]), min_size=5, max_size=5),
    edges=EDGES,
    queues=QUEUES,
    alternates=ALTERNATES,
)
def test_a_walk_reaches_each_queue_once_whatever_circles_there_are(
    kinds: list[str],
    edges: list[tuple[int, int, bytes]],
    queues: list[tuple[int, int, bytes]],
    alternates: list[int | None],
) -> None:
    exchanges = Exchanges()
    nodes: list[Exchange] = []
    for number, kind in enumerate(kinds):
        after = alternates[number]
        arguments: dict[str, object] = {} if after is None else {"alternate-exchange": str(after)}
        node = Exchange(str(number), kind, False, False, False, arguments)
        exchanges.by_name[node.name] = node
        nodes.append(node)
    outlets = [FakeOutlet() for _ in range(4)]
    for source, target, key in dict.fromkeys(edges):
        identity = b"e%d" % target + key
        exchanges.add(Binding(nodes[source], str(target), None, nodes[target], key, {}, identity, False))
    for source, queue, key in dict.fromkeys(queues):
        identity = b"q%d" % queue + key
        exchanges.add(Binding(nodes[source], str(queue), outlets[queue], None, key, {}, identity, False))
    walk = exchanges.walk(nodes[0], b"k", {})

    @functools.cache
    def matched(at: int) -> tuple[list[int], list[int]]:
        takes_all = kinds[at] in (FANOUT, HEADERS)
        onward = [target for source, target, key in edges if source == at and (takes_all or key == b"k")]
        there = [queue for source, queue, key in queues if source == at and (takes_all or key == b"k")]
        after = alternates[at]
        if not onward and not there and after is not None and after < 5:
            onward = [after]
        return onward, there

    reached, waiting = {0}, [0]
    expected: set[int] = set()
    while waiting:
        onward, there = matched(waiting.pop())
        expected.update(there)
        for following in onward:
            if following not in reached:
                reached.add(following)
                waiting.append(following)
    assert {outlets.index(outlet) for outlet in walk.outlets} == expected
    assert exchanges.needs_headers(nodes[0]) or all(kinds[at] != HEADERS for at in reached)
