"""Schemas as Spark writes them (`device string, place struct<lat: double, lon: double>`), read without a JVM.

Invariants
- What is read here, Spark reads to the same type; what Spark reads and this does not is refused by name.
- Every field may be null, whatever NOT NULL says, as with Spark's from_json.
- `parse_ddl(format_ddl(schema)) == schema`.
"""

from __future__ import annotations

import re
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_millstream.decode.faults import DecodeOptionError, shorten

DEPTH_MAX: Final = 32
FIELDS_MAX: Final = 10_000
TEXT_CHARACTERS_MAX: Final = 1 << 20
DECIMAL_DIGITS_MAX: Final = 38
HINT: Final = 'Write it as Spark does: .option("payloadSchema", "device string, temperature double").'

_PLAIN: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    "tinyint": ByteType(),
    "byte": ByteType(),
    "smallint": ShortType(),
    "short": ShortType(),
    "int": IntegerType(),
    "integer": IntegerType(),
    "bigint": LongType(),
    "long": LongType(),
    "float": FloatType(),
    "real": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ltz": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
}
_PLAIN_KINDS: Final = tuple(type(kind) for kind in _PLAIN.values())
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)*`)|(?P<word>\w+)|(?P<mark>[<>(),:])|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"))"
)


class _Token:
    """A piece of the text; `kind` is the name of its group in the expression, or `end`."""

    def __init__(self, kind: str, text: str, place: int) -> None:
        self.kind = kind
        self.text = text
        self.place = place

    @property
    def lowered(self) -> str:
        return self.text.lower() if self.kind == "word" else ""


def parse_ddl(text: str) -> StructType:
    """The fields of a payload; DecodeOptionError says where the text goes wrong."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise DecodeOptionError(f"payloadSchema has more than {TEXT_CHARACTERS_MAX} characters", HINT)
    parse = _Parse(_tokens(text))
    if parse.ahead(0).lowered == "struct" and parse.ahead(1).text == "<":
        kind = parse.type_of(0)
        assert isinstance(kind, StructType)
    else:
        kind = parse.fields("end", 0)
    parse.expect_end()
    if not kind.fields:
        raise DecodeOptionError("payloadSchema names no field", HINT)
    return kind


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    place = 0
    end = len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            start = place + len(text[place:]) - len(text[place:].lstrip())
            raise _wrong(f"{shorten(text[start:], 20)!r} at character {start + 1} is no part of a schema")
        kind = match.lastgroup
        value = match[kind]
        if kind == "quoted":
            value = value[1:-1].replace("``", "`")
            if not value:
                raise _wrong(f"the name at character {match.start(kind) + 1} is empty")
        tokens.append(_Token(kind, value, match.start(kind)))
        place = match.end()
    tokens.append(_Token("end", "", end))
    return tokens


def _wrong(text: str) -> DecodeOptionError:
    return DecodeOptionError(f"payloadSchema cannot be read: {text}", HINT)


class _Parse:
    """One pass over the tokens of one text."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._field_count = 0

    def ahead(self, distance: int) -> _Token:
        return self._tokens[min(self._next + distance, len(self._tokens) - 1)]

    def expect_end(self) -> None:
        if self.ahead(0).kind != "end":
            raise self._unexpected("the end")

    def fields(self, closing: str, depth: int) -> StructType:
        """Fields up to `closing`, which is left where it is."""
        found: dict[str, StructField] = {}
        while not self._is_at(closing):
            field = self._field(depth)
            if field.name in found:
                raise _wrong(f"the field {field.name!r} is there twice")
            found[field.name] = field
            self._field_count += 1
            if self._field_count > FIELDS_MAX:
                raise _wrong(f"it has more than {FIELDS_MAX} fields")
            if not self._is_at(closing):
                self._expect(",")
                if self._is_at(closing):
                    raise self._unexpected("a field")
        return StructType(list(found.values()))

    def type_of(self, depth: int) -> DataType:
        if depth > DEPTH_MAX:
            raise _wrong(f"types are nested more than {DEPTH_MAX} deep")
        token = self._take()
        name = token.lowered
        if name in _PLAIN:
            return _PLAIN[name]
        match name:
            case "decimal" | "dec" | "numeric":
                return self._decimal(token)
            case "char" | "varchar" | "character":
                self._numbers(token, (1, 1))
                return StringType()
            case "array":
                self._expect("<")
                element = self.type_of(depth + 1)
                self._expect(">")
                return ArrayType(element)
            case "map":
                self._expect("<")
                key = self.type_of(depth + 1)
                self._expect(",")
                value = self.type_of(depth + 1)
                self._expect(">")
                return MapType(key, value)
            case "struct":
                self._expect("<")
                kind = self.fields(">", depth + 1)
                self._expect(">")
                if not kind.fields:
                    raise _wrong(f"the struct at character {token.place + 1} has no fields")
                return kind
        if token.kind == "word":
            raise _wrong(f"there is no type {token.text!r} here (character {token.place + 1})")
        self._next -= 1 if token.kind != "end" else 0
        raise self._unexpected("a type")

    def _field(self, depth: int) -> StructField:
        name = self._take()
        if name.kind not in ("word", "quoted"):
            raise _wrong(f"the name of a field is missing at character {name.place + 1}")
        if self.ahead(0).text == ":" and self.ahead(0).kind == "mark":
            self._take()
        kind = self.type_of(depth)
        if self.ahead(0).lowered == "not" and self.ahead(1).lowered == "null":
            self._next += 2
        if self.ahead(0).lowered == "comment":
            self._take()
            if self._take().kind != "text":
                raise _wrong(f"the comment of {name.text!r} is not in quotes")
        return StructField(name.text, kind)

    def _decimal(self, token: _Token) -> DecimalType:
        if self.ahead(0).text != "(":
            return DecimalType(10, 0)
        numbers = self._numbers(token, (1, 2))
        digits, scale = numbers[0], numbers[1] if len(numbers) == 2 else 0
        if not 1 <= digits <= DECIMAL_DIGITS_MAX or scale > digits:
            raise _wrong(
                f"decimal({digits},{scale}) cannot be: at most {DECIMAL_DIGITS_MAX} digits, and no more behind the point"
            )
        return DecimalType(digits, scale)

    def _numbers(self, token: _Token, counts: tuple[int, int]) -> list[int]:
        self._expect("(")
        numbers: list[int] = []
        while True:
            word = self._take()
            if word.kind != "word" or re.fullmatch(r"[0-9]{1,9}", word.text) is None:
                raise _wrong(f"{token.text}(...) at character {token.place + 1} takes whole numbers")
            numbers.append(int(word.text))
            if not self._is_at(","):
                break
            self._take()
        self._expect(")")
        if not counts[0] <= len(numbers) <= counts[1]:
            raise _wrong(f"{token.text} at character {token.place + 1} has {len(numbers)} numbers")
        return numbers

    def _take(self) -> _Token:
        token = self.ahead(0)
        if token.kind != "end":
            self._next += 1
        return token

    def _is_at(self, mark: str) -> bool:
        token = self.ahead(0)
        return token.kind == "end" if mark == "end" else token.kind == "mark" and token.text == mark

    def _expect(self, mark: str) -> None:
        if not self._is_at(mark):
            raise self._unexpected(f"{mark!r}")
        self._take()

    def _unexpected(self, expected: str) -> DecodeOptionError:
        token = self.ahead(0)
        found = "the text ends" if token.kind == "end" else f"{shorten(token.text, 20)!r} stands"
        return _wrong(f"{found} where {expected} should be (character {token.place + 1})")


def format_ddl(schema: StructType) -> str:
    """The text `parse_ddl` reads to this schema."""
    return ", ".join(f"{_quoted(field.name)} {_type_text(field.dataType)}" for field in schema.fields)


def _type_text(kind: DataType) -> str:
    if isinstance(kind, StructType):
        inner = ", ".join(f"{_quoted(field.name)}: {_type_text(field.dataType)}" for field in kind.fields)
        return f"struct<{inner}>"
    if isinstance(kind, ArrayType):
        return f"array<{_type_text(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{_type_text(kind.keyType)}, {_type_text(kind.valueType)}>"
    if isinstance(kind, DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    if isinstance(kind, _PLAIN_KINDS):
        return kind.simpleString()
    raise _wrong(f"there is no type {kind.simpleString()!r} here")


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else "`" + name.replace("`", "``") + "`"
