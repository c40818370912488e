"""Arguments of queue.declare: what they mean, which are refused and how, and when two declarations are the same.

The sentences are those of RabbitMQ 3.10.8, as it gave them.
"""

from __future__ import annotations

import pytest

from millstream.model.errors import Reason, Refused
from millstream.protocols.amqp091.queue_arguments import (
    check_arguments,
    check_equivalent,
    check_properties,
    find_age_s,
    make_definition,
)
from millstream.protocols.amqp091.wire.field_table import ByteArray, Decimal091, FieldTable, Timestamp
from millstream.queues.definition import EPHEMERAL, NUMBER_MAX, STREAM, WORK, Definition, decode_definition

PLACE = "queue 'q' in vhost '/'"
QUORUM: FieldTable = {b"x-queue-type": b"quorum"}
STREAMS: FieldTable = {b"x-queue-type": b"stream"}


def refusal(arguments: FieldTable) -> str:
    with pytest.raises(Refused) as caught:
        check_arguments(arguments, PLACE)
    assert caught.value.reason is Reason.PRECONDITION_FAILED
    return caught.value.text


def define(**arguments: object) -> Definition:
    table: FieldTable = {name.replace("_", "-").encode(): value for name, value in arguments.items()}
    check_arguments(table, PLACE)
    return make_definition(table, True, False, False)


INVALID = f"invalid arg '{{}}' for {PLACE}: "


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("x-message-ttl", b"abc", '"expected integer, got longstr"'),
        ("x-message-ttl", True, '"expected integer, got bool"'),
        ("x-message-ttl", {}, '"expected integer, got table"'),
        ("x-message-ttl", None, '"expected integer, got void"'),
        ("x-message-ttl", 1.5, '"expected integer, got double"'),
        ("x-message-ttl", [], '"expected integer, got array"'),
        ("x-message-ttl", Timestamp(5), '"expected integer, got timestamp"'),
        ("x-message-ttl", Decimal091(1, 5), '"expected integer, got decimal"'),
        ("x-message-ttl", ByteArray(b"5"), '"expected integer, got binary"'),
        ("x-message-ttl", -1, "{value_negative,-1}"),
        ("x-message-ttl", 2**40, "{value_too_large,1099511627776}"),
        ("x-expires", 0, "{value_zero,0}"),
        ("x-expires", 315_360_000_001, "{value_too_large,315360000001}"),
        ("x-max-length", -1, "{value_negative,-1}"),
        ("x-max-length-bytes", b"1", '"expected integer, got longstr"'),
        ("x-max-priority", 256, "{max_value_exceeded,256}"),
        ("x-overflow", b"abc", "invalid_overflow"),
        ("x-overflow", 3, "{unacceptable_type,signedint}"),
        ("x-overflow", 2**40, "{unacceptable_type,long}"),
        ("x-single-active-consumer", 1, "{unacceptable_type,signedint}"),
        ("x-dead-letter-routing-key", b"k", "routing_key_but_no_dlx_defined"),
        ("x-dead-letter-routing-key", 1, "{unacceptable_type,signedint}"),
        ("x-queue-mode", b"abc", "\"unsupported queue mode 'abc'\""),
        ("x-queue-version", 3, "\"unsupported queue version '3'\""),
        ("x-queue-type", b"abc", "\"unsupported queue type 'abc'\""),
        ("x-queue-type", 5, "{unacceptable_type,signedint}"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_in_the_words_of_rabbitmq(
    name: str, value: object, fault: str
) -> None:
    assert refusal({name.encode(): value}) == INVALID.format(name) + fault


def test_an_exchange_for_dead_letters_is_a_name() -> None:
    arguments: FieldTable = {b"x-dead-letter-exchange": 5}
    assert refusal(arguments) == f"invalid type 'signedint' for arg 'x-dead-letter-exchange' in {PLACE}"


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (b"classic", "x-delivery-limit", 3),
        (b"classic", "x-max-age", b"1D"),
        (b"classic", "x-initial-cluster-size", 1),
        (b"quorum", "x-max-priority", 5),
        (b"quorum", "x-queue-mode", b"lazy"),
        (b"quorum", "x-max-age", b"1D"),
        (b"stream", "x-message-ttl", 5),
        (b"stream", "x-max-length", 5),
        (b"stream", "x-dead-letter-exchange", b"dlx"),
        (b"stream", "x-single-active-consumer", True),
    ],
)
def test_an_argument_of_another_type_of_queue_is_refused(kind: bytes, name: str, value: object) -> None:
    text = refusal({b"x-queue-type": kind, name.encode(): value})
    assert text == f"invalid arg '{name}' for {PLACE} of queue type rabbit_{kind.decode()}_queue"


@pytest.mark.parametrize(
    ("table", "durable", "exclusive", "auto_delete", "fault"),
    [
        (QUORUM, False, False, False, "non-durable"),
        (QUORUM, True, True, False, "exclusive-owner"),
        (QUORUM, True, False, True, "auto-delete"),
        (STREAMS, False, False, False, "non-durable"),
        (STREAMS, True, True, False, "exclusive-owner"),
    ],
)
def test_quorum_queues_and_streams_last_and_belong_to_nobody(
    table: FieldTable, durable: bool, exclusive: bool, auto_delete: bool, fault: str
) -> None:
    with pytest.raises(Refused) as caught:
        check_properties(table, durable, exclusive, auto_delete, PLACE)
    assert caught.value.text == f"invalid property '{fault}' for {PLACE}"
    check_properties({}, durable, exclusive, auto_delete, PLACE)


def test_what_nobody_knows_is_kept_and_means_nothing() -> None:
    definition = define(x_unknown={b"a": [1, b"text"]}, x_queue_mode=b"lazy", x_queue_version=2)
    assert definition.arguments == {
        "x-unknown": {"a": [1, "text"]},
        "x-queue-mode": "lazy",
        "x-queue-version": 2,
    }
    plain = define()
    definition.arguments = {}
    assert definition.to_fields() == plain.to_fields()


def test_a_queue_without_arguments_keeps_everything_and_gives_it_out_for_ever() -> None:
    definition = define()
    assert (definition.kind, definition.overflow, definition.dead_letter) == (WORK, "drop_head", "off")
    assert (definition.max_deliveries, definition.backoff_ms, definition.priority_max) == (0, 0, 0)
    assert (definition.length_max, definition.bytes_max, definition.message_ttl_ms) == (0, 0, 0)
    assert definition.bounds_ready


def test_arguments_become_policies() -> None:
    definition = define(
        x_message_ttl=5000,
        x_expires=60_000,
        x_max_length=10,
        x_max_length_bytes=4096,
        x_overflow=b"reject-publish",
        x_dead_letter_exchange=b"dlx",
        x_dead_letter_routing_key=b"dead",
        x_max_priority=7,
        x_single_active_consumer=True,
    )
    assert (definition.message_ttl_ms, definition.expires_ms) == (5000, 60_000)
    assert (definition.length_max, definition.bytes_max, definition.overflow) == (10, 4096, "reject")
    assert (definition.dead_letter_exchange, definition.dead_letter_key) == ("dlx", "dead")
    assert (definition.priority_max, definition.single_active) == (7, True)
    assert define(x_overflow=b"reject-publish-dlx").overflow == "reject_dead_letter"
    assert define(x_dead_letter_exchange=b"").dead_letter_exchange == ""


def test_the_tightest_bounds_are_bounds() -> None:
    assert define(x_message_ttl=0).message_ttl_ms == -1
    assert (define(x_max_length=0).length_max, define(x_max_length_bytes=0).bytes_max) == (-1, -1)


def test_a_delivery_limit_counts_how_often_it_may_come_back() -> None:
    for limit, deliveries in ((3, 4), (0, 1), (-1, 0), (10**12, 1_000_000)):
        assert define(x_queue_type=b"quorum", x_delivery_limit=limit).max_deliveries == deliveries


def test_a_stream_is_bounded_by_age_and_bytes() -> None:
    definition = define(
        x_queue_type=b"stream",
        x_max_age=b"7D",
        x_max_length_bytes=10**9,
        x_stream_max_segment_size_bytes=10**6,
    )
    assert (definition.kind, definition.retention_age_s, definition.retention_bytes) == (
        STREAM,
        604_800,
        10**9,
    )
    assert (definition.bytes_max, definition.length_max) == (0, 0)


def test_the_kind_follows_from_how_long_it_lasts() -> None:
    kinds = [make_definition({}, *flags).kind for flags in ((False, False, False), (True, True, False))]
    assert kinds == [EPHEMERAL, EPHEMERAL]
    assert make_definition({}, True, False, True).auto_delete
    assert not make_definition({}, False, False, False).auto_delete
    assert make_definition({}, True, True, False).exclusive


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1Y", 31_536_000), ("1M", 2_592_000), ("2D", 172_800), ("3h", 10_800), ("4m", 240), ("5s", 5)]
    + [(text, -1) for text in ("", "h", "1", "1.5h", "-1s", "1w", " 1s", "٣s", "1234567890s")],
)
def test_an_age_is_a_number_and_a_unit(text: str, seconds: int) -> None:
    assert find_age_s(text) == seconds


# ----------------------------------------------------------------- equivalence


def inequivalence(first: FieldTable, second: FieldTable) -> str:
    definition = make_definition(first, True, False, False)
    try:
        check_equivalent(definition, second, PLACE)
    except Refused as refused:
        assert refused.reason is Reason.PRECONDITION_FAILED
        return refused.text.removeprefix("inequivalent arg ").replace(f" for {PLACE}: received", "")
    return ""


def test_the_same_arguments_are_the_same_and_so_is_a_classic_queue_by_name_or_without() -> None:
    ttl: FieldTable = {b"x-message-ttl": 100, b"x-overflow": b"drop-head"}
    assert inequivalence(ttl, dict(reversed(ttl.items()))) == ""
    assert inequivalence({}, {b"x-queue-type": b"classic"}) == ""
    assert inequivalence({b"x-queue-type": b"classic"}, {}) == ""
    assert inequivalence({b"x-foo": 1}, {b"x-foo": 2}) == ""


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ({b"x-message-ttl": 100}, {b"x-message-ttl": 200}, "'x-message-ttl' '200' but current is '100'"),
        ({b"x-message-ttl": 100}, {b"x-message-ttl": b"a"}, "'x-message-ttl' 'a' but current is '100'"),
        (
            {b"x-message-ttl": 100},
            {},
            "'x-message-ttl' none but current is the value '100' of type 'signedint'",
        ),
        (
            {},
            {b"x-message-ttl": 2**33},
            "'x-message-ttl' the value '8589934592' of type 'long' but current is none",
        ),
        (
            {b"x-single-active-consumer": True},
            {},
            "'x-single-active-consumer' none but current is the value 'true' of type 'bool'",
        ),
        (QUORUM, {}, "'x-queue-type' none but current is the value 'quorum' of type 'longstr'"),
        (QUORUM, {b"x-queue-type": b"classic"}, "'x-queue-type' 'classic' but current is 'quorum'"),
        ({b"x-max-priority": 1}, {b"x-max-priority": True}, "'x-max-priority' 'true' but current is '1'"),
        ({b"x-max-length": 1}, {b"x-max-length": 1.0}, "'x-max-length' '1.0' but current is '1'"),
    ],
)
def test_different_arguments_are_told_with_both_values(
    first: FieldTable, second: FieldTable, text: str
) -> None:
    assert inequivalence(first, second) == text


def test_a_stream_that_was_not_made_by_amqp_is_a_stream_all_the_same() -> None:
    check_equivalent(Definition(STREAM), STREAMS, PLACE)
    check_equivalent(Definition(WORK), {}, PLACE)
    with pytest.raises(Refused, match="current is 'stream'"):
        check_equivalent(Definition(STREAM), {b"x-queue-type": b"classic"}, PLACE)
    with pytest.raises(Refused, match="received none but current is the value 'stream'"):
        check_equivalent(Definition(STREAM), {}, PLACE)


# --------------------------------------------------------- what a start believes


@pytest.mark.parametrize("name", ["x-max-length", "x-max-length-bytes"])
def test_a_queue_whose_bound_is_larger_than_any_is_there_after_a_restart(name: str) -> None:
    definition = define(**{name: 2**63 - 1})
    assert max(definition.length_max, definition.bytes_max) == NUMBER_MAX
    assert decode_definition(definition.encode()).to_fields() == definition.to_fields()


def test_a_stream_that_keeps_everything_for_longer_than_any_time_is_there_after_a_restart() -> None:
    table: FieldTable = {**STREAMS, b"x-max-age": b"999999999Y", b"x-max-length-bytes": 2**62}
    check_arguments(table, PLACE)
    definition = make_definition(table, True, False, False)
    assert (definition.retention_age_s, definition.retention_bytes) == (NUMBER_MAX, NUMBER_MAX)
    assert decode_definition(definition.encode()).to_fields() == definition.to_fields()


def test_arguments_that_a_start_would_not_believe_are_refused() -> None:
    assert refusal({b"x-note": b"y" * 70_000}).endswith("are longer than 65536 characters")
    assert "longer than 255 bytes" in refusal({b"x-dead-letter-exchange": b"\xff" * 255})
