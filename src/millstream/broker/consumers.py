"""The queues one session consumes, by the filter as its client wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from millstream.broker.group_round import CONSUMERS_FEW, GroupRound, groups_once
from millstream.broker.tasks import TaskQueue
from millstream.broker.window import Window

if TYPE_CHECKING:
    from millstream.broker.queue_consumer import SessionConsumer


@final
class Consumers:
    def __init__(self, tasks: TaskQueue) -> None:
        self.by_name: dict[bytes, SessionConsumer] = {}
        self._round = GroupRound(tasks)

    def take_all(self) -> list[SessionConsumer]:
        """The session has ended: they are to leave their groups."""
        consumers = list(self.by_name.values())
        self.by_name.clear()
        self._round.drop()
        return consumers

    def pump(self) -> None:
        """The session has room: let its groups hand out."""
        if len(self.by_name) > CONSUMERS_FEW:
            if not self._round.goes_on():
                self._round.begin(groups_once([consumer.group for consumer in self.by_name.values()]))
            return
        for consumer in list(self.by_name.values()):
            consumer.group.dispatch()

    def let_go(self, window: Window) -> None:
        """The connection is gone: what it did not settle goes to others."""
        for delivery in window.in_order():
            if delivery.receipt is not None:
                window.remove(delivery)
        for consumer in list(self.by_name.values()):
            consumer.group.take_back(consumer)

    def on_rights_changed(self) -> None:
        for consumer in list(self.by_name.values()):
            consumer.on_rights_changed()
