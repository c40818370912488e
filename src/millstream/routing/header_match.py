"""Which headers a binding of a headers exchange asks for.

Values of a binding are plain (text is `str`), those of a message are as its protocol decoded them (text is `bytes`). Numbers
are compared by value, whatever width they were sent in; a number is never equal to a text or a truth value. A value of
None asks only that the header is there.
"""

from __future__ import annotations

from typing import Final, final

from millstream.model.errors import Reason, Refused
from millstream.model.field_type import field_type

MATCH: Final = "x-match"
MATCHES: Final = ("all", "any", "all-with-x", "any-with-x")


@final
class HeaderPattern:
    """`x-match` says whether all or any must agree, and whether headers that begin with `x-` count."""

    def __init__(self, arguments: dict[str, object]) -> None:
        match = arguments.get(MATCH, "all")
        if match not in MATCHES:
            if isinstance(match, str):  # as RabbitMQ says it
                text = (
                    f'Invalid x-match field value <<"{match}">>; expected all, any, all-with-x, or any-with-x'
                )
            else:
                text = f"Invalid x-match field type {_show_type(match)}; expected longstr"
            raise Refused(Reason.PRECONDITION_FAILED, text)
        self.needs_all = match in ("all", "all-with-x")
        with_x = match in ("all-with-x", "any-with-x")
        self._wanted: list[tuple[bytes, object]] = []
        for name, value in arguments.items():
            if name != MATCH and (with_x or not name.startswith("x-")):
                self._wanted.append((name.encode(), encode_text(value)))

    def matches(self, headers: dict[bytes, object], by_text: bool) -> bool:
        """`by_text`: the headers are known only as text, so the values of the binding are compared as such."""
        for name, value in self._wanted:
            is_match = name in headers and (
                value is None
                or is_same(value, headers[name])
                or (by_text and show_text(value) == headers[name])
            )
            if is_match != self.needs_all:
                return is_match
        return self.needs_all


def _show_type(value: object) -> str:
    """The type of a value that is no text, and a scalar itself."""
    kind = field_type(value)
    if kind in ("array", "table"):
        return "array"
    shown = "undefined" if value is None else show_text(value).decode()
    return f"{kind} (value {shown})"


def encode_text(value: object) -> object:
    """As a message would hold it."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list):
        return [encode_text(part) for part in value]
    if isinstance(value, dict):
        return {encode_text(name): encode_text(part) for name, part in value.items()}
    return value


def is_same(one: object, other: object) -> bool:
    if isinstance(other, str):
        other = other.encode()
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list):
        if not isinstance(other, list) or len(one) != len(other):
            return False
        return all([is_same(one[at], other[at]) for at in range(len(one))])
    if isinstance(one, dict):
        if not isinstance(other, dict) or len(one) != len(other):
            return False
        return all([name in other and is_same(value, other[name]) for name, value in one.items()])
    return one == other


def show_text(value: object) -> bytes:
    """A scalar as other protocols see it."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return str(value).encode()
