"""What may be declared as an exchange, and when two declarations are the same. The sentences are RabbitMQ's: clients read them."""

from __future__ import annotations

from typing import Final

from millstream.model.errors import Reason, Refused
from millstream.model.field_type import field_type
from millstream.routing.exchange import Exchange

NAME_SIZE_MAX: Final = 255  # of names and keys: AMQP's short strings
RESERVED: Final = "amq."
ALTERNATE: Final = "alternate-exchange"
HOST: Final = "vhost '/'"  # every account is the host `/` of its own clients


def check_not_default(name: str) -> None:
    if not name:
        raise Refused(Reason.NOT_AUTHORIZED, "operation not permitted on the default exchange")


def refuse_leaving(kind: str, name: str) -> Refused:
    text = f"{kind} '{name}' in {HOST} was just deleted, and its bindings are still being removed; try again"
    return Refused(Reason.UNAVAILABLE, text)


def refuse_reserved(name: str) -> Refused:
    return Refused(Reason.NOT_AUTHORIZED, f"exchange name '{name}' contains reserved prefix 'amq.*'")


def check_name(name: str) -> None:
    if len(name.encode()) > NAME_SIZE_MAX:
        text = f"the name of an exchange has at most {NAME_SIZE_MAX} bytes"
        raise Refused(Reason.PRECONDITION_FAILED, text)
    for character in name:
        if ord(character) < 32 or ord(character) == 127:
            text = f"the name of an exchange must not contain control characters: {name!r}"
            raise Refused(Reason.PRECONDITION_FAILED, text)


def check_alternate(exchange: Exchange) -> None:
    alternate = exchange.arguments.get(ALTERNATE)
    if alternate is not None and not isinstance(alternate, str):
        text = f"invalid type '{field_type(alternate)}' for arg '{ALTERNATE}' in exchange '{exchange.name}' in {HOST}"
        raise Refused(Reason.PRECONDITION_FAILED, text)


def check_equivalent(current: Exchange, wanted: Exchange) -> None:
    """As strict as RabbitMQ: of the arguments only the alternate exchange is compared."""
    for word, is_same, received, had in (
        ("type", current.kind == wanted.kind, f"'{wanted.kind}'", f"'{current.kind}'"),
        ("durable", current.durable == wanted.durable, show(wanted.durable), show(current.durable)),
        (
            "auto_delete",
            current.auto_delete == wanted.auto_delete,
            show(wanted.auto_delete),
            show(current.auto_delete),
        ),
        ("internal", current.internal == wanted.internal, show(wanted.internal), show(current.internal)),
        (
            ALTERNATE,
            current.arguments.get(ALTERNATE) == wanted.arguments.get(ALTERNATE),
            show_argument(wanted, current),
            show_argument(current, wanted),
        ),
    ):
        if not is_same:
            text = (
                f"inequivalent arg '{word}' for exchange '{current.name}' in {HOST}: "
                f"received {received} but current is {had}"
            )
            raise Refused(Reason.PRECONDITION_FAILED, text)


def show(value: bool) -> str:
    return "'true'" if value else "'false'"


def show_argument(exchange: Exchange, other: Exchange) -> str:
    """Its name alone where there are two to compare."""
    value = exchange.arguments.get(ALTERNATE)
    if value is None:
        return "none"
    if other.arguments.get(ALTERNATE) is not None:
        return f"'{value}'"
    return f"the value '{value}' of type '{field_type(value)}'"
