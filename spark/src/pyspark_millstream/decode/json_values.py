"""Parsed JSON to the values of a schema, one row at a time: for the rows the columnar way does not take.

It takes all that the columnar way takes, with the same result, and more: a number, truth value or object in a string
field becomes its text (as in Spark), maps and base64 in binary fields are read, and of a repeated name the last counts.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final

import pyarrow as pa

from pyspark_millstream.decode.arrays import DAY_US, DAYS_MAX, DAYS_MIN
from pyspark_millstream.decode.faults import RowError, shorten
from pyspark_millstream.decode.json_wide import EXACT_MAX

Convert = Callable[[object], object]

WHOLE_DIGITS_MAX: Final = 300  # longer ones may be beyond doubles

_TOO_FINE: Final = re.compile(r"([.][0-9]{6})[0-9]+")  # Spark's times have microseconds
# Neither a very long number nor a far exponent fits any decimal of Spark's.
_DECIMAL: Final = re.compile(r"[+-]?(?=[.]?[0-9])[0-9]{0,99}(?:[.][0-9]{0,99})?(?:[eE][+-]?[0-9]{1,5})?")
_KINDS: Final = ((bool, "a truth value"), (str, "a text"), (dict, "an object"), (list, "an array"))


class Real(float):
    """A number with a point or an exponent, and how it was written."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def parse_object(payload: bytes) -> dict[str, object]:
    """The object a payload holds; RowError says why it holds none."""
    if not payload:
        raise RowError("the payload is empty")
    try:
        found = json.loads(payload.decode("utf-8-sig"), parse_float=_real, parse_int=_whole)
    except UnicodeDecodeError as fault:
        raise RowError(f"not UTF-8 at byte {fault.start}") from None
    except json.JSONDecodeError as fault:
        raise RowError(f"not JSON: {fault.msg} at character {fault.pos}") from None
    except RecursionError:
        raise RowError("not JSON: nested too deep") from None
    if not isinstance(found, dict):
        raise RowError(f"not a JSON object but {_kind_name(found)}")
    return found


def _real(text: str) -> Real:
    number = Real(text)
    if math.isinf(number):
        raise RowError(f"not JSON: the number {shorten(text)} is too big")
    return number


def _whole(text: str) -> int | Real:
    return int(text) if len(text) <= WHOLE_DIGITS_MAX else Real(text)


def _kind_name(value: object) -> str:
    if value is None:
        return "null"
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "a number")


def make_converter(target: pa.DataType) -> Convert:
    """A function that gives what `pa.array` takes for the type, or raises RowError with the path to what is wrong."""
    return _converter(target, "")


def _converter(target: pa.DataType, path: str) -> Convert:
    if pa.types.is_struct(target):
        return _struct_converter(target, path)
    if pa.types.is_list(target):
        return _list_converter(_converter(target.value_type, f"{path}[]"), path)
    if pa.types.is_map(target):
        return _map_converter(_converter(target.item_type, f"{path}{{}}"), path)
    return _leaf_converter(target, path)


def _struct_converter(target: pa.StructType, path: str) -> Convert:
    prefix = f"{path}." if path else ""
    fields = [(field.name, _converter(field.type, prefix + field.name)) for field in target]

    def convert(value: object) -> object:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise _unfit(path, value, "object")
        return {name: inner(value.get(name)) for name, inner in fields}

    return convert


def _list_converter(inner: Convert, path: str) -> Convert:
    def convert(value: object) -> object:
        if value is None:
            return None
        if not isinstance(value, list):
            raise _unfit(path, value, "array")
        return [inner(item) for item in value]

    return convert


def _map_converter(inner: Convert, path: str) -> Convert:
    def convert(value: object) -> object:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise _unfit(path, value, "object")
        return [(_text(key, path), inner(item)) for key, item in value.items()]

    return convert


def _leaf_converter(target: pa.DataType, path: str) -> Convert:
    read = _leaf_reader(target, path)

    def convert(value: object) -> object:
        if value is None:
            return None
        try:
            return read(value)
        except RowError:
            raise
        except (ValueError, TypeError, ArithmeticError, RecursionError):
            raise _unfit(path, value, _spark_name(target)) from None

    return convert


def _leaf_reader(target: pa.DataType, path: str) -> Convert:
    if pa.types.is_string(target):
        return lambda value: _text(value if isinstance(value, str) else _as_text(value), path)
    if pa.types.is_boolean(target):
        return _read_boolean
    if pa.types.is_integer(target):
        limit = 1 << (target.bit_width - 1)
        return lambda value: _read_integer(value, limit)
    if pa.types.is_floating(target):
        return _read_real
    if pa.types.is_decimal(target):
        return lambda value: _read_decimal(value, target)
    if pa.types.is_date(target):
        return _read_date
    if pa.types.is_timestamp(target):
        return _read_timestamp
    assert pa.types.is_binary(target), target
    return _read_binary


def _need_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _text(value: str, path: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RowError(f"{path}: the text has half of a surrogate pair") from None
    return value


def _as_text(value: object) -> str:
    if isinstance(value, Real):
        return value.text
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _read_boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _read_integer(value: object, limit: int) -> int:
    if isinstance(value, Real) and value.is_integer() and -EXACT_MAX <= value < EXACT_MAX:
        value = int(value)  # 21.0 and 1e3 are whole
    if type(value) is not int or not -limit <= value < limit:
        raise TypeError
    return value


def _read_real(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return float(value)


def _read_decimal(value: object, target: pa.Decimal128Type) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Real | str):
        raise TypeError
    match = _DECIMAL.fullmatch(value.text if isinstance(value, Real) else str(value))
    if match is None:
        raise TypeError
    sign, digits, exponent = Decimal(match[0]).as_tuple()
    assert isinstance(exponent, int)  # no NaN, no infinity
    while exponent < -target.scale and digits[-1] == 0 and len(digits) > 1:
        digits, exponent = digits[:-1], exponent + 1
    if not any(digits):
        return Decimal(0)
    if exponent < -target.scale or len(digits) + exponent > target.precision - target.scale:
        raise OverflowError
    return Decimal((sign, digits, exponent))


def _read_date(value: object) -> int:
    """Days since 1970."""
    found = pa.scalar(_need_text(value)).cast(pa.date32()).value
    assert isinstance(found, int)
    if not DAYS_MIN <= found <= DAYS_MAX:
        raise OverflowError
    return found


def _read_timestamp(value: object) -> int:
    """Microseconds since 1970; a time without a zone is UTC."""
    text = _TOO_FINE.sub(r"\1", _need_text(value))
    try:
        moment = pa.scalar(text).cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:
        moment = pa.scalar(text).cast(pa.timestamp("us"))
    found = moment.value
    assert isinstance(found, int)
    if not DAYS_MIN <= found // DAY_US <= DAYS_MAX:
        raise OverflowError
    return found


def _read_binary(value: object) -> bytes:
    try:
        return base64.b64decode(_need_text(value), validate=True)
    except binascii.Error:
        raise TypeError from None


def _unfit(path: str, value: object, expected: str) -> RowError:
    try:
        shown = shorten(_as_text(value))
    except (ValueError, RecursionError):
        shown = _kind_name(value)
    return RowError(f"{path}: {shown} is no {expected}")


def _spark_name(target: pa.DataType) -> str:
    names = {
        "int8": "tinyint",
        "int16": "smallint",
        "int32": "int",
        "int64": "bigint",
        "float": "float",
        "double": "double",
        "bool": "boolean",
        "string": "string",
        "binary": "base64 text",
        "date32[day]": "date (such as 2026-11-15)",
        "timestamp[us, tz=UTC]": "timestamp (such as 2026-11-15T10:00:00Z)",
        "timestamp[us]": "timestamp (such as 2026-11-15T10:00:00)",
    }
    if pa.types.is_decimal(target):
        return f"decimal({target.precision},{target.scale})"
    return names[str(target)]
