"""Keys and topics are one name space: AMQP's matching of words and MQTT's matching of levels agree."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.model.routing_key import (
    EMPTY,
    filter_of_binding,
    key_of_topic,
    topic_of_key,
    topic_of_name,
    topic_of_publish,
)
from millstream.model.topic import find_filter_fault, find_topic_fault, matches

LENGTH_MAX = 4096
LEVELS_MAX = 300
WORDS = (
    b"a",
    b"b",
    b"",
    b"a/b",
    b"/",
    b"$x",
    b"x+",
    b"+",
    b"a#",
    b"\x00",
    b"\xff",
    "é".encode(),
    b"%",
    b"%2B",
)
KEY = st.one_of(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(b".".join), st.binary(max_size=255)
)
LITERAL_KEY = st.lists(st.sampled_from([w for w in WORDS if b"%" not in w]), min_size=1, max_size=4).map(
    b".".join
)
BINDING = st.lists(st.sampled_from((*WORDS, b"*", b"#", b"*")), min_size=1, max_size=4).map(b".".join)


def matches_by_words(binding: list[bytes], key: list[bytes]) -> bool:
    """The rule of topic exchanges: `*` is one word, `#` any number of them."""
    if not binding:
        return not key
    if binding[0] == b"#":
        return matches_by_words(binding[1:], key) or (bool(key) and matches_by_words(binding, key[1:]))
    if not key:
        return False
    return (binding[0] == b"*" or binding[0] == key[0]) and matches_by_words(binding[1:], key[1:])


def words_of(key: bytes) -> list[bytes]:
    return key.split(b".") if key else []


@given(KEY, KEY)
def test_every_key_becomes_a_legal_topic_that_is_not_the_brokers(exchange: bytes, key: bytes) -> None:
    for topic in (topic_of_key(key), topic_of_name(key), topic_of_publish(exchange[:255], key)):
        assert find_topic_fault(topic, LENGTH_MAX, LEVELS_MAX) is None
    assert not topic_of_key(key).startswith(b"$")
    assert not topic_of_name(key).startswith(b"$")


@given(KEY)
def test_a_key_has_as_many_words_as_its_topic_has_levels(key: bytes) -> None:
    assert topic_of_key(key).count(b"/") == key.count(b".")


@settings(max_examples=500)
@given(BINDING, KEY)
def test_a_right_to_the_filter_covers_whatever_the_binding_matches(binding: bytes, key: bytes) -> None:
    filter = filter_of_binding(binding)
    if filter is None:
        return
    assert find_filter_fault(filter, LENGTH_MAX, LEVELS_MAX) is None
    if matches_by_words(words_of(binding), words_of(key)):
        assert matches(filter, topic_of_key(key))


@settings(max_examples=500)
@given(BINDING, LITERAL_KEY)
def test_the_filter_matches_nothing_that_the_binding_does_not(binding: bytes, key: bytes) -> None:
    filter = filter_of_binding(binding)
    if filter is None or not key or b"%" in binding:
        return  # the empty key has a level, and a percent sign may stand for another character
    assert matches(filter, topic_of_key(key)) == matches_by_words(words_of(binding), words_of(key))


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\x00+#/")), min_size=1, max_size=4))
def test_the_key_of_any_topic_of_clients_leads_back_to_it(levels: list[str]) -> None:
    topic = "/".join(levels).encode()
    if not topic or topic.startswith(b"$"):
        return
    assert topic_of_key(key_of_topic(topic)) == topic
    assert topic == EMPTY or topic_of_key(b"") != topic
