"""How a broker tells who attacked it: log lines that name attackers, and counters in `$SYS` that moved."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass, field
from typing import Final

from benchmarks.attack_suite.broker import PASSWORD, USER
from benchmarks.attack_suite.mqtt import MqttClient
from benchmarks.attack_suite.target import ATTACKER_NAME, ATTACKER_NETWORK
from benchmarks.load.frames import SUBACK, decode_publication

LINES_KEPT: Final = 3
COLLECT_S: Final = 1.5  # a little more than the interval in which the topics are refreshed
# what ordinary traffic moves as well
ORDINARY: Final = (
    "version",
    "uptime",
    "clients/",
    "messages/received",
    "messages/sent",
    "messages/stored",
    "messages/queued",
    "messages/dropped/no_receiver",
    "publish/",
    "bytes/",
    "subscriptions/",
    "retained messages/",
    "memory/",
    "load/",
)


@dataclass
class Evidence:
    lines: list[str] = field(default_factory=list)
    events: dict[str, int] = field(default_factory=dict)
    counters: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)  # lines that tell of a fault of the broker itself

    def read_log(self, lines: list[str], prepared: int = 0) -> None:
        """The first `prepared` lines are older than the attack: they name nobody, unless they tell of a condition that still
        held when it began. A fault counts whenever it was."""
        open_conditions: dict[str, str] = {}  # the line that told of each
        for number, line in enumerate(lines):
            event, condition = read_event(line)
            if event == "connection_failed" or "Traceback" in line:
                self.failures.append(line[:400])
            if number >= prepared:
                self._note(event, line)
            elif event == "condition_began":
                open_conditions[condition] = line
            elif event == "condition_ended":
                open_conditions.pop(condition, None)
        for line in open_conditions.values():
            self._note("condition_began", line)

    def _note(self, event: str, line: str) -> None:
        if ATTACKER_NETWORK in line or ATTACKER_NAME in line:
            if event not in self.events and len(self.lines) < LINES_KEPT:
                self.lines.append(line[:400])
            self.events[event] = self.events.get(event, 0) + 1

    def compare(self, before: dict[str, str], after: dict[str, str]) -> None:
        for topic, value in after.items():
            if not topic.startswith(ORDINARY) and before.get(topic, "0") != value:
                self.counters[topic] = value


def read_event(line: str) -> tuple[str, str]:
    """Its event, and the condition it is about, if any."""
    try:
        fields = json.loads(line)
        return str(fields.get("event", "")), str(fields.get("condition", ""))
    except (ValueError, AttributeError):
        return line[:40], ""


def read_counters(port: int, has_users: bool) -> dict[str, str]:
    """What stands below `$SYS/broker/` now."""
    found: dict[str, str] = {}
    connection = socket.create_connection(("127.0.0.1", port), 10)
    client = MqttClient(connection)
    client.open(
        "witness-counters",
        user=USER if has_users else None,
        password=PASSWORD.encode() if has_users else None,
    )
    client.subscribe(b"$SYS/#")
    client.expect(SUBACK)
    connection.settimeout(COLLECT_S)
    try:
        while True:
            packet = client.receive()
            if packet.first_byte & 0xF0 == 0x30:
                publication = decode_publication(packet, 5)
                found[publication.topic.decode().removeprefix("$SYS/broker/")] = publication.payload.decode(
                    errors="replace"
                )
                if publication.topic.endswith(b"/uptime") and not packet.first_byte & 1:
                    break  # a fresh round is here
    except TimeoutError:
        pass  # nothing more comes
    client.close()
    return found
