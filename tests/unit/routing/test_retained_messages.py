"""Retained messages one by one; brute force is in properties/test_retained."""

from __future__ import annotations

from fakes import make_message

from millstream.routing.retained import Retained


def kept(*topics: bytes) -> Retained:
    retained = Retained(100, 100_000)
    for topic in topics:
        assert retained.store(make_message(topic, topic, 0, True))
    return retained


def found(retained: Retained, filter: bytes) -> list[bytes]:
    return sorted(message.topic for message in retained.match(filter, 1))


def test_dollar_topics_are_found_only_by_their_name() -> None:
    retained = kept(b"$SYS/a", b"a", b"a/b")
    assert found(retained, b"#") == [b"a", b"a/b"]
    assert found(retained, b"+/#") == [b"a", b"a/b"]
    assert found(retained, b"+/a") == []
    assert found(retained, b"$SYS/#") == [b"$SYS/a"]
    assert found(retained, b"$SYS/+") == [b"$SYS/a"]


def test_a_multi_level_wildcard_finds_the_parent_too() -> None:
    assert found(kept(b"a", b"a/", b"a/b/c", b"ab"), b"a/#") == [b"a", b"a/", b"a/b/c"]


def test_a_replaced_message_is_counted_once() -> None:
    retained = kept(b"a")
    before = retained.size_bytes
    assert retained.store(make_message(b"a", b"longer", 0, True))
    assert retained.count == 1
    assert retained.size_bytes == before + len(b"longer") - len(b"a")


def test_what_does_not_fit_leaves_the_old_one_in_place() -> None:
    retained = Retained(10, 200)
    assert retained.store(make_message(b"a", b"old", 0, True))
    assert not retained.store(make_message(b"a", bytes(500), 0, True))
    old = retained.find(b"a")
    assert old is not None
    assert old.payload == b"old"


def test_a_message_below_another_is_removed_alone() -> None:
    retained = kept(b"a", b"a/b", b"a/b/c")
    assert retained.remove(b"a/b")
    assert not retained.remove(b"a/b")
    assert found(retained, b"#") == [b"a", b"a/b/c"]
