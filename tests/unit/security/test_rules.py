"""Filter templates and the selectors of a rule."""

from __future__ import annotations

import pytest

from millstream.security.rules import FilterTemplate, Rule, find_template_fault, is_plain


@pytest.mark.parametrize(
    ("source", "filter"),
    [
        ("a/b", b"a/b"),
        ("%c", b"c1"),
        ("%u/%c/#", b"anna/c1/#"),
        ("x%uy%cz", b"xannayc1z"),
        ("%%c", b"%c"),
        ("%%%c%%", b"%c1%"),
        ("a/+/%u", b"a/+/anna"),
        ("$queue/%u", b"$queue/anna"),
    ],
)
def test_a_template_expands_to_a_filter(source: str, filter: bytes) -> None:
    assert find_template_fault(source) is None
    assert FilterTemplate(source).expand("anna", "c1") == filter


def test_only_the_placeholder_in_use_is_checked() -> None:
    assert FilterTemplate("d/%u").expand("anna", "+") == b"d/anna"
    assert FilterTemplate("d/%c").expand("#", "c1") == b"d/c1"
    assert FilterTemplate("d/x").expand("", "") == b"d/x"


def test_a_name_is_put_in_only_once() -> None:
    """A client called `%u` must not become the user."""
    assert FilterTemplate("d/%c").expand("anna", "%u") == b"d/%u"
    assert FilterTemplate("d/%u/%c").expand("%c", "c1") == b"d/%c/c1"


@pytest.mark.parametrize("name", ["", "+", "#", "/", "a/b", "a+", "\0"])
def test_names_that_mean_more_than_themselves_are_not_plain(name: str) -> None:
    assert not is_plain(name)
    assert is_plain("a" + name.replace("+", "").replace("#", "").replace("/", "").replace("\0", ""))


def test_a_template_with_a_fault_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="fault"):
        FilterTemplate("a/%x")


def test_a_rule_tells_whether_it_depends_on_the_client_id() -> None:
    plain = Rule(1, False, True, True, [FilterTemplate("a/%u")], None, None, [], None)
    by_topic = Rule(1, False, True, True, [FilterTemplate("a"), FilterTemplate("%c")], None, None, [], None)
    by_client = Rule(1, False, True, True, [FilterTemplate("a")], None, {"c": None}, [], None)
    by_prefix = Rule(1, False, True, True, [FilterTemplate("a")], None, {}, ["c"], None)
    assert [rule.depends_on_client() for rule in (plain, by_topic, by_client, by_prefix)] == [
        False,
        True,
        True,
        True,
    ]
    assert by_prefix.concerns_client("c9")
    assert not by_client.concerns_client("c9")
    assert not by_prefix.concerns_client("d")


def test_a_rule_describes_itself() -> None:
    rule = Rule(3, True, False, True, [FilterTemplate("a")], None, None, [], None)
    assert rule.describe() == "rules[2] (deny subscribe)"
