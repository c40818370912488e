"""The port from queues to exchanges: where dead letters are published, and who else must know that a queue is gone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from millstream.model.message import Message
from millstream.model.owner import Owner

if TYPE_CHECKING:
    from millstream.queues.queue import Queue


@mypyc_attr(allow_interpreted_subclasses=True)
class ExchangePort(ABC):
    @abstractmethod
    def post(self, exchange: str, key: bytes, letter: Message, owner: Owner | None, user: str) -> bool:
        """Publish a dead letter by the right of `owner`, None: the account's own; what is made by it counts for `user`. False
        when nobody took it. A queue for which `death.is_cycle` holds must not get it."""

    @abstractmethod
    def on_queue_removed(self, queue: Queue) -> None: ...

    @abstractmethod
    def is_leaving(self, name: str) -> bool:
        """Whether a queue of that name was removed and some of its bindings are left."""

    @abstractmethod
    def finish_leaving(self, name: str) -> None:
        """Remove at once what is left of them: the name is needed for another queue."""
