from __future__ import annotations

import pytest
from fakes import make_message

from millstream.model.message import NANOSECONDS


def test_a_message_without_a_deadline_never_expires() -> None:
    assert not make_message(b"t").is_expired(2**62)


def test_a_message_is_expired_from_its_deadline_on() -> None:
    message = make_message(b"t", expires_ns=1000)
    assert not message.is_expired(999)
    assert message.is_expired(1000)


@pytest.mark.parametrize(
    ("left_ns", "seconds"),
    [(1, 1), (NANOSECONDS, 1), (NANOSECONDS + 1, 2), (10 * NANOSECONDS, 10), (0, 0), (-5, 0)],
)
def test_the_seconds_left_are_rounded_up_so_that_a_live_message_never_says_zero(
    left_ns: int, seconds: int
) -> None:
    now_ns = 50 * NANOSECONDS
    assert make_message(b"t", expires_ns=now_ns + left_ns).remaining_s(now_ns) == seconds


@pytest.mark.parametrize("older_ns", [0, 1, 10 * NANOSECONDS])
def test_the_seconds_left_are_never_more_than_a_packet_can_say(older_ns: int) -> None:
    """The longest expiry a client can ask for, by a clock that is a little older than that of the publish."""
    now_ns = 50 * NANOSECONDS
    message = make_message(b"t", expires_ns=now_ns + 0xFFFF_FFFF * NANOSECONDS)
    assert message.remaining_s(now_ns - older_ns) == 0xFFFF_FFFF


def test_the_size_counts_every_part_and_something_for_the_object() -> None:
    assert make_message(b"abc", bytes(100)).size_bytes() == 3 + 100 + 64
