"""The broker in its confinement: default limits, one core, every listener open."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import trustme

from benchmarks.attack_suite.confinement import Confinement
from benchmarks.load.usage import find_family, read_rss_bytes, read_text
from benchmarks.suite.brokers import Millstream

USER = "witness"
PASSWORD = "correct-horse-battery"


class ConfinedBroker(Millstream):
    """`settings` are added to the defaults; `wants` names what else it needs: tls, users, reader."""

    def __init__(
        self, core: int, confinement: Confinement, settings: tuple[str, ...], wants: tuple[str, ...]
    ) -> None:
        super().__init__(core)
        self._confinement = confinement
        self._settings = settings
        self._wants = wants
        self.ports: dict[str, int] = {}

    def command(self) -> list[str]:
        settings = ["mqtt.port=0", "amqp.port=0", "websocket.port=0", "broker.sys_interval=1"]
        settings += [f"data_dir={self.folder}/data", "log.format=json", *self._settings]
        if "tls" in self._wants:
            settings += self._write_certificate()
        if "users" in self._wants:
            settings += self._write_users()
        if "reader" in self._wants:
            settings += ["reader.enabled=true", "reader.port=0"]
        command = [
            sys.executable,
            "-m",
            "millstream",
            "serve",
            "--ready-file",
            str(self.folder / "ready.json"),
        ]
        for setting in settings:
            command += ["--set", setting]
        return command

    def _write_certificate(self) -> list[str]:
        issued = trustme.CA().issue_cert("127.0.0.1", "localhost")
        certificate, key = self.folder / "server.pem", self.folder / "server.key"
        issued.cert_chain_pems[0].write_to_path(str(certificate))
        issued.private_key_pem.write_to_path(str(key))
        key.chmod(0o600)
        return [f"mqtt.tls.cert_file={certificate}", f"mqtt.tls.key_file={key}", "mqtt.tls.port=0"]

    def _write_users(self) -> list[str]:
        users = self.folder / "users"
        for name in (USER, "victim"):
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "millstream",
                    "user",
                    "add",
                    name,
                    "--password-file",
                    str(users),
                    "--password-stdin",
                ],
                input=PASSWORD,
                text=True,
                env=self.environment(),
                cwd="/",
                check=True,
                capture_output=True,
            )
        return [f"auth.password_file={users}"]

    def before_exec(self) -> None:
        super().before_exec()
        self._confinement.join()

    def is_ready(self) -> bool:
        if not super().is_ready():
            return False
        listeners = json.loads((self.folder / "ready.json").read_text())["listeners"]
        self.ports = {name: listener["port"] for name, listener in listeners.items()}
        return True

    # ---- what can be seen from outside

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is running"
        return self._process.pid

    def ending(self) -> int | None:
        """Its exit code when it has ended."""
        return None if self._process is None else self._process.poll()

    def log_lines(self) -> list[str]:
        return (self.folder / "log").read_text(errors="replace").splitlines()


def read_memory(pid: int) -> int:
    """Resident bytes of a process and its children."""
    return read_rss_bytes(find_family(pid))


def read_others_share(pid: int) -> tuple[int, int]:
    """Nanoseconds that the broker's first thread waited for its core, and that its other threads ran meanwhile."""
    waited = others = 0
    for member in find_family(pid):
        task = Path(f"/proc/{member}/task")
        for thread in os.listdir(task) if task.exists() else []:
            fields = read_text(f"{task}/{thread}/schedstat").split()
            if len(fields) >= 2 and int(thread) == pid:
                waited = int(fields[1])
            elif len(fields) >= 2:
                others += int(fields[0])
    return waited, others
