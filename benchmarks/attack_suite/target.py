"""What an attacker knows: where to connect to, from which address, and when it has to stop."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import asdict, dataclass
from typing import Final

IP_BIND_ADDRESS_NO_PORT: Final = 24  # of Linux: the port is chosen when the other end is known
TIMEOUT_S: Final = 20.0
ATTACKER_NETWORK: Final = "127.0.66."  # so that a log line with an attacker's address can be told from others
ATTACKER_NAME: Final = "attack-"  # client ids, queues and exchanges of attackers begin with it


@dataclass(frozen=True)
class Target:
    ports: dict[str, int]
    part: int = 0  # of the attackers' processes, this one
    parts: int = 1
    seconds: float = 10.0
    scale: float = 1.0  # of counts; below 1 for a short look
    deadline: float = 0.0  # monotonic

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def started(self) -> Target:
        return Target(**{**asdict(self), "deadline": time.monotonic() + self.seconds})

    def is_over(self) -> bool:
        return time.monotonic() >= self.deadline

    def count(self, number: int) -> int:
        """So many in all, shared between the processes and scaled."""
        return max(1, int(number * self.scale) // self.parts)

    def rest(self, seconds: float) -> None:
        """Wait, but not beyond the end."""
        time.sleep(max(0.0, min(seconds, self.deadline - time.monotonic())))

    @property
    def address(self) -> str:
        return f"{ATTACKER_NETWORK}{self.part + 1}"

    def name(self, number: int | str = "") -> str:
        return f"{ATTACKER_NAME}{self.part}-{number}"

    def connect(self, listener: str = "mqtt", last_byte: int = 0) -> socket.socket:
        """A blocking socket from the attacker's address, or from another one of its network."""
        source = f"{ATTACKER_NETWORK}{last_byte}" if last_byte else self.address
        opened = socket.socket()
        opened.settimeout(TIMEOUT_S)
        opened.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.bind((source, 0))
        try:
            opened.connect(("127.0.0.1", self.ports[listener]))
        except OSError:
            opened.close()
            raise
        return opened
