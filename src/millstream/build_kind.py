"""Which build is running: compiled by mypyc or plain Python. Both have the same source and the same behaviour.

The answer is read off the module that stands for the whole compiled set: they are compiled together or not at all.
"""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import Final

WITNESS: Final = "millstream.model.topic"


def is_compiled() -> bool:
    """True if the core runs as machine code, False if it is interpreted."""
    spec = find_spec(WITNESS)
    origin = "" if spec is None or spec.origin is None else spec.origin
    return origin.endswith(tuple(EXTENSION_SUFFIXES))


def build_name() -> str:
    """`compiled` or `interpreted`, as it is told at start and in `--version`."""
    return "compiled" if is_compiled() else "interpreted"
