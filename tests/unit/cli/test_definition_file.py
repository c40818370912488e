"""A file of definitions is read as RabbitMQ writes it: what is taken, what is left and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.commands.definition_file import (
    BYTES_MAX,
    ITEMS_MAX,
    cut,
    parse_definitions,
    read_definitions,
)
from millstream.commands.outcome import CommandFailed

WHOLE: dict[str, object] = {
    "rabbit_version": "3.10.8",
    "vhosts": [{"name": "/"}, {"name": "factory"}],
    "users": [{"name": "ann", "password_hash": "secret", "tags": []}],
    "permissions": [{"user": "ann", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
    "policies": [{"vhost": "/", "name": "ttl", "pattern": ".*", "definition": {}}],
    "global_parameters": [{"name": "internal_cluster_id", "value": "x"}, {"name": "other", "value": 1}],
    "exchanges": [{"name": "x", "vhost": "factory", "type": "topic"}, {"name": "amq.direct", "vhost": "/"}],
    "queues": [{"name": "q", "vhost": "/"}, {"name": "q", "vhost": "factory"}],
    "bindings": [
        {"source": "", "vhost": "/", "destination": "q", "routing_key": "q"},
        {"source": "x", "vhost": "factory", "destination": "q", "routing_key": "k"},
    ],
}


def test_items_are_sorted_by_kind_and_virtual_host() -> None:
    parsed = parse_definitions(WHOLE, [])
    assert {place: len(items) for place, items in parsed.items.items()} == {
        ("exchange", "factory"): 1,
        ("queue", "/"): 1,
        ("queue", "factory"): 1,
        ("binding", "factory"): 1,
    }


def test_what_cannot_be_taken_over_is_named_one_by_one_and_no_hash_is_shown() -> None:
    left = parse_definitions(WHOLE, []).left
    assert [(one.kind, one.name) for one in left] == [
        ("users", "ann"),
        ("permissions", "ann"),
        ("policies", "ttl"),
        ("global_parameters", "other"),
    ]
    assert "secret" not in str([one.to_row() for one in left])


def test_parts_that_shall_be_ignored_are_not_told() -> None:
    left = parse_definitions(WHOLE, ["users", "permissions", "policies", "global_parameters"]).left
    assert left == []


def test_an_export_of_one_virtual_host_names_none() -> None:
    parsed = parse_definitions({"queues": [{"name": "q"}]}, [])
    assert list(parsed.items) == [("queue", "/")]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "nonsense", '{"queues": 5}', '{"queues": [5]}', "[" * 100_000]
)
def test_what_is_no_file_of_definitions_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    file = tmp_path / "definitions.json"
    file.write_text(text)
    with pytest.raises(CommandFailed):
        parse_definitions(read_definitions(file), [])
    with pytest.raises(CommandFailed, match="cannot be read"):
        read_definitions(tmp_path / "absent.json")


def test_pieces_hold_no_more_than_a_request_can() -> None:
    small: list[dict[str, object]] = [{"name": str(number)} for number in range(3 * ITEMS_MAX + 1)]
    pieces = list(cut(small))
    assert [len(piece) for piece in pieces] == [ITEMS_MAX, ITEMS_MAX, ITEMS_MAX, 1]
    assert [item for piece in pieces for item in piece] == small
    large: list[dict[str, object]] = [{"name": "x" * (BYTES_MAX // 2)} for _ in range(4)]
    assert [len(piece) for piece in cut(large)] == [1, 1, 1, 1]
