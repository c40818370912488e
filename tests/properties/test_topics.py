"""Filters over topics, against an enumeration of every topic of a small alphabet."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.model.topic import (
    covers,
    find_filter_fault,
    find_topic_fault,
    has_wildcard,
    matches,
    overlaps,
    split_share,
)

TOPIC_LEVELS = (b"a", b"b", b"", b"$s")
FILTER_LEVELS = (b"a", b"", b"$s", b"+")
DEPTH = 4  # one more than the filters have: enough to tell `#` from the rest


def all_topics() -> list[bytes]:
    """The empty one is among them: nobody can publish to it, but filters are compared as if one could."""
    return [
        b"/".join(levels) for depth in range(1, DEPTH + 1) for levels in product(TOPIC_LEVELS, repeat=depth)
    ]


def all_filters() -> list[bytes]:
    found = [b"#"]
    for depth in range(1, DEPTH):
        for levels in product(FILTER_LEVELS, repeat=depth):
            found.append(b"/".join(levels))
            if depth < DEPTH - 1:
                found.append(b"/".join((*levels, b"#")))
    return [filter for filter in found if filter]


TOPICS = all_topics()
FILTERS = all_filters()


def matches_by_the_book(filter: list[bytes], topic: list[bytes], is_first: bool = True) -> bool:
    """Section 4.7 said once more, by recursion."""
    if not filter:
        return not topic
    hidden = is_first and topic[:1] != [] and topic[0].startswith(b"$")
    if filter[0] == b"#":
        return not hidden
    if not topic:
        return False
    if filter[0] == b"+":
        return not hidden and matches_by_the_book(filter[1:], topic[1:], False)
    return filter[0] == topic[0] and matches_by_the_book(filter[1:], topic[1:], False)


MATCHED = {filter: frozenset(topic for topic in TOPICS if matches(filter, topic)) for filter in FILTERS}


def test_matches_says_what_the_specification_says_for_every_pair() -> None:
    wrong = [
        (filter, topic)
        for filter in FILTERS
        for topic in TOPICS
        if matches(filter, topic) != matches_by_the_book(filter.split(b"/"), topic.split(b"/"))
    ]
    assert wrong == []


def test_one_filter_covers_another_exactly_if_it_matches_all_its_topics() -> None:
    wrong = [
        (wide, narrow)
        for wide in FILTERS
        for narrow in FILTERS
        if covers(wide, narrow) != (MATCHED[narrow] <= MATCHED[wide])
    ]
    assert wrong == []


def test_two_filters_overlap_exactly_if_one_topic_falls_under_both() -> None:
    wrong = [
        (one, other)
        for one in FILTERS
        for other in FILTERS
        if overlaps(one, other) != bool(MATCHED[one] & MATCHED[other])
    ]
    assert wrong == []


anything = st.binary(max_size=12) | st.text(alphabet="ab/+#$é\x00", max_size=8).map(str.encode)


@settings(max_examples=300, deadline=None)
@given(anything)
def test_a_topic_without_fault_is_a_filter_that_matches_itself_and_nothing_else(text: bytes) -> None:
    if find_topic_fault(text, 4096, 128) is None:
        assert find_filter_fault(text, 4096, 128) is None
        assert not has_wildcard(text)
        assert matches(text, text)
        assert not matches(text, text + b"/")
        assert text.decode() != ""
        assert "\x00" not in text.decode()


@settings(max_examples=300, deadline=None)
@given(anything)
def test_a_filter_without_fault_uses_wildcards_as_whole_levels_only(text: bytes) -> None:
    if find_filter_fault(text, 4096, 128) is None:
        levels = text.split(b"/")
        assert all(level == b"+" or b"+" not in level for level in levels)
        assert all(b"#" not in level for level in levels[:-1])
        assert levels[-1] == b"#" or b"#" not in levels[-1]


@settings(max_examples=200, deadline=None)
@given(anything, anything)
def test_a_share_is_split_into_what_it_was_made_of(group: bytes, filter: bytes) -> None:
    split = split_share(b"$share/" + group + b"/" + filter)
    is_legal = group and filter and not set(group) & set(b"/+#")
    if is_legal:
        assert split == (group, filter)
    elif not group or not set(group) & set(b"/"):
        assert split is not None
        assert split[0] == b""
