"""A file of definitions in RabbitMQ's form: what is in it, for which account, and what cannot be taken over.

Whole exports name the virtual host of every item; exports of one virtual host leave it out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from millstream.commands.input_file import read_input
from millstream.commands.outcome import CommandFailed, ExitCode

FILE_SIZE_MAX: Final = 256 * 1024 * 1024
ITEMS_MAX: Final = 500  # in one request
BYTES_MAX: Final = 512 * 1024  # of them, as JSON
HOST: Final = "/"  # the virtual host of the default account
TAKEN: Final = {
    "exchanges": "exchange",
    "queues": "queue",
    "bindings": "binding",
}  # in the order they are needed
# of a cluster alone: they mean nothing elsewhere
_IGNORED: Final = ("internal_cluster_id", "cluster_name", "cluster_tags")
_REASONS: Final = {
    "users": "users are not taken over, and their password hashes never: millstream user add",
    "permissions": "rights are not taken over: write a rule for the user in the acl file",
    "topic_permissions": "rights are not taken over: write a rule for the user in the acl file",
    "policies": "policies stand in the configuration: write it under amqp.policies, with _ for -",
    "operator_policies": "policies stand in the configuration: write it under amqp.policies, with _ for -",
    "parameters": "parameters of plugins have no counterpart",
    "global_parameters": "parameters of plugins have no counterpart",
}


@dataclass
class Left:
    """Something that was not taken over."""

    kind: str
    vhost: str
    name: str
    reason: str

    def to_row(self) -> dict[str, object]:
        return {"kind": self.kind, "vhost": self.vhost, "name": self.name, "reason": self.reason}


@dataclass
class Parsed:
    """Items by kind and virtual host, and what is left before anything was asked."""

    items: dict[tuple[str, str], list[dict[str, object]]] = field(default_factory=dict)
    left: list[Left] = field(default_factory=list)


def read_definitions(file: Path) -> dict[str, object]:
    text = read_input(file, FILE_SIZE_MAX)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CommandFailed(ExitCode.USAGE, f"{file} is not JSON: {error}.", _EXPORT) from None
    if not isinstance(found, dict) or not any(part in found for part in TAKEN):
        raise CommandFailed(ExitCode.USAGE, f"{file} holds no definitions.", _EXPORT)
    return found


_EXPORT: Final = "rabbitmqctl export_definitions FILE"


def parse_definitions(found: dict[str, object], ignored: list[str]) -> Parsed:
    """`ignored`: parts of the file that shall not be told of."""
    parsed = Parsed()
    for part, kind in TAKEN.items():
        for item in _list(found, part):
            vhost = str(item.get("vhost", HOST))
            if part in ignored or _is_implicit(kind, item):
                continue
            parsed.items.setdefault((kind, vhost), []).append(item)
    for part, value in found.items():
        if part in TAKEN or part in ignored or not isinstance(value, list):
            continue
        for item in _list(found, part):
            name = name_of(part, item)
            if part == "vhosts" or (part == "global_parameters" and name in _IGNORED):
                continue
            reason = _REASONS.get(part, "this release knows no such part")
            parsed.left.append(Left(part, str(item.get("vhost", "")), name, reason))
    return parsed


def _is_implicit(kind: str, item: dict[str, object]) -> bool:
    """What is there anyway: predeclared exchanges, and the bindings of the default exchange."""
    if kind == "exchange":
        name = str(item.get("name", ""))
        return not name or name.startswith("amq.")
    return (
        kind == "binding" and item.get("source") == "" and item.get("routing_key") == item.get("destination")
    )


def name_of(kind: str, item: dict[str, object]) -> str:
    if kind == "binding":
        return f"{item.get('source')} -> {item.get('destination')} ({item.get('routing_key', '')})"
    return str(item.get("name", item.get("user", "")))


def _list(found: dict[str, object], part: str) -> list[dict[str, object]]:
    value = found.get(part, [])
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise CommandFailed(ExitCode.USAGE, f"{part} must be a list of objects.", _EXPORT)
    return value


def cut(items: list[dict[str, object]]) -> Iterator[list[dict[str, object]]]:
    """Pieces that one request can hold."""
    piece: list[dict[str, object]] = []
    size = 0
    for item in items:
        item_size = len(json.dumps(item))
        if piece and (len(piece) >= ITEMS_MAX or size + item_size > BYTES_MAX):
            yield piece
            piece, size = [], 0
        piece.append(item)
        size += item_size
    if piece:
        yield piece
