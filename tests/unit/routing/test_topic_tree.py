"""The tree by itself: pruned when empty, deep topics, many subscribers on one filter."""

from __future__ import annotations

from fakes import FakeOutlet

from millstream.routing.subscription import Subscription
from millstream.routing.tree import TopicTree


def plain(outlet: FakeOutlet, filter: bytes, group: bytes = b"") -> Subscription:
    return Subscription(outlet, filter, group, 0, False, False, 0)


def test_filters_that_share_their_beginning_are_told_apart() -> None:
    tree = TopicTree()
    filters = [b"a/+", b"a/+/", b"a/+/b", b"a/+/b/c", b"a/+/#", b"a/#", b"+/+", b"+/+/b", b"a", b"a/x/b"]
    outlets = {filter: FakeOutlet(filter.decode()) for filter in filters}
    for filter, outlet in outlets.items():
        assert tree.add(plain(outlet, filter)) is None
    found = {one.filter for one in tree.match(b"a/x/b").subscriptions}
    assert found == {b"a/+/b", b"a/+/#", b"a/#", b"+/+/b", b"a/x/b"}
    assert {one.filter for one in tree.match(b"a/x/").subscriptions} == {b"a/+/", b"a/+/#", b"a/#"}
    assert {one.filter for one in tree.match(b"a").subscriptions} == {b"a", b"a/#"}
    for filter in reversed(filters):
        assert tree.remove(filter, b"", outlets[filter]) is not None
        assert tree.remove(filter, b"", outlets[filter]) is None
    assert tree.is_empty()
    assert tree.count == 0


def test_many_subscribers_of_one_filter_come_and_go() -> None:
    for filter in (b"t", b"t/+", b"#"):
        tree = TopicTree()
        outlets = [FakeOutlet(str(number)) for number in range(50)]
        for outlet in outlets:
            tree.add(plain(outlet, filter))
            tree.add(plain(outlet, filter, b"g"))
        found = tree.match(b"t/x" if filter == b"t/+" else b"t")
        assert len(found.subscriptions) == 50
        assert [len(members) for members in found.groups] == [50]
        for outlet in outlets[::2]:
            tree.remove(filter, b"", outlet)
        assert len(tree.match(b"t/x" if filter == b"t/+" else b"t").subscriptions) == 25
        for outlet in outlets:
            tree.remove(filter, b"", outlet)
            tree.remove(filter, b"g", outlet)
        assert tree.is_empty()


def test_a_topic_as_deep_as_allowed_is_matched() -> None:
    tree = TopicTree()
    deep = b"/".join([b"l"] * 128)
    wild = b"/".join([b"+"] * 128)
    for filter in (deep, wild, b"#", b"l/#"):
        tree.add(plain(FakeOutlet(), filter))
    assert len(tree.match(deep).subscriptions) == 4
    assert len(tree.match(deep + b"/l").subscriptions) == 2


def test_groups_of_one_name_on_two_filters_are_two_groups() -> None:
    tree = TopicTree()
    outlet = FakeOutlet()
    tree.add(plain(outlet, b"a", b"g"))
    tree.add(plain(outlet, b"+", b"g"))
    tree.add(plain(outlet, b"a", b"h"))
    assert len(tree.match(b"a").groups) == 3
    assert len(tree.match(b"b").groups) == 1
    assert tree.count == 3


def test_nothing_long_is_left_of_filters_that_are_gone() -> None:
    tree = TopicTree()
    outlet = FakeOutlet()
    for number in range(50):
        filter = b"%d" % number * 1000 + b"/+"
        tree.add(plain(outlet, filter))
        assert tree.remove(filter, b"", outlet) is not None
    assert sum(len(level) for level in tree._common) < 1000
