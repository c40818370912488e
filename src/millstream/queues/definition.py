"""What a queue is: its kind and its policies. Written as JSON, so that a release may add to it."""

from __future__ import annotations

import json
from typing import Final, final

from millstream.model.errors import Reason, Refused
from millstream.model.owner import Owner, read_owner
from millstream.model.queue_topic import DEAD_LETTER_PREFIX as DEAD_LETTER_PREFIX
from millstream.model.topic import find_filter_fault

WORK: Final = "work"
STREAM: Final = "stream"
EPHEMERAL: Final = "ephemeral"
KINDS: Final = (WORK, STREAM, EPHEMERAL)
OVERFLOWS: Final = ("reject", "drop_head", "dead_letter", "reject_dead_letter")
NAME_LENGTH_MAX: Final = 255
BINDINGS_MAX: Final = 1000
ARGUMENTS_LENGTH_MAX: Final = 65_536  # of their text
NUMBER_MAX: Final = 1 << 53  # what JSON carries exactly everywhere

# name of the field, default, smallest and largest value
_NUMBERS: Final[list[tuple[str, int, int, int]]] = [
    ("visibility_ms", 30_000, 100, 7 * 86_400_000),
    ("max_deliveries", 5, 0, 1_000_000),  # 0: as often as it takes
    ("backoff_ms", 100, 0, 86_400_000),
    ("backoff_max_ms", 60_000, 0, 7 * 86_400_000),
    ("prefetch", 100, 1, 65_535),
    ("message_ttl_ms", 0, -1, NUMBER_MAX),  # -1: only for a consumer that is ready for it
    ("length_max", 0, -1, NUMBER_MAX),
    ("bytes_max", 0, -1, NUMBER_MAX),
    ("priority_max", 9, 0, 255),
    ("retention_age_s", 0, 0, NUMBER_MAX),
    ("retention_bytes", 0, 0, NUMBER_MAX),
    ("retention_count", 0, 0, NUMBER_MAX),
    ("expires_ms", 0, 0, NUMBER_MAX),
]
_FLAGS: Final = ("single_active", "auto_delete", "exclusive", "bounds_ready")


@final
class Definition:
    """0 means: no such bound; -1 of a length: nothing may wait. `dead_letter` is a queue; empty: the usual one; `off`:
    rejected ones are dropped.
    Where `dead_letter_exchange` is named, dead letters are published there instead; the empty name is an exchange too.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.bindings: list[str] = []
        self.visibility_ms = 30_000
        self.max_deliveries = 5
        self.backoff_ms = 100
        self.backoff_max_ms = 60_000
        self.prefetch = 100
        self.message_ttl_ms = 0
        self.length_max = 0
        self.bytes_max = 0
        self.overflow = "reject"
        self.dead_letter = ""
        self.priority_max = 9
        self.single_active = False
        self.retention_age_s = 0
        self.retention_bytes = 0
        self.retention_count = 0
        self.bounds_ready = False  # length and bytes count only what waits, and only payloads
        self.auto_delete = kind == EPHEMERAL  # it goes with its last consumer
        self.exclusive = False  # it belongs to one connection and goes with it
        self.expires_ms = 0  # it goes when nobody has used it for so long
        self.dead_letter_exchange: str | None = None
        self.dead_letter_key: str | None = None  # None: letters keep the key they were published with
        self.arguments: dict[str, object] = {}  # as its declarer gave them
        self.owner: Owner | None = None  # who that is; None: the account's own
        self.user = ""  # whom it counts for; empty: the operator

    def to_fields(self) -> dict[str, object]:
        return {
            "kind": self.kind,
            "bindings": list(self.bindings),
            "visibility_ms": self.visibility_ms,
            "max_deliveries": self.max_deliveries,
            "backoff_ms": self.backoff_ms,
            "backoff_max_ms": self.backoff_max_ms,
            "prefetch": self.prefetch,
            "message_ttl_ms": self.message_ttl_ms,
            "length_max": self.length_max,
            "bytes_max": self.bytes_max,
            "overflow": self.overflow,
            "dead_letter": self.dead_letter,
            "priority_max": self.priority_max,
            "single_active": self.single_active,
            "retention_age_s": self.retention_age_s,
            "retention_bytes": self.retention_bytes,
            "retention_count": self.retention_count,
            "bounds_ready": self.bounds_ready,
            "auto_delete": self.auto_delete,
            "exclusive": self.exclusive,
            "expires_ms": self.expires_ms,
            "dead_letter_exchange": self.dead_letter_exchange,
            "dead_letter_key": self.dead_letter_key,
            "arguments": dict(self.arguments),
            "owner": None if self.owner is None else self.owner.to_fields(),
        }

    def owner_of_letters(self) -> Owner | None:
        """By whose right its dead letters are published. None: they are not, or the operator chose the exchange."""
        exchange = self.dead_letter_exchange
        if exchange is None or self.arguments.get("x-dead-letter-exchange") != exchange:
            return None
        return self.owner

    def encode(self) -> bytes:
        return json.dumps(self.to_fields() | {"user": self.user}, separators=(",", ":")).encode()


def decode_definition(body: bytes) -> Definition:
    """What was stored before; fields this release does not know are left out. A client may have had it stored by a release that took
    more: nothing in it keeps the broker from starting because it is too large."""
    fields = json.loads(body)
    known = Definition(WORK).to_fields()
    definition = make_definition({name: value for name, value in fields.items() if name in known}, True)
    definition.user = str(fields.get("user", ""))
    return definition


def make_definition(fields: dict[str, object], is_stored: bool = False) -> Definition:
    """From the outside: every field is checked before it is believed. `is_stored`: what is too large was taken once."""
    kind = fields.get("kind", WORK)
    if kind not in KINDS:
        raise _refuse(f"the kind of a queue is one of {', '.join(KINDS)}, not {kind!r}")
    definition = Definition(str(kind))
    known = definition.to_fields()
    for name in fields:
        if name not in known:
            raise _refuse(f"a queue has no setting {name!r}; it has {', '.join(sorted(known))}")
    for name, _, low, high in _NUMBERS:
        value = fields.get(name)
        if value is None:
            continue
        if is_stored and isinstance(value, int):
            value = min(value, high)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise _refuse(f"{name} must be a whole number from {low} to {high}, not {value!r}")
        setattr(definition, name, value)
    _set_choices(definition, fields, is_stored)
    return definition


def _set_choices(definition: Definition, fields: dict[str, object], is_stored: bool) -> None:
    overflow = fields.get("overflow", definition.overflow)
    if overflow not in OVERFLOWS:
        raise _refuse(f"overflow is one of {', '.join(OVERFLOWS)}, not {overflow!r}")
    definition.overflow = str(overflow)
    for name in _FLAGS:
        flag = fields.get(name)
        if flag is None:
            continue
        if not isinstance(flag, bool):
            raise _refuse(f"{name} must be true or false, not {flag!r}")
        setattr(definition, name, flag)
    dead_letter = fields.get("dead_letter", "")
    if not isinstance(dead_letter, str):
        raise _refuse(f"dead_letter must be the name of a queue, not {dead_letter!r}")
    if dead_letter not in ("", "off"):
        check_name(dead_letter)
    definition.dead_letter = dead_letter
    definition.dead_letter_exchange = _read_short(fields, "dead_letter_exchange", is_stored)
    definition.dead_letter_key = _read_short(fields, "dead_letter_key", is_stored)
    definition.arguments = _read_arguments(fields, is_stored)
    owner = fields.get("owner")
    definition.owner = read_owner(owner)
    if owner is not None and definition.owner is None:
        raise _refuse(f"owner must be an object with user, kind and client, not {owner!r:.100}")
    _set_bindings(definition, fields)


def _read_short(fields: dict[str, object], name: str, is_stored: bool) -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    is_long = isinstance(value, str) and len(value.encode(errors="replace")) > NAME_LENGTH_MAX
    if not isinstance(value, str) or (is_long and not is_stored):
        raise _refuse(f"{name} must be a text of at most {NAME_LENGTH_MAX} bytes, not {value!r:.100}")
    return value


def _read_arguments(fields: dict[str, object], is_stored: bool) -> dict[str, object]:
    value = fields.get("arguments", {})
    if not isinstance(value, dict):
        raise _refuse(f"arguments must be an object, not {value!r:.100}")
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        raise _refuse("arguments must be what JSON can say") from None
    if len(text) > ARGUMENTS_LENGTH_MAX and not is_stored:
        raise _refuse(f"arguments must not be longer than {ARGUMENTS_LENGTH_MAX} characters")
    return {str(name): argument for name, argument in value.items()}


def _set_bindings(definition: Definition, fields: dict[str, object]) -> None:
    bindings = fields.get("bindings", [])
    if not isinstance(bindings, list) or len(bindings) > BINDINGS_MAX:
        raise _refuse(f"bindings must be a list of at most {BINDINGS_MAX} filters")
    for filter in bindings:
        if not isinstance(filter, str):
            raise _refuse(f"a binding must be a filter, not {filter!r}")
        check_binding(filter)
    definition.bindings = [str(filter) for filter in dict.fromkeys(bindings)]


def check_binding(filter: str) -> None:
    fault = find_filter_fault(filter.encode(), 4096, 128)
    if fault is not None:
        raise Refused(Reason.FILTER_INVALID, f"{filter!r} cannot be bound: {fault}")
    if filter.startswith("$"):
        raise Refused(
            Reason.FILTER_INVALID, f"{filter!r} cannot be bound: topics that begin with $ are the broker's"
        )


def check_name(name: str) -> None:
    """Dead-letter queues have `$dlq/` in front. In a topic some characters are written otherwise (see `names`)."""
    bare = name[len(DEAD_LETTER_PREFIX) :] if name.startswith(DEAD_LETTER_PREFIX) else name
    if not bare or len(bare.encode()) > NAME_LENGTH_MAX:
        raise _refuse(f"the name of a queue has 1 to {NAME_LENGTH_MAX} bytes")
    if bare.startswith("$"):
        raise _refuse(f"the name of a queue must not begin with $: {name!r}")
    for character in bare:
        if ord(character) < 32 or ord(character) == 127:
            raise _refuse(f"the name of a queue must not contain control characters: {name!r}")


def dead_letter_name(name: str, definition: Definition) -> str:
    """Where its dead letters go; empty: nowhere, they are dropped and counted."""
    if definition.dead_letter == "off":
        return ""
    if definition.dead_letter:
        return definition.dead_letter
    return "" if name.startswith(DEAD_LETTER_PREFIX) else DEAD_LETTER_PREFIX + name


def _refuse(text: str) -> Refused:
    return Refused(Reason.TOPIC_INVALID, text)
