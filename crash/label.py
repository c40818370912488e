"""Numbered messages: who published it, where to, and as the how-manieth there. The payload says it all."""

from __future__ import annotations

from typing import Final

Label = tuple[str, str, int]  # publisher, topic, number

PADDING_MAX: Final = 400


def encode_label(label: Label) -> bytes:
    """Of changing length, so that records do not all end at the same places of a file."""
    publisher, topic, number = label
    return f"{publisher} {topic} {number} ".encode() + b"." * (number * 37 % PADDING_MAX)


def find_label(payload: bytes) -> Label | None:
    """None when this is not a payload of ours, whole and unchanged."""
    words = payload.split(b" ")
    if len(words) != 4 or not words[2].isdigit():
        return None
    label = (words[0].decode(errors="replace"), words[1].decode(errors="replace"), int(words[2]))
    return label if encode_label(label) == payload else None
