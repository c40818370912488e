"""RabbitMQ's words for the types of values in a field table: its refusals name them, and clients read those."""

from __future__ import annotations


def field_type(value: object) -> str:
    """Of a plain value; whether text is `str` or `bytes`, and how wide a number was on the wire, makes no difference."""
    if value is None:
        return "void"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "signedint"
    if isinstance(value, float):
        return "double"
    if isinstance(value, list):
        return "array"
    return "table" if isinstance(value, dict) else "longstr"
