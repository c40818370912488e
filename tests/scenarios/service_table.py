"""What clients get while the broker cannot do all of its work, and which fault leads there: decided here once.

The fault matrix compares it with real brokers, and docs/operations.md shows it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from millstream.broker.conditions import CONDITIONS, SEVERITY_NAMES

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
BY_ITSELF = "by itself"
BY_RESTART = "by a restart"


@dataclass(frozen=True)
class Service:
    """One state of the broker, by the name of its condition. Each answer is what a client of that kind sees."""

    mqtt5_waiting: str  # it had published before the state was known, and waits for its confirm
    mqtt5: str  # it publishes QoS 1 now
    mqtt5_qos2: str
    mqtt3_waiting: str
    mqtt3: str
    amqp_waiting: str
    amqp: str
    amqp_plain: str  # without confirms
    commit: str
    declare: str  # a durable queue
    blocked: str
    connect: str
    live: str  # QoS 0 between clients that are there
    queue: str  # a consumer of a queue, what was stored before
    ends: str


REFUSING = Service(
    mqtt5_waiting="DISCONNECT 0x89",
    mqtt5="PUBACK 0x97",
    mqtt5_qos2="PUBREC 0x97",
    mqtt3_waiting="closed",
    mqtt3="closed",
    amqp_waiting="basic.nack",
    amqp="basic.nack",
    amqp_plain="not read",
    commit="channel closed, 506",
    declare="channel closed, 506",
    blocked="connection.blocked",
    connect="accepted",
    live="delivered",
    queue="delivered",
    ends=BY_ITSELF,
)
FAILED = Service(**{**vars(REFUSING), "ends": BY_RESTART})
NO_DESCRIPTORS = Service(
    mqtt5_waiting="PUBACK 0x00",
    mqtt5="PUBACK 0x00",
    mqtt5_qos2="PUBREC 0x00",
    mqtt3_waiting="PUBACK",
    mqtt3="PUBACK",
    amqp_waiting="basic.ack",
    amqp="basic.ack",
    amqp_plain="read",
    commit="tx.commit-ok",
    declare="queue.declare-ok",
    blocked="-",
    connect="wait",
    live="delivered",
    queue="delivered",
    ends=BY_ITSELF,
)

STATES = {
    "storage_full": REFUSING,
    "storage_stalled": REFUSING,
    "log_not_writable": REFUSING,
    "storage_failed": FAILED,
    "descriptors_exhausted": NO_DESCRIPTORS,
}

COLUMNS = {
    "mqtt5_waiting": "MQTT 5, waits for PUBACK",
    "mqtt5": "MQTT 5, publishes QoS 1",
    "mqtt5_qos2": "MQTT 5, publishes QoS 2",
    "mqtt3_waiting": "3.1.1, waits for PUBACK",
    "mqtt3": "3.1.1, publishes QoS 1",
    "amqp_waiting": "AMQP, waits for its confirm",
    "amqp": "AMQP, publishes with confirms",
    "amqp_plain": "AMQP, publishes without confirms",
    "commit": "AMQP, tx.commit",
    "declare": "AMQP, declares a durable queue",
    "blocked": "AMQP, told",
    "connect": "new connections",
    "live": "QoS 0 between clients",
    "queue": "consumers of queues",
    "ends": "ends",
}


@dataclass(frozen=True)
class Fault:
    """What can happen to a broker: the conditions it leads to, a word of their cause, and what a start does meanwhile."""

    text: str
    conditions: tuple[str, ...]
    cause: str
    start: str  # "serves": and the condition begins with the first publish; "waits"; "exit 2"
    stop: int = 1  # exit code on SIGTERM while changes wait to be written

    @property
    def service(self) -> Service:
        """What clients get: where two conditions hold at once, the worse answer."""
        services = [STATES[name] for name in self.conditions]
        values = {field.name: getattr(services[0], field.name) for field in fields(Service)}
        for other in services[1:]:
            for name in values:
                if name in ("connect", "ends") and getattr(other, name) not in ("accepted", BY_ITSELF):
                    values[name] = getattr(other, name)
        return Service(**values)


FAULTS = {
    "ENOSPC": Fault("no room on the file system", ("storage_full",), "No space left", "serves"),
    "EIO": Fault("a sync that fails", ("storage_failed",), "Input/output error", "exit 1"),
    "EROFS": Fault("the file system becomes read-only", ("log_not_writable",), "Read-only", "exit 2"),
    "EMFILE": Fault(
        "no file descriptor left",
        ("log_not_writable", "descriptors_exhausted"),
        "Too many open files",
        "exit 2",
    ),
    "stall": Fault("a disk that does not answer", ("storage_stalled",), "no answer of the disk", "waits"),
    "read-only folder": Fault(
        "`log/` may not be written to", ("log_not_writable",), "Permission denied", "exit 2"
    ),
    "removed folder": Fault("`log/` is removed", ("storage_failed",), "while the broker runs", "exit 1"),
}


def render_states() -> str:
    """The table of docs/operations.md."""
    lines = ["| | " + " | ".join(f"`{name}`" for name in STATES) + " |"]
    lines.append("|---|" + "---|" * len(STATES))
    for column, title in COLUMNS.items():
        lines.append(f"| {title} | " + " | ".join(getattr(each, column) for each in STATES.values()) + " |")
    return "\n".join(lines)


def render_faults() -> str:
    lines = ["| fault | conditions | a start meanwhile |", "|---|---|---|"]
    for name, fault in FAULTS.items():
        conditions = ", ".join(f"`{each}`" for each in fault.conditions)
        lines.append(f"| {name}: {fault.text} | {conditions} | {fault.start} |")
    return "\n".join(lines)


def render_conditions() -> str:
    lines = ["| condition | severity | meaning | what to do |", "|---|---|---|---|"]
    for each in CONDITIONS:
        severity = SEVERITY_NAMES[each.severity]
        lines.append(f"| `{each.name}` | {severity} | {each.meaning} | {each.advice} |")
    return "\n".join(lines)


def with_tables(text: str) -> str:
    """The document with its tables as they are here."""
    for name, render in (
        ("conditions", render_conditions),
        ("states", render_states),
        ("faults", render_faults),
    ):
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        text = f"{head}{begin}{render()}\n{end}{tail}"
    return text


if __name__ == "__main__":  # python tests/scenarios/service_table.py: writes them into the document
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
