"""Pings a broker all the time: `witness PORT PID`. For each window the longest wait, and the most processor time that the
broker's loop took while one ping was open. The latter bounds its longest turn, whatever else runs on the machine.

Commands on standard input: `begin`, `end` (answered by a line of JSON).
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from pathlib import Path

from benchmarks.attack_suite.mqtt import MqttClient

INTERVAL_S = 0.003
TIMEOUT_S = 120.0


class Witness:
    def __init__(self, port: int, pid: int) -> None:
        self._clock = Path(f"/proc/{pid}/task/{pid}/schedstat")
        self._client = MqttClient(socket.create_connection(("127.0.0.1", port), TIMEOUT_S))
        self._client.open("turns-witness")
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        self._wait_s = 0.0
        self._turn_ns = 0
        self._pings = 0

    def ping(self) -> None:
        before, started = self._read(), time.monotonic()
        self._client.socket.sendall(b"\xc0\x00")
        self._client.expect(0xD0)
        waited, took = time.monotonic() - started, self._read() - before
        with self._lock:
            self._pings += 1
            self._wait_s = max(self._wait_s, waited)
            self._turn_ns = max(self._turn_ns, took)

    def _read(self) -> int:
        return int(self._clock.read_text().split()[0])

    def run(self) -> None:
        while True:
            self.ping()
            time.sleep(INTERVAL_S)

    def command(self, word: str) -> None:
        if word == "end":  # a ping that is still open belongs to the window
            due = self._pings + 2
            while self._pings < due:
                time.sleep(INTERVAL_S)
        with self._lock:
            if word == "begin":
                self.clear()
            else:
                found = {"wait_ms": self._wait_s * 1e3, "turn_ms": self._turn_ns / 1e6, "pings": self._pings}
                print(json.dumps(found), flush=True)


def main() -> int:
    witness = Witness(int(sys.argv[1]), int(sys.argv[2]))
    witness.ping()
    threading.Thread(target=witness.run, daemon=True).start()
    print("ready", flush=True)
    for line in sys.stdin:
        witness.command(line.strip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
