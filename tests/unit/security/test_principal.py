"""Names that may and may not be borne by a principal."""

from __future__ import annotations

import pytest

from millstream.security.principal import (
    ANONYMOUS_NAME,
    NAME_LENGTH_MAX,
    Principal,
    find_name_fault,
    find_user_name_fault,
)


@pytest.mark.parametrize("name", ["a", "anna", "é", "sensor 7", "x" * NAME_LENGTH_MAX, "a#b", "+", "a/b"])
def test_ordinary_names_are_accepted(name: str) -> None:
    assert find_user_name_fault(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x" * (NAME_LENGTH_MAX + 1),
        "a:b",
        "a\nb",
        "a\0b",
        "a\x7fb",
        "a\x85b",
        "a\u2028b",
        "\ud800",
        " a",
        "a ",
        "#a",
    ],
)
def test_names_that_could_forge_a_line_are_refused(name: str) -> None:
    assert find_name_fault(name) is not None


def test_nobody_can_prove_to_be_the_anonymous_principal() -> None:
    assert find_user_name_fault(ANONYMOUS_NAME) is not None
    assert find_name_fault(ANONYMOUS_NAME) is None


def test_a_principal_never_expires_unless_told() -> None:
    principal = Principal("anna", "default", "user")
    assert (principal.name, principal.account, principal.kind, principal.expires_at_s) == (
        "anna",
        "default",
        "user",
        0,
    )
