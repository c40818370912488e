"""The broker that is fuzzed: every listener open, users and a certificate, and short lives for all that clients leave."""

from __future__ import annotations

import json
from pathlib import Path

import trustme

from crash.broker import Broker
from millstream.security.users import User, UserTable, format_users, hash_password

USER, PASSWORD = "fuzz", "correct"
# What is left behind must go again: a run makes as many names as it likes, and memory is judged.
SETTINGS = (
    "websocket.enabled=true",
    "websocket.port=0",
    "mqtt.tls.port=0",
    "reader.enabled=true",
    "reader.port=0",
    "reader.nice=0",
    "auth.allow_anonymous=true",
    "session.max_expiry_interval=3s",
    "session.default_expiry_interval=3s",
    "session.max_will_delay_interval=2s",
    "storage.durability=os",
    "log.format=json",
    "log.repeat_interval=0",
    "queues.tasks.kind=work",
    "queues.tasks.length_max=1000",
    "queues.tasks.overflow=drop_head",
    "queues.tasks.visibility_ms=200",
    "queues.stream.kind=stream",
    "queues.stream.retention_count=1000",
    "amqp.policies.all.pattern=.*",
    "amqp.policies.all.priority=1",
    "amqp.policies.all.apply_to=queues",
    "amqp.policies.all.max_length=1000",
    "amqp.policies.all.expires=5000",
)
FAULT_LEVELS = frozenset(("error", "critical"))


def make_broker(folder: Path, log_level: str) -> Broker:
    issued = trustme.CA().issue_cert("127.0.0.1", "localhost")
    certificate, key, users = folder / "server.pem", folder / "server.key", folder / "users"
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    issued.private_key_pem.write_to_path(str(key))
    table = UserTable({USER: User(USER, hash_password(PASSWORD), "default")})
    users.write_text(format_users(table), encoding="utf-8")
    for secret in (key, users):
        secret.chmod(0o600)
    files = (f"mqtt.tls.cert_file={certificate}", f"mqtt.tls.key_file={key}", f"auth.password_file={users}")
    return Broker(folder, (*SETTINGS, *files, f"log.level={log_level}"))


class LogReader:
    """What went wrong in the broker, by its own log: every line of level error, and every line that is no event."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("rb")
        self._file.read()  # how it started
        self._unread = b""

    def take_faults(self) -> list[dict[str, object]]:
        lines = (self._unread + self._file.read()).split(b"\n")
        self._unread = lines.pop()
        faults = []
        for line in lines:
            try:
                fields = json.loads(line)
            except ValueError:
                fields = {
                    "event": "unexpected_output",
                    "level": "error",
                    "text": line.decode("utf-8", "replace"),
                }
            if fields.get("level") in FAULT_LEVELS:
                faults.append(fields)
        return faults
