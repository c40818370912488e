"""The port from a group to one of its members."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from mypy_extensions import i64, mypyc_attr

if TYPE_CHECKING:
    from millstream.queues.pending import Pending


@mypyc_attr(allow_interpreted_subclasses=True)
class Consumer(ABC):
    """`open` counts the deliveries it has not settled; the group keeps it."""

    def __init__(self, name: str, is_explicit: bool) -> None:
        self.name = name  # who may settle what it was handed
        self.is_explicit = is_explicit  # it settles in words; having received it is not enough
        self.open: i64 = 0

    @abstractmethod
    def has_credit(self) -> bool:
        """Whether it can take one more delivery now."""

    @abstractmethod
    def is_present(self) -> bool:
        """Whether it can take deliveries at all, with or without credit now."""

    @abstractmethod
    def deliver(self, pending: Pending) -> None: ...

    @abstractmethod
    def on_removed(self) -> None:
        """The queue is gone."""
