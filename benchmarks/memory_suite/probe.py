"""An ordinary client beside the floods: how long its messages take, and whether it is served at all."""

from __future__ import annotations

import threading
import time

from benchmarks.memory_suite.clients import Gone, Mqtt, publish

PAUSE_S = 0.1


class Probe:
    """Publishes with QoS 1 to itself, again and again, until it is stopped."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.times_ms: list[float] = []
        self.failures = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        client: Mqtt | None = None
        number = 0
        while not self._stop.is_set():
            try:
                if client is None:
                    client = Mqtt(self._port, "ordinary")
                    client.subscribe("ordinary/self", 0)
                number = number % 65_000 + 1
                payload = number.to_bytes(8, "big")
                message = publish("ordinary/self", payload)
                begin = time.perf_counter()
                client.send(publish("ordinary/self", payload, 1, number))
                client.read(len(message) + 4)  # the message and its PUBACK
                self.times_ms.append((time.perf_counter() - begin) * 1000)
            except Gone:
                self.failures += 1
                if client is not None:
                    client.close()
                client = None
            self._stop.wait(PAUSE_S)
        if client is not None:
            client.close()

    def percentile(self, percent: float) -> float:
        times = sorted(self.times_ms)
        return times[min(len(times) - 1, int(len(times) * percent / 100))] if times else float("nan")


CLOSE_S = 30.0
