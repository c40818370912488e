from __future__ import annotations

import pytest

from millstream.protocols.amqp091.json_values import type_name
from millstream.protocols.amqp091.wire.field_table import ByteArray, Decimal091, Timestamp


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (True, "bool"),
        (2**31 - 1, "signedint"),
        (-(2**31), "signedint"),
        (2**31, "long"),
        (-(2**31) - 1, "long"),
        (Timestamp(1), "timestamp"),
        (Decimal091(2, 314), "decimal"),
        (ByteArray(b"x"), "binary"),
        (b"x", "longstr"),
        ({b"a": 1}, "table"),
    ],
)
def test_a_value_off_the_wire_is_named_as_rabbitmq_names_it(value: object, word: str) -> None:
    assert type_name(value) == word
