"""What one protocol carries for itself at the head of a block."""

from __future__ import annotations

import pytest

from millstream.model.native_properties import (
    PIECE_MAX,
    canonical_part,
    carried_end,
    encode_native_properties,
    find_address,
    has_carried,
    native_part,
    with_address,
    wrap_carried,
)
from millstream.queues.publish_options import encode_user_property, read_publish_options, read_user_properties

VIEW = encode_user_property(b"name", b"value")
SIZES = (1, 2, PIECE_MAX - 1, PIECE_MAX, PIECE_MAX + 1, 2 * PIECE_MAX, 2 * PIECE_MAX + 7)


@pytest.mark.parametrize("size", SIZES)
def test_what_was_carried_comes_out_whole_whatever_its_size(size: int) -> None:
    carried = bytes(at & 0xFF for at in range(size))
    block = wrap_carried(carried) + VIEW
    assert has_carried(block)
    assert native_part(block) == carried
    assert canonical_part(block) == VIEW
    assert carried_end(block) == len(block) - len(VIEW)


@pytest.mark.parametrize("block", [b"", VIEW])
def test_a_block_without_a_carried_piece_is_all_canonical(block: bytes) -> None:
    assert not has_carried(block)
    assert canonical_part(block) is block
    assert native_part(block) == b""
    assert find_address(block) is None


def test_user_properties_are_read_behind_what_is_carried() -> None:
    block = wrap_carried(b"\x26\x00\x01a\x00\x01b" * 20_000) + VIEW
    assert read_user_properties(block) == [(b"name", b"value")]


def test_directions_are_not_looked_for_inside_what_is_carried() -> None:
    inside = encode_user_property(b"priority", b"7")
    assert read_publish_options(wrap_carried(inside)) is None
    found = read_publish_options(wrap_carried(inside) + encode_user_property(b"priority", b"3"))
    assert found is not None
    assert found.priority == 3


def test_a_new_address_keeps_the_properties_and_the_canonical_part() -> None:
    for properties in (b"\x10\x00\x02", b"\x20\x00" + b"h" * PIECE_MAX):
        block = encode_native_properties(b"orders", b"new", properties, VIEW)
        assert find_address(block) == (b"orders", b"new")
        moved = with_address(block, b"", b"a-much-longer-key")
        assert find_address(moved) == (b"", b"a-much-longer-key")
        assert canonical_part(moved) == VIEW
        assert native_part(moved).endswith(b"a-much-longer-key" + properties)


def test_a_message_of_another_protocol_can_get_an_address_too() -> None:
    once = with_address(VIEW, b"dead", b"letters")
    again = with_address(once, b"dead", b"again")
    assert find_address(once) == (b"dead", b"letters")
    assert find_address(again) == (b"dead", b"again")
    assert canonical_part(again) == VIEW


def test_the_key_of_a_long_topic_is_cut_at_a_character() -> None:
    address = find_address(with_address(b"", b"", b"x" + "é".encode() * 200))
    assert address == (b"", b"x" + "é".encode() * 127)
