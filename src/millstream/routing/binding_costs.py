"""What one message may cost to route through the exchanges of an account, whatever they are bound to.

Of all patterns of one shape that have `#` at most at their end, one matches a key: as with filters it is the shapes that
count. After a `#` anywhere else every word may begin anew, so that such a pattern is looked at with each word of a key, and counts
by its words. A binding of a headers exchange is compared with every message, value by value.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.model.errors import Reason, Refused
from millstream.routing.binding import Binding
from millstream.routing.header_match import MATCH
from millstream.routing.pattern_tree import HASH, STAR, has_wild_word
from millstream.routing.shapes import weigh_shape

TOPIC: Final = "topic"
HEADERS: Final = "headers"
WILD: Final = (STAR, HASH)
NAME: Final = b"-"


def find_pattern_shape(pattern: bytes) -> bytes:
    """`a.*.b.#` is `-*-#`; a pattern with words behind `#` has a shape of its own, itself."""
    words = pattern.split(b".")
    if HASH in words[:-1]:
        return pattern
    return b"".join([word if word in WILD else NAME for word in words])


def weigh_pattern(shape: bytes) -> i64:
    if b"." in shape:
        return shape.count(b".") + 1
    return weigh_shape(shape)


def count_conditions(arguments: dict[str, object]) -> i64:
    """Values that a headers binding compares, those inside tables and lists included."""
    count: i64 = 1
    for name, value in arguments.items():
        if name != MATCH:
            count += count_values(value)
    return count


def count_values(value: object) -> i64:
    count: i64 = 1
    if isinstance(value, dict):
        for part in value.values():
            count += count_values(part)
    elif isinstance(value, list):
        for part in value:
            count += count_values(part)
    return count


@final
class BindingCosts:
    def __init__(self) -> None:
        self.patterns: i64 = 0  # weight of the shapes of all patterns
        self.conditions: i64 = 0
        self._shapes: dict[bytes, int] = {}  # and how many patterns have each

    def check_room(
        self, kind: str, key: bytes, arguments: dict[str, object], patterns_max: i64, conditions_max: i64
    ) -> None:
        """Refused when another binding of that kind would make messages too costly to route."""
        if kind == HEADERS:
            if self.conditions + count_conditions(arguments) > conditions_max:
                raise Refused(
                    Reason.QUOTA_EXCEEDED,
                    f"the bindings of headers exchanges would compare more than {conditions_max} values, which "
                    "amqp.max_header_conditions allows an account",
                )
        elif kind == TOPIC and has_wild_word(key):
            shape = find_pattern_shape(key)
            if shape not in self._shapes and self.patterns + weigh_pattern(shape) > patterns_max:
                raise Refused(
                    Reason.QUOTA_EXCEEDED,
                    f"the binding patterns of the account have wildcards in {patterns_max} different ways, as many as "
                    "broker.max_filter_shapes allows",
                )

    def add(self, binding: Binding) -> None:
        kind = binding.source.kind
        if kind == HEADERS:
            self.conditions += count_conditions(binding.arguments)
        elif kind == TOPIC and has_wild_word(binding.key):
            shape = find_pattern_shape(binding.key)
            count = self._shapes.get(shape, 0)
            if count == 0:
                self.patterns += weigh_pattern(shape)
            self._shapes[shape] = count + 1

    def remove(self, binding: Binding) -> None:
        kind = binding.source.kind
        if kind == HEADERS:
            self.conditions -= count_conditions(binding.arguments)
        elif kind == TOPIC and has_wild_word(binding.key):
            shape = find_pattern_shape(binding.key)
            count = self._shapes[shape]
            if count > 1:
                self._shapes[shape] = count - 1
            else:
                del self._shapes[shape]
                self.patterns -= weigh_pattern(shape)
