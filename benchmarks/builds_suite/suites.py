"""What is measured with both builds: scenarios of the other benchmarks, and how one window of each is run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from benchmarks.amqp_suite.brokers import AmqpMillstream
from benchmarks.amqp_suite.scenarios import SCENARIOS as AMQP_SCENARIOS
from benchmarks.mqtt_suite.scenarios import SCENARIOS as MQTT_SCENARIOS
from benchmarks.queue_suite.brokers import SyncedMillstream
from benchmarks.queue_suite.runner import PAYLOAD_BYTES
from benchmarks.queue_suite.scenarios import RATES
from benchmarks.queue_suite.scenarios import SCENARIOS as QUEUE_SCENARIOS
from benchmarks.suite.bench import as_numbers
from benchmarks.suite.brokers import Broker, Millstream
from benchmarks.suite.generator import Generator
from benchmarks.suite.results import Facts
from benchmarks.suite.scenarios import Scenario

WARM_UP_MS = 300
FILL = 100_000  # messages that a scenario of consuming finds in its queue
TIMEOUT_S = 120.0


class BuildSuite(ABC):
    """The scenarios of one benchmark for which a cost per message means something."""

    name = ""
    is_fresh = False  # a broker of its own for every window: what one leaves behind would change the next

    def __init__(self, generator: Generator, cores: Sequence[int], measure_ms: int) -> None:
        self._generator = generator
        self._cores = cores
        self._measure_ms = measure_ms

    @abstractmethod
    def scenarios(self) -> Sequence[Scenario]: ...

    @abstractmethod
    def start(self, scenario: Scenario, python_path: str) -> Millstream:
        """A broker of that build, not started yet."""

    def measure(self, broker: Broker, scenario: Scenario) -> Facts:
        job: dict[str, object] = {
            "kind": scenario.kind,
            "port": broker.port,
            "broker_pids": ",".join(str(pid) for pid in broker.pids()),
            "core": self._cores[1],
            "warmup_ms": WARM_UP_MS,
            "measure_ms": self._measure_ms,
            **self._more(),
            **scenario.job,
        }
        return as_numbers(self._generator.run(job, TIMEOUT_S))

    def _more(self) -> dict[str, object]:
        return {}


class MqttSuite(BuildSuite):
    name = "mqtt"

    def scenarios(self) -> Sequence[Scenario]:
        return [scenario for scenario in MQTT_SCENARIOS if scenario.kind in ("throughput", "pairs")]

    def start(self, scenario: Scenario, python_path: str) -> Millstream:
        return Millstream(self._cores[0], python_path=python_path)


class AmqpSuite(BuildSuite):
    name = "amqp091"

    def scenarios(self) -> Sequence[Scenario]:
        return AMQP_SCENARIOS

    def start(self, scenario: Scenario, python_path: str) -> Millstream:
        return AmqpMillstream(self._cores[0], False, python_path=python_path)

    def _more(self) -> dict[str, object]:
        return {"protocol": "amqp", "broker_core": self._cores[0]}


class QueueSuite(BuildSuite):
    name = "queues"
    is_fresh = True

    def scenarios(self) -> Sequence[Scenario]:
        return [scenario for scenario in QUEUE_SCENARIOS if scenario.kind in RATES]

    def start(self, scenario: Scenario, python_path: str) -> Millstream:
        is_stream = bool(scenario.job.get("is_stream", False))
        return SyncedMillstream(self._cores[0], is_stream, python_path=python_path)

    def _more(self) -> dict[str, object]:
        return {
            "protocol": SyncedMillstream.protocol,
            "broker_core": self._cores[0],
            "payload_bytes": PAYLOAD_BYTES,
            "fill": FILL,
        }


SUITES: dict[str, type[BuildSuite]] = {suite.name: suite for suite in (MqttSuite, AmqpSuite, QueueSuite)}


def find_build(checkout: Path) -> Path | None:
    """The compiled build of a checkout where it has one, else its sources."""
    for folder in (checkout / "build" / "compiled" / "src", checkout / "src", checkout):
        if (folder / "millstream").is_dir():
            return folder
    return None
