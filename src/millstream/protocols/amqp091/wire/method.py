"""What all methods share, and the kinds of fields their layouts are written in.

Invariants
- The layout of a method is the only place that says how it stands on the wire: decoder and encoder both follow it.
- `fields()` and the arguments of `__init__` are in the order of the layout, reserved kinds left out.
- Neighbouring bits share a byte, the first in its lowest bit.
"""

from __future__ import annotations

from typing import ClassVar, Final

BIT: Final = 0
OCTET: Final = 1
SHORT: Final = 2
LONG: Final = 3
DELIVERY_TAG: Final = 4  # the only field of eight bytes
SHORT_STRING: Final = 5  # UTF-8
ROUTING_KEY: Final = 6  # a short string of any bytes: RabbitMQ lets publishers write what they like
LONG_STRING: Final = 7  # any bytes
TABLE: Final = 8
# read past, written as 0 or empty: tickets, and what older versions meant by a field
RESERVED_BIT: Final = 9
RESERVED_SHORT: Final = 10
RESERVED_SHORT_STRING: Final = 11
RESERVED_LONG_STRING: Final = 12


class Method:
    """Equal by content, readable in tests and logs."""

    class_id: ClassVar[int] = 0
    method_id: ClassVar[int] = 0
    layout: ClassVar[tuple[int, ...]] = ()

    def fields(self) -> tuple[object, ...]:
        return ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Method) and type(self) is type(other) and self.fields() == other.fields()

    def __repr__(self) -> str:
        return type(self).__name__ + repr(self.fields())
