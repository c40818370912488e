"""A transport without a socket, an asker without threads, and the gate they pass."""

from __future__ import annotations

import asyncio

from fakes import ManualWakeup, MqttWorld

from millstream.model.limits import Limits
from millstream.runtime.loop.clock import LoopClock
from millstream.runtime.transport.deadlines import Deadlines
from millstream.runtime.transport.gate import Asker, Gate
from millstream.runtime.transport.link import TransportLink
from millstream.security.authentication import Credentials
from millstream.security.users import UserTable


class FakeTransport(asyncio.Transport):
    def __init__(self, address: str = "192.0.2.1", certificate: dict[str, object] | None = None) -> None:
        super().__init__({"peername": (address, 4711), "peercert": certificate})
        self.data = b""
        self.is_reading_now = True
        self.is_aborted = False
        self.is_closing_now = False
        self.has_written_eof = False
        self.unsent = 0
        self.limits: tuple[int | None, int | None] = (None, None)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.data += bytes(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        assert not self.has_written_eof, "ended twice"
        self.has_written_eof = True

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits = (high, low)

    def pause_reading(self) -> None:
        assert self.is_reading_now, "paused twice"
        self.is_reading_now = False

    def resume_reading(self) -> None:
        assert not self.is_reading_now, "resumed twice"
        self.is_reading_now = True

    def is_closing(self) -> bool:
        return self.is_closing_now or self.is_aborted

    def close(self) -> None:
        self.is_closing_now = True

    def abort(self) -> None:
        self.is_aborted = True

    def take(self) -> bytes:
        data = self.data
        self.data = b""
        return data


class FakeAsker(Asker):
    def __init__(self) -> None:
        self.asked: list[Credentials] = []
        self.delays: list[int] = []
        self.forgotten: list[TransportLink] = []

    def ask(self, credentials: Credentials, connection: TransportLink) -> None:
        self.asked.append(credentials)

    def forget(self, connection: TransportLink) -> None:
        self.forgotten.append(connection)

    def later(self, delay_ns: int, connection: TransportLink) -> None:
        self.delays.append(int(delay_ns))


class GateWorld(MqttWorld):
    def __init__(self, limits: Limits | None = None, users: UserTable | None = None) -> None:
        super().__init__(limits, users=users)
        self.deadlines = Deadlines()
        self.asker = FakeAsker()
        self.clock = LoopClock(ManualWakeup())
        self.gate = Gate(self.context, self.deadlines, self.asker, self.limits, self.clock)

    def settle_down(self) -> None:
        while True:
            is_more = self.gate.intake.work_off()
            super().settle_down()
            self.clock.forget()
            if not is_more:
                break
