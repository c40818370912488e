"""Sets of filters: which topics they match and which filters they cover."""

from __future__ import annotations

import pytest

from millstream.security.grants import NO_RULE, FilterSet


def make_set(*filters: bytes) -> FilterSet:
    made = FilterSet()
    for position, filter in enumerate(filters):
        made.add(filter, position + 1)
    return made


@pytest.mark.parametrize(
    ("topic", "number"),
    [(b"a/b", 1), (b"a/c", 2), (b"x", 3), (b"a/b/c", NO_RULE), (b"$SYS", NO_RULE), (b"$SYS/x", 4), (b"", 3)],
)
def test_a_topic_finds_the_rule_that_matches_it(topic: bytes, number: int) -> None:
    assert make_set(b"a/b", b"a/+", b"+", b"$SYS/x/#").find_match(topic) == number


@pytest.mark.parametrize(
    ("narrow", "number"),
    [
        (b"a/b", 1),
        (b"a/+", 2),
        (b"a/#", NO_RULE),
        (b"+", 3),
        (b"#", NO_RULE),
        (b"$SYS/x/+", 4),
        (b"$SYS/#", NO_RULE),
    ],
)
def test_a_filter_finds_the_rule_that_covers_it(narrow: bytes, number: int) -> None:
    assert make_set(b"a/b", b"a/+", b"+", b"$SYS/x/#").find_cover(narrow) == number


def test_two_ways_to_write_all_topics_cover_each_other() -> None:
    assert make_set(b"+/#").find_cover(b"#") == 1
    assert make_set(b"#").find_cover(b"+/#") == 1
    assert make_set(b"+/#").find_cover(b"$SYS/#") == NO_RULE


def test_an_empty_set_knows_no_rule() -> None:
    assert make_set().find_match(b"a") == NO_RULE
    assert make_set().find_cover(b"#") == NO_RULE
