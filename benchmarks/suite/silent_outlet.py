"""An outlet that receives nothing: what a router needs to hold a subscription, and no more."""

from __future__ import annotations

from millstream.model.message import Message
from millstream.model.outlet import Outlet, Run, Target


class SilentOutlet(Outlet):
    def deliver(self, message: Message, target: Target) -> None:
        raise NotImplementedError("the router benchmark delivers nothing")

    def deliver_run(self, run: Run, target: Target) -> None:
        raise NotImplementedError("the router benchmark delivers nothing")

    def is_present(self) -> bool:
        return True

    def may_receive(self, topic: bytes) -> bool:
        return True
