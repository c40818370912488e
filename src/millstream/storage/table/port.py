"""The port of a table of small state, in which checkpoints are kept."""

from __future__ import annotations

from abc import ABC, abstractmethod

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Table(ABC):
    """Ordered keys and values; changes are one atom, made at `commit`."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None: ...

    @abstractmethod
    def put(self, key: bytes, value: bytes) -> None: ...

    @abstractmethod
    def delete(self, key: bytes) -> None: ...

    @abstractmethod
    def items(self, prefix: bytes) -> list[tuple[bytes, bytes]]: ...

    def is_damaged(self, key: bytes) -> bool:
        """Whether an entry is not what was put there, as far as this table can tell."""
        return False

    def find_fault(self) -> str:
        """Why the table as a whole cannot be trusted; empty: it can, as far as it can tell."""
        return ""

    @abstractmethod
    def commit(self) -> None: ...
