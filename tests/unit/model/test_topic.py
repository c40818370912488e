"""Topics and filters, one by one. Every pair of a small alphabet is in properties/test_topics."""

from __future__ import annotations

import pytest

from millstream.model.topic import (
    find_filter_fault,
    find_topic_fault,
    find_utf8_fault,
    has_wildcard,
    matches,
    split_share,
)


@pytest.mark.parametrize(
    ("filter", "topic", "expected"),
    [
        (b"sport/tennis/player1/#", b"sport/tennis/player1", True),
        (b"sport/tennis/player1/#", b"sport/tennis/player1/score/wimbledon", True),
        (b"sport/#", b"sport", True),
        (b"#", b"anything/at/all", True),
        (b"sport/+", b"sport", False),
        (b"sport/+", b"sport/", True),
        (b"+/+", b"/finance", True),
        (b"/+", b"/finance", True),
        (b"+", b"/finance", False),
        (b"#", b"$SYS/x", False),
        (b"+/monitor/Clients", b"$SYS/monitor/Clients", False),
        (b"$SYS/#", b"$SYS/x", True),
        (b"$SYS/monitor/+", b"$SYS/monitor/Clients", True),
        (b"a", b"A", False),
        (b"a/b", b"a/b/", False),
    ],
)
def test_the_examples_of_the_specification_hold(filter: bytes, topic: bytes, expected: bool) -> None:
    assert matches(filter, topic) is expected


@pytest.mark.parametrize("topic", [b"a", b"/", b"//", b"$SYS/x", "ä/ö".encode(), b" ", b"x" * 20])
def test_these_can_be_published_to(topic: bytes) -> None:
    assert find_topic_fault(topic, 20, 3) is None


@pytest.mark.parametrize(
    "topic",
    [b"", b"x" * 21, b"a/b/c/d", b"+", b"a/#", b"a+b", b"a\x00", b"\xff", b"\xed\xa0\x80", b"\xc0\xaf"],
)
def test_these_cannot_be_published_to(topic: bytes) -> None:
    assert find_topic_fault(topic, 20, 3)


@pytest.mark.parametrize("filter", [b"#", b"+", b"+/+/#", b"a/+/b", b"/", b"/#", b"a//+"])
def test_these_can_be_subscribed_to(filter: bytes) -> None:
    assert find_filter_fault(filter, 20, 3) is None


@pytest.mark.parametrize(
    "filter",
    [b"", b"x" * 21, b"a/b/c/d", b"#/a", b"a#", b"#a", b"a/#b", b"a+", b"+a", b"a/b+/c", b"\x00", b"\xff"],
)
def test_these_cannot_be_subscribed_to(filter: bytes) -> None:
    assert find_filter_fault(filter, 20, 3)


@pytest.mark.parametrize(
    ("filter", "split"),
    [
        (b"a/b", None),
        (b"$share", None),
        (b"$shared/g/a", None),
        (b"$share/g/a", (b"g", b"a")),
        (b"$share/g/a/+/#", (b"g", b"a/+/#")),
        (b"$share/g//a", (b"g", b"/a")),
        (b"$share/", (b"", b"")),
        (b"$share/g", (b"", b"")),
        (b"$share/g/", (b"", b"")),
        (b"$share/g+/a", (b"", b"")),
        (b"$share/#/a", (b"", b"")),
        (b"$share//a", (b"", b"a")),
    ],
)
def test_a_shared_filter_is_taken_apart(filter: bytes, split: tuple[bytes, bytes] | None) -> None:
    assert split_share(filter) == split


def test_text_is_checked_as_the_specification_asks() -> None:
    assert find_utf8_fault("\U0010ffff\ufeff".encode()) is None
    assert find_utf8_fault(b"a\x00b")
    assert find_utf8_fault(b"\xed\xbf\xbf")  # half of a surrogate pair
    assert find_utf8_fault(b"\xf4\x90\x80\x80")  # beyond the last character


def test_wildcards_are_seen() -> None:
    assert has_wildcard(b"a/+")
    assert has_wildcard(b"#")
    assert not has_wildcard(b"a/b")
