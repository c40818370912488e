"""What a queue is: its kind and its policies. Written as JSON, so that a release may add to it."""

from __future__ import annotations

import json
from typing import Final, final

from millstream.model.errors import Reason, Refused
from millstream.model.topic import find_filter_fault

WORK: Final = "work"
STREAM: Final = "stream"
EPHEMERAL: Final = "ephemeral"
KINDS: Final = (WORK, STREAM, EPHEMERAL)
OVERFLOWS: Final = ("reject", "drop_head", "dead_letter")
DEAD_LETTER_PREFIX: Final = "$dlq/"
NAME_LENGTH_MAX: Final = 200
BINDINGS_MAX: Final = 1000
NUMBER_MAX: Final = 1 << 53  # what JSON carries exactly everywhere

# name of the field, default, smallest and largest value
_NUMBERS: Final[list[tuple[str, int, int, int]]] = [
    ("visibility_ms", 30_000, 100, 7 * 86_400_000),
    ("max_deliveries", 5, 0, 1_000_000),  # 0: as often as it takes
    ("backoff_ms", 100, 0, 86_400_000),
    ("backoff_max_ms", 60_000, 0, 7 * 86_400_000),
    ("prefetch", 100, 1, 65_535),
    ("message_ttl_ms", 0, 0, NUMBER_MAX),
    ("length_max", 0, 0, NUMBER_MAX),
    ("bytes_max", 0, 0, NUMBER_MAX),
    ("priority_max", 9, 0, 255),
    ("retention_age_s", 0, 0, NUMBER_MAX),
    ("retention_bytes", 0, 0, NUMBER_MAX),
    ("retention_count", 0, 0, NUMBER_MAX),
]


@final
class Definition:
    """0 means: no such bound. `dead_letter` is a queue; empty: the usual one; `off`: rejected ones are dropped."""

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
        }

    def encode(self) -> bytes:
        return json.dumps(self.to_fields(), separators=(",", ":")).encode()


def decode_definition(body: bytes) -> Definition:
    """What was stored before; fields this release does not know are left out."""
    fields = json.loads(body)
    known = Definition(WORK).to_fields()
    return make_definition({name: value for name, value in fields.items() if name in known})


def make_definition(fields: dict[str, object]) -> Definition:
    """From the outside: every field is checked before it is believed."""
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
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise _refuse(f"{name} must be a whole number from {low} to {high}, not {value!r}")
        setattr(definition, name, value)
    _set_choices(definition, fields)
    return definition


def _set_choices(definition: Definition, fields: dict[str, object]) -> None:
    overflow = fields.get("overflow", definition.overflow)
    if overflow not in OVERFLOWS:
        raise _refuse(f"overflow is one of {', '.join(OVERFLOWS)}, not {overflow!r}")
    definition.overflow = str(overflow)
    active = fields.get("single_active", False)
    if not isinstance(active, bool):
        raise _refuse(f"single_active must be true or false, not {active!r}")
    definition.single_active = active
    dead_letter = fields.get("dead_letter", "")
    if not isinstance(dead_letter, str):
        raise _refuse(f"dead_letter must be the name of a queue, not {dead_letter!r}")
    if dead_letter not in ("", "off"):
        check_name(dead_letter)
    definition.dead_letter = dead_letter
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
    """One level of a topic; dead-letter queues have `$dlq/` in front."""
    bare = name[len(DEAD_LETTER_PREFIX) :] if name.startswith(DEAD_LETTER_PREFIX) else name
    if not bare or len(bare.encode()) > NAME_LENGTH_MAX:
        raise _refuse(f"the name of a queue has 1 to {NAME_LENGTH_MAX} bytes")
    if bare.startswith("$"):
        raise _refuse(f"the name of a queue must not begin with $: {name!r}")
    for character in bare:
        if character in "/+#" or ord(character) < 32 or ord(character) == 127:
            raise _refuse(f"the name of a queue must not contain /, +, # or control characters: {name!r}")


def dead_letter_name(name: str, definition: Definition) -> str:
    """Where its dead letters go; empty: nowhere, they are dropped and counted."""
    if definition.dead_letter == "off":
        return ""
    if definition.dead_letter:
        return definition.dead_letter
    return "" if name.startswith(DEAD_LETTER_PREFIX) else DEAD_LETTER_PREFIX + name


def _refuse(text: str) -> Refused:
    return Refused(Reason.TOPIC_INVALID, text)
