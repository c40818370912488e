"""What a match costs: by the shapes of the filters, not by their number."""

from __future__ import annotations

import itertools

from fakes import FakeOutlet

from millstream.routing.shapes import Shapes, find_shape, weigh_shape
from millstream.routing.subscription import Subscription
from millstream.routing.tree import TopicTree


def add(tree: TopicTree, outlet: FakeOutlet, filter: bytes) -> None:
    tree.add(Subscription(outlet, filter, b"", 0, False, False, 0))


def test_a_shape_says_where_the_wildcards_stand() -> None:
    assert find_shape(b"a/+/b/#") == find_shape(b"x//+/y/#".replace(b"//", b"/")) == b"-+-#"
    assert find_shape(b"#") == b"#"
    assert find_shape(b"/+") == b"-+"
    assert [weigh_shape(b"+" * levels) for levels in (1, 16, 17, 32, 33)] == [1, 1, 2, 2, 3]


def test_a_shape_lasts_as_long_as_one_of_its_filters() -> None:
    shapes = Shapes()
    for _ in range(2):
        shapes.add(b"-+")
    assert not shapes.has_room_for(b"+-", 1)
    assert shapes.has_room_for(b"-+", 1)
    shapes.remove(b"-+")
    assert not shapes.has_room_for(b"+-", 1)
    shapes.remove(b"-+")
    assert shapes.has_room_for(b"+-", 1)
    assert shapes.weight == 0


def test_a_walk_visits_no_more_than_the_shapes_have_levels() -> None:
    """Neither many filters of few shapes nor long tails: the bound on shapes is a bound on the work of a publish."""
    tree = TopicTree()
    outlet = FakeOutlet()
    for number in range(5000):
        add(tree, outlet, b"device/%d/+/state/#" % number)
    for bits in itertools.product((b"a", b"+"), repeat=6):
        add(tree, outlet, b"/".join(bits) + b"/a" * 40 + b"/#")
    levels = sum(len(shape) for shape in tree.shapes._counts)
    assert len(tree.shapes._counts) == 1 + 64
    found = tree.match(b"/".join([b"a"] * 46))
    assert len(found.subscriptions) == 64
    assert 64 <= found.visited <= levels
    assert tree.match(b"device/77/x/state/y").visited <= 5 + 64


def test_the_tree_forgets_a_shape_with_its_last_filter() -> None:
    tree = TopicTree()
    one, other = FakeOutlet(), FakeOutlet()
    add(tree, one, b"a/+")
    add(tree, one, b"a/+")  # replaced
    add(tree, other, b"b/+")
    add(tree, other, b"b/c")
    assert tree.shapes.weight == 1
    tree.remove(b"a/+", b"", one)
    assert tree.shapes.weight == 1
    tree.remove(b"b/+", b"", other)
    assert tree.remove(b"b/+", b"", other) is None
    assert tree.shapes.weight == 0
