from __future__ import annotations

import pytest

from millstream.model.field_type import field_type


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (None, "void"),
        (True, "bool"),
        (False, "bool"),
        (0, "signedint"),
        (-(2**40), "signedint"),
        (0.0, "double"),
        ([], "array"),
        ({}, "table"),
        ("", "longstr"),
        (b"x", "longstr"),
    ],
    ids=repr,
)
def test_every_plain_value_has_the_word_rabbitmq_uses_for_its_type(value: object, word: str) -> None:
    assert field_type(value) == word
