"""Definitions: what a queue may be told to be."""

from __future__ import annotations

import json

import pytest

from millstream.model.errors import Reason, Refused
from millstream.queues.definition import (
    BINDINGS_MAX,
    NUMBER_MAX,
    Definition,
    dead_letter_name,
    decode_definition,
    make_definition,
)

FIELDS: dict[str, object] = {
    "kind": "stream",
    "bindings": ["a/#", "b"],
    "visibility_ms": 1000,
    "max_deliveries": 0,
    "backoff_ms": 0,
    "backoff_max_ms": 7,
    "prefetch": 1,
    "message_ttl_ms": 5,
    "length_max": 6,
    "bytes_max": 7,
    "overflow": "drop_head",
    "dead_letter": "off",
    "priority_max": 0,
    "single_active": True,
    "retention_age_s": 1,
    "retention_bytes": 2,
    "retention_count": 3,
    "bounds_ready": True,
    "auto_delete": True,
    "exclusive": True,
    "expires_ms": 9,
    "dead_letter_exchange": "",
    "dead_letter_key": "k.é",
    "arguments": {"x-max-length": 6, "nested": [1, {"a": None}]},
    "owner": {"user": "é", "kind": "user", "client": "amqp-1"},
}


def test_every_field_is_taken_and_comes_back_from_the_store() -> None:
    definition = make_definition(FIELDS)
    assert definition.to_fields() == FIELDS
    assert decode_definition(definition.encode()).to_fields() == FIELDS


def test_without_words_it_is_a_work_queue_with_the_defaults() -> None:
    assert make_definition({}).to_fields() == Definition("work").to_fields()


def test_what_a_later_release_wrote_is_left_out() -> None:
    body = json.dumps({"kind": "stream", "colour": "red"}).encode()
    assert decode_definition(body).kind == "stream"


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("kind", "heap", "work, stream, ephemeral"),
        ("kind", None, "work, stream, ephemeral"),
        ("visibility_ms", 99, "from 100 to"),
        ("visibility_ms", 7 * 86_400_000 + 1, "from 100 to"),
        ("prefetch", 0, "from 1 to 65535"),
        ("prefetch", True, "whole number"),
        ("length_max", -2, "from -1 to"),
        ("length_max", "5", "whole number"),
        ("length_max", 1.5, "whole number"),
        ("priority_max", 256, "from 0 to 255"),
        ("overflow", "explode", "reject, drop_head, dead_letter"),
        ("single_active", 1, "true or false"),
        ("dead_letter", 5, "name of a queue"),
        ("dead_letter", "a\nb", "must not contain"),
        ("dead_letter", "n" * 256, "1 to 255 bytes"),
        ("auto_delete", 0, "true or false"),
        ("exclusive", "yes", "true or false"),
        ("expires_ms", -1, "from 0 to"),
        ("dead_letter_exchange", 5, "at most 255 bytes"),
        ("dead_letter_key", "é" * 128, "at most 255 bytes"),
        ("arguments", [], "must be an object"),
        ("owner", {"user": "alice"}, "user, kind and client"),
        ("arguments", {"a": b"bytes"}, "JSON"),
        ("arguments", {"a": "x" * 65_536}, "longer than"),
        ("bindings", "a", "list"),
        ("bindings", ["a"] * (BINDINGS_MAX + 1), "at most"),
        ("bindings", [5], "must be a filter"),
        ("bindings", ["a/#/b"], "cannot be bound"),
        ("bindings", ["$SYS/#"], "the broker's"),
        ("colour", "red", "has no setting 'colour'"),
    ],
)
def test_anything_else_is_refused_with_a_sentence(field: str, value: object, text: str) -> None:
    with pytest.raises(Refused, match=text) as caught:
        make_definition({field: value})
    assert caught.value.reason in (Reason.TOPIC_INVALID, Reason.FILTER_INVALID)


def test_only_an_ephemeral_queue_goes_with_its_last_consumer_unasked() -> None:
    assert make_definition({"kind": "ephemeral"}).auto_delete
    assert not make_definition({"kind": "ephemeral", "auto_delete": False}).auto_delete
    assert not make_definition({"kind": "work"}).auto_delete


def test_a_definition_of_an_earlier_release_has_the_defaults_for_what_is_new() -> None:
    body = json.dumps({"kind": "ephemeral", "length_max": 5}).encode()
    assert (
        decode_definition(body).to_fields()
        == make_definition({"kind": "ephemeral", "length_max": 5}).to_fields()
    )


def test_a_filter_named_twice_counts_once() -> None:
    assert make_definition({"bindings": ["a", "a"]}).bindings == ["a"]


def test_where_dead_letters_go() -> None:
    definition = Definition("work")
    assert dead_letter_name("q", definition) == "$dlq/q"
    assert dead_letter_name("$dlq/q", definition) == ""
    definition.dead_letter = "other"
    assert dead_letter_name("$dlq/q", definition) == "other"
    definition.dead_letter = "off"
    assert dead_letter_name("q", definition) == ""


def test_what_a_release_without_bounds_stored_does_not_keep_the_broker_from_starting() -> None:
    fields = {
        **FIELDS,
        "length_max": 1 << 60,
        "dead_letter_exchange": "x" * 340,
        "arguments": {"x-note": "y" * 70_000},
    }
    definition = decode_definition(json.dumps(fields).encode())
    assert definition.length_max == NUMBER_MAX
    assert definition.dead_letter_exchange == "x" * 340
    assert definition.arguments == fields["arguments"]
    assert decode_definition(definition.encode()).to_fields() == definition.to_fields()
    for name in ("length_max", "dead_letter_exchange", "arguments"):
        with pytest.raises(Refused):
            make_definition({name: fields[name]})
