"""What the `x-` arguments of queue.declare mean, and whether two declarations of one name say the same.

RabbitMQ decides which arguments a type of queue takes, which values they have and in which words they are refused; names
that it does not know are kept and mean nothing.
"""

from __future__ import annotations

import json
from typing import Final

from millstream.model.errors import Reason, Refused
from millstream.protocols.amqp091.json_values import plain_arguments, plain_value, text_of, type_name
from millstream.protocols.amqp091.wire.field_table import FieldTable
from millstream.queues.definition import (
    ARGUMENTS_LENGTH_MAX,
    EPHEMERAL,
    NUMBER_MAX,
    STREAM,
    WORK,
    Definition,
)

CLASSIC: Final = "classic"
QUORUM: Final = "quorum"
TYPES: Final = (CLASSIC, QUORUM, STREAM)

DURATION_MS_MAX: Final = 315_360_000_000  # ten years
PRIORITY_MAX: Final = 255
DELIVERY_LIMIT_MAX: Final = 999_999
AGE_UNITS_S: Final[dict[str, int]] = {
    "Y": 31_536_000,
    "M": 2_592_000,
    "D": 86_400,
    "h": 3600,
    "m": 60,
    "s": 1,
}
OVERFLOWS: Final[dict[str, str]] = {
    "drop-head": "drop_head",
    "reject-publish": "reject",
    "reject-publish-dlx": "reject_dead_letter",
}

# what must be the same when a queue is declared again, in the order in which RabbitMQ looks at it; whatever else stands
# there may change
_KNOWN: Final[dict[str, tuple[str, ...]]] = {
    CLASSIC: (
        "x-expires",
        "x-message-ttl",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-max-length",
        "x-max-length-bytes",
        "x-max-priority",
        "x-overflow",
        "x-queue-mode",
        "x-queue-version",
        "x-single-active-consumer",
        "x-queue-type",
        "x-queue-master-locator",
    ),
    QUORUM: (
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-dead-letter-strategy",
        "x-expires",
        "x-max-length",
        "x-max-length-bytes",
        "x-max-in-memory-length",
        "x-max-in-memory-bytes",
        "x-overflow",
        "x-single-active-consumer",
        "x-queue-type",
        "x-quorum-initial-group-size",
        "x-delivery-limit",
        "x-message-ttl",
        "x-queue-leader-locator",
    ),
    STREAM: (
        "x-max-length-bytes",
        "x-queue-type",
        "x-max-age",
        "x-stream-max-segment-size-bytes",
        "x-initial-cluster-size",
        "x-queue-leader-locator",
    ),
}
_OF_CONSUMERS: Final[dict[bytes, tuple[str, ...]]] = {
    b"x-priority": (CLASSIC, QUORUM),
    b"x-cancel-on-ha-failover": (CLASSIC,),
    b"x-stream-offset": (STREAM,),
}
_KNOWN_TO_ANY: Final = frozenset([name for names in _KNOWN.values() for name in names])

# whole numbers, with the largest; what follows a 0 where it is refused
_NUMBERS: Final[dict[str, int]] = {
    "x-message-ttl": DURATION_MS_MAX,
    "x-expires": DURATION_MS_MAX,
    "x-max-length": 0,
    "x-max-length-bytes": 0,
    "x-max-in-memory-length": 0,
    "x-max-in-memory-bytes": 0,
    "x-max-priority": 0,
    "x-quorum-initial-group-size": 0,
    "x-initial-cluster-size": 0,
    "x-stream-max-segment-size-bytes": 0,
    "x-queue-version": 0,
}
_NEVER_ZERO: Final = ("x-expires", "x-quorum-initial-group-size", "x-initial-cluster-size")
# texts of which only some are taken, and what is said about the others; {} stands for the value
_CHOICES: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "x-overflow": (tuple(OVERFLOWS), "invalid_overflow"),
    "x-queue-mode": (("default", "lazy"), "\"unsupported queue mode '{}'\""),
    "x-queue-type": (TYPES, "\"unsupported queue type '{}'\""),
    "x-dead-letter-strategy": (("at-most-once", "at-least-once"), "invalid_dlx_strategy"),
    "x-queue-leader-locator": (
        ("client-local", "balanced", "least-leaders", "random"),
        "invalid_queue_locator_arg",
    ),
    "x-queue-master-locator": (
        ("client-local", "min-masters", "random"),
        "\"unsupported queue master locator '{}'\"",
    ),
}


def type_of(arguments: FieldTable) -> str:
    """classic, quorum or stream; what is not one of them is found by `check_arguments`."""
    value = arguments.get(b"x-queue-type")
    return value.decode(errors="replace") if isinstance(value, bytes) else CLASSIC


def check_arguments(arguments: FieldTable, place: str) -> None:
    """`place` is what is declared, in words: queue 'q' in vhost '/'."""
    kind = arguments.get(b"x-queue-type")
    if kind is not None or b"x-queue-type" in arguments:
        _check(arguments, "x-queue-type", kind, place)
    taken = _KNOWN[type_of(arguments)]
    for key, value in arguments.items():
        name = key.decode(errors="replace")
        if name == "x-dead-letter-exchange" and name in taken and not isinstance(value, bytes):
            raise _refuse(f"invalid type '{type_name(value)}' for arg '{name}' in {place}")
        if name in _KNOWN_TO_ANY and name not in taken:
            raise _refuse(f"invalid arg '{name}' for {place} of queue type rabbit_{type_of(arguments)}_queue")
    for name in taken:
        if name.encode() in arguments:
            _check(arguments, name, arguments[name.encode()], place)
    if arguments and len(json.dumps(plain_arguments(arguments))) > ARGUMENTS_LENGTH_MAX:
        raise _refuse(f"the arguments of {place} are longer than {ARGUMENTS_LENGTH_MAX} characters")


def check_properties(
    arguments: FieldTable, durable: bool, exclusive: bool, auto_delete: bool, place: str
) -> None:
    """Quorum queues and streams last, and belong to nobody."""
    if type_of(arguments) == CLASSIC:
        return
    fault = ""
    if auto_delete:
        fault = "auto-delete"
    elif exclusive:
        fault = "exclusive-owner"
    elif not durable:
        fault = "non-durable"
    if fault:
        raise _refuse(f"invalid property '{fault}' for {place}")


def _check(arguments: FieldTable, name: str, value: object, place: str) -> None:
    fault = _find_fault(arguments, name, value)
    if fault:
        raise _refuse(f"invalid arg '{name}' for {place}: {fault}")


def _find_fault(arguments: FieldTable, name: str, value: object) -> str:
    """In RabbitMQ's words, which are Erlang's."""
    if name in _NUMBERS:
        return _find_number_fault(name, value)
    if name == "x-delivery-limit":  # below 0: none
        return "" if _is_whole(value) else f'"expected integer, got {type_name(value)}"'
    unacceptable = f"{{unacceptable_type,{type_name(value)}}}"
    if name == "x-single-active-consumer":
        return "" if isinstance(value, bool) else unacceptable
    if not isinstance(value, bytes):
        return unacceptable
    text = value.decode(errors="replace")
    if name in _CHOICES:
        choices, fault = _CHOICES[name]
        return "" if text in choices else fault.format(text)
    if name == "x-dead-letter-routing-key" and b"x-dead-letter-exchange" not in arguments:
        return "routing_key_but_no_dlx_defined"
    if name == "x-max-age" and find_age_s(text) < 0:
        return "invalid_max_age"
    if name in ("x-dead-letter-exchange", "x-dead-letter-routing-key") and len(text_of(value)) > 255:
        return '"longer than 255 bytes"'
    return ""


def _find_number_fault(name: str, value: object) -> str:
    if not isinstance(value, int) or isinstance(value, bool):
        return f'"expected integer, got {type_name(value)}"'
    if value < 0:
        return f"{{value_negative,{value}}}"
    if value == 0 and name in _NEVER_ZERO:
        return "{value_zero,0}"
    largest = _NUMBERS[name]
    if largest and value > largest:
        return f"{{value_too_large,{value}}}"
    if name == "x-max-priority" and value > PRIORITY_MAX:
        return f"{{max_value_exceeded,{value}}}"
    if name == "x-queue-version" and value not in (1, 2):
        return f"\"unsupported queue version '{value}'\""
    return ""


def read_priority(arguments: FieldTable, definition: Definition, place: str) -> int:
    """Of a consumer, whose arguments are checked: those that RabbitMQ knows are for some types of queues only."""
    kind = _type_word(definition)
    for name, kinds in _OF_CONSUMERS.items():
        if name in arguments and kind not in kinds:
            shown = name.decode()
            raise _refuse(f"invalid arg '{shown}' for {place} of queue type rabbit_{kind}_queue")
    cancels = arguments.get(b"x-cancel-on-ha-failover", False)
    if not isinstance(cancels, bool):
        fault = f"{{unacceptable_type,{type_name(cancels)}}}"
        raise _refuse(f"invalid arg 'x-cancel-on-ha-failover' for {place}: {fault}")
    value = arguments.get(b"x-priority", 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _refuse(f"invalid arg 'x-priority' for {place}: \"expected integer, got {type_name(value)}\"")
    return max(-(2**31), min(2**31, value))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def find_age_s(text: str) -> int:
    """Seconds of `7D`: a number and one of Y M D h m s; -1 when it is none."""
    digits = text[:-1]
    unit = AGE_UNITS_S.get(text[-1:], 0)
    if not unit or not digits.isdecimal() or not digits.isascii() or len(digits) > 9:
        return -1
    return int(digits) * unit


# ------------------------------------------------------------------ definition


def make_definition(arguments: FieldTable, durable: bool, exclusive: bool, auto_delete: bool) -> Definition:
    """From arguments that were checked."""
    kind = EPHEMERAL
    if type_of(arguments) == STREAM:
        kind = STREAM
    elif durable and not exclusive:
        kind = WORK
    definition = Definition(kind)
    definition.auto_delete = auto_delete
    definition.exclusive = exclusive
    definition.backoff_ms = 0
    definition.backoff_max_ms = 0
    definition.dead_letter = "off"
    definition.bounds_ready = True
    definition.arguments = plain_arguments(arguments)
    apply(definition, definition.arguments)
    return definition


def apply(definition: Definition, arguments: dict[str, object]) -> None:
    """Put what the arguments say into the fields that the queue works with."""
    ttl = arguments.get("x-message-ttl")
    # 0: only a consumer that is ready for it gets it; not to be there at all is something else
    definition.message_ttl_ms = -1 if ttl == 0 and ttl is not False else _number(ttl)
    definition.expires_ms = _number(arguments.get("x-expires"))
    definition.overflow = OVERFLOWS.get(str(arguments.get("x-overflow")), "drop_head")
    definition.priority_max = _number(arguments.get("x-max-priority"))
    definition.single_active = arguments.get("x-single-active-consumer") is True
    definition.dead_letter_exchange = _text(arguments.get("x-dead-letter-exchange"))
    definition.dead_letter_key = _text(arguments.get("x-dead-letter-routing-key"))
    limit = arguments.get("x-delivery-limit")
    # it may come back so often: it is handed out once more than that
    is_limited = isinstance(limit, int) and limit >= 0
    definition.max_deliveries = min(_number(limit), DELIVERY_LIMIT_MAX) + 1 if is_limited else 0
    bytes_max = to_bound(arguments.get("x-max-length-bytes"))
    if definition.kind == STREAM:
        definition.retention_bytes = abs(bytes_max)
        definition.retention_age_s = min(NUMBER_MAX, max(0, find_age_s(str(arguments.get("x-max-age")))))
    else:
        definition.length_max = to_bound(arguments.get("x-max-length"))
        definition.bytes_max = bytes_max


def keep_known(definition: Definition, arguments: dict[str, object]) -> dict[str, object]:
    """Those of the arguments that a queue of this type takes."""
    known = _KNOWN[_type_word(definition)]
    return {name: value for name, value in arguments.items() if name in known}


def _type_word(definition: Definition) -> str:
    kind = STREAM if definition.kind == STREAM else str(definition.arguments.get("x-queue-type", CLASSIC))
    return kind if kind in _KNOWN else CLASSIC


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def to_bound(value: object) -> int:
    """0 is no bound in a definition, while in an argument it is the tightest, which is -1 there: nothing may wait. More than a
    definition can say is as good as the most it can."""
    return min(NUMBER_MAX, value) or -1 if isinstance(value, int) and not isinstance(value, bool) else 0


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


# ----------------------------------------------------------------- equivalence


def check_equivalent(definition: Definition, arguments: FieldTable, place: str) -> None:
    """Whether a queue that is there was declared with the same arguments."""
    current = dict(definition.arguments)
    if definition.kind == STREAM:  # also one that another protocol made
        current["x-queue-type"] = STREAM
    for name in _KNOWN[_type_word(definition)]:
        key = name.encode()
        has_new, has_old = key in arguments, name in current
        new = plain_value(arguments[key]) if has_new else None
        old = current[name] if has_old else None
        if name == "x-queue-type" and (new or CLASSIC) == (old or CLASSIC):
            continue
        if has_new == has_old and type(new) is type(old) and new == old:
            continue
        if has_new and has_old:
            received, present = f"'{show(new)}'", f"'{show(old)}'"
        else:
            received = _describe(new) if has_new else "none"
            present = _describe(old) if has_old else "none"
        raise refuse_inequivalent(name, place, received, present)


def check_flag(name: str, received: bool, current: bool, place: str) -> None:
    if received != current:
        raise refuse_inequivalent(name, place, f"'{show(received)}'", f"'{show(current)}'")


def refuse_inequivalent(name: str, place: str, received: str, current: str) -> Refused:
    return _refuse(f"inequivalent arg '{name}' for {place}: received {received} but current is {current}")


def _describe(value: object) -> str:
    return f"the value '{show(value)}' of type '{type_name(value)}'"


def show(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _refuse(text: str) -> Refused:
    return Refused(Reason.PRECONDITION_FAILED, text)
