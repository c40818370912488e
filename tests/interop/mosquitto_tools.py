"""mosquitto_pub, mosquitto_sub and mosquitto_rr as processes."""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import threading
from typing import Any

from foreign_client import TIMEOUT_S, Address, Certificate

NAMES = ("mosquitto_pub", "mosquitto_sub", "mosquitto_rr", "stdbuf")
MISSING = [name for name in NAMES if shutil.which(name) is None]
VERSION_NAMES = {4: "mqttv311", 5: "mqttv5"}


class Tools:
    """The three commands, aimed at one broker in one version of MQTT."""

    def __init__(
        self, address: Address, version: int, certificate: Certificate | None = None, *arguments: str
    ) -> None:
        self.version = version
        self.target = ["-h", address.host, "-p", str(address.port), "-V", VERSION_NAMES[version], *arguments]
        if address.ca_file is not None:
            self.target += ["--cafile", str(address.ca_file)]
        if certificate is not None:
            self.target += ["--cert", str(certificate.cert_file), "--key", str(certificate.key_file)]

    def run(
        self, command: str, *arguments: str, given: bytes = b"", code: int | None = 0
    ) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            [command, *self.target, *arguments], input=given, capture_output=True, timeout=TIMEOUT_S
        )
        assert code is None or done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done

    def publish(self, topic: str, payload: bytes, qos: int = 0, *arguments: str) -> None:
        self.run("mosquitto_pub", "-t", topic, "-q", str(qos), "-s", *arguments, given=payload)

    def clear(self, topic: str) -> None:
        """Remove the retained message."""
        self.run("mosquitto_pub", "-t", topic, "-r", "-n", "-q", "1")

    def publish_lines(self, topic: str, lines: list[bytes], qos: int) -> None:
        self.run("mosquitto_pub", "-t", topic, "-q", str(qos), "-l", given=b"\n".join(lines) + b"\n")

    def subscribe(self, topic: str, qos: int = 0, *arguments: str) -> Subscriber:
        """Returns when the broker has confirmed the subscription."""
        command = ["mosquitto_sub", *self.target, "-t", topic, "-q", str(qos), "-d", "-F", "%j", *arguments]
        subscriber = Subscriber(["stdbuf", "-oL", *command])  # else a pipe gets its lines only at the end
        subscriber.wait_subscribed()
        return subscriber

    def fetch(self, count: int, *arguments: str) -> list[dict[str, Any]]:
        """What mosquitto_sub prints before it has `count` messages and ends."""
        done = self.run("mosquitto_sub", "-F", "%j", "-C", str(count), *arguments)
        return [json.loads(line) for line in done.stdout.splitlines()]


class Subscriber:
    """A running mosquitto_sub. It tells messages as JSON and, with -d, every packet in words."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._messages: queue.Queue[dict[str, Any]] = queue.Queue()
        self._words: list[str] = []
        self._subscribed = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_subscribed(self) -> None:
        assert self._subscribed.wait(TIMEOUT_S), self._words

    def take(self, count: int) -> list[dict[str, Any]]:
        return [self._messages.get(timeout=TIMEOUT_S) for _ in range(count)]

    def stop(self) -> None:
        """As Ctrl-C does: it sends DISCONNECT."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(TIMEOUT_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_S)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self._messages.put(json.loads(line))
                continue
            self._words.append(line.strip())
            if line.startswith("Subscribed (mid"):
                self._subscribed.set()
