"""The brokers of `bench queues`: Millstream in two durabilities, NATS JetStream in two, RabbitMQ.

Each says what its confirm means, because a rate is worth nothing without it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

from benchmarks.load.frames import FrameFault
from benchmarks.load.queue_amqp import connect_amqp
from benchmarks.load.usage import find_family
from benchmarks.suite.brokers import (
    Broker,
    BrokerFault,
    ConfiguredBroker,
    Millstream,
    find_free_port,
    find_program,
)

NATS_CONFIG = """\
server_name: bench
host: 127.0.0.1
port: {port}
jetstream {{ store_dir: "{folder}/jetstream", {more} }}
"""

RABBIT_CONFIG = """\
listeners.tcp.1 = 127.0.0.1:{port}
loopback_users.guest = true
disk_free_limit.absolute = 50MB
"""
RABBIT_PROGRAM = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # Debian's command would become another user first
RABBIT_LOCAL = "localhost"


class QueueBroker(Broker):
    """A broker that stores messages; `protocol` is how the generator speaks to it."""

    protocol = ""
    durability = ""  # in words, for the report
    mark = ""  # the same in one or two words, for the chart

    def __init__(self, core: int, is_stream: bool) -> None:
        super().__init__(core)
        self.is_stream = is_stream  # the queue it is started with


class SyncedMillstream(Millstream, QueueBroker):
    name = "millstream"
    title = "Millstream"
    protocol = "mqtt"
    durability = "fdatasync before the confirm"
    mark = "synced"
    mode = "fsync"
    topics = ("bench/#", "$queue/bench/#")

    def command(self) -> list[str]:
        command = super().command()
        for key, value in self.settings().items():
            command += ["--set", f"{key}={value}"]
        return command

    def settings(self) -> dict[str, str]:
        return {
            "storage.durability": self.mode,
            "queues.bench.kind": "stream" if self.is_stream else "work",
            "queues.bench.prefetch": "100",
            "session.max_offline_queue_size": "100000000",
            "session.max_offline_queue_bytes": "64GiB",
        }

    def crash(self) -> None:
        """kill -9, without a word before."""
        process = self._process
        if process is None:
            raise BrokerFault(f"{self.title} is not running")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._process = None
        (self.folder / "ready.json").unlink(missing_ok=True)

    def start_again(self) -> None:
        self._start()


class CachedMillstream(SyncedMillstream):
    name = "millstream-os"
    title = "Millstream, os"
    durability = "page cache; a power cut can take the last second"
    mark = "page cache"
    mode = "os"


class JetStream(ConfiguredBroker, QueueBroker):
    name = "nats"
    title = "NATS JetStream"
    program = "nats-server"
    version_option = "-v"
    protocol = "nats"
    durability = "page cache (its default): it syncs every two minutes"
    mark = "page cache"
    more = ""

    def config(self) -> str:
        return NATS_CONFIG.format(port=self.port, folder=self.folder, more=self.more)

    def check_config(self, program: str, path: Path) -> None:
        finished = subprocess.run(
            [program, "-t", "-c", str(path)], capture_output=True, text=True, timeout=20
        )
        if finished.returncode != 0:
            text = (finished.stderr or finished.stdout).strip().rsplit(": ", 1)[-1].rpartition(":")[2].strip()
            raise BrokerFault(f"{self.version()} does not take the configuration ({text})")


class SyncedJetStream(JetStream):
    name = "nats-sync"
    title = "NATS JetStream, sync always"
    durability = "sync_interval: always"
    mark = "synced"
    more = "sync_interval: always"


class Rabbit(QueueBroker):
    """Durable classic queue; for a stream, its queue type of that name. Ports, files and node name of its own."""

    name = "rabbitmq"
    title = "RabbitMQ"
    protocol = "amqp"
    durability = "persistent messages, publisher confirms: its own rule of when it syncs"
    mark = "synced by its own rule"
    start_timeout_s = 120.0  # Erlang compiles and mnesia makes its tables while other programs have the cores

    def __init__(self, core: int, is_stream: bool) -> None:
        super().__init__(core, is_stream)
        self._names: subprocess.Popen[bytes] | None = None
        self._names_port = 0

    def command(self) -> list[str]:
        wrapper = find_program("rabbitmq-server", "rabbitmq-server")
        self.port = find_free_port()
        self._names_port = find_free_port()
        (self.folder / "rabbitmq.conf").write_text(RABBIT_CONFIG.format(port=self.port))
        (self.folder / "enabled_plugins").write_text("[].\n")
        self._start_name_server()
        return [RABBIT_PROGRAM if Path(RABBIT_PROGRAM).exists() else wrapper]

    def environment(self) -> dict[str, str]:
        folder = str(self.folder)
        return {
            **os.environ,
            "HOME": folder,  # for its cookie
            "ERL_EPMD_PORT": str(self._names_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"bench{self.port}@{RABBIT_LOCAL}",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(find_free_port()),
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq",
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/none",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/enabled_plugins",
            "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
            "RABBITMQ_LOG_BASE": f"{folder}/logs",
            "RABBITMQ_GENERATED_CONFIG_DIR": f"{folder}/generated",
        }

    def is_ready(self) -> bool:
        """It listens before it serves: only a whole handshake and a channel tell."""
        return super().is_ready() and is_served(lambda: connect_amqp("127.0.0.1", self.port))

    def _start_name_server(self) -> None:
        """Erlang would leave one behind for ever; this one ends with the broker."""
        if self._names is None:
            program = find_program("epmd", "erlang-base")
            self._names = subprocess.Popen(
                [program, "-address", "127.0.0.1", "-port", str(self._names_port)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def _stop(self) -> None:
        family = find_family(self._process.pid)[1:] if self._process is not None else []
        for pid in family:
            try:
                os.kill(pid, signal.SIGKILL)  # some of them have left the process group
            except ProcessLookupError:
                continue  # it ended with its parent
        super()._stop()
        if self._names is not None:
            self._names.kill()
            self._names.wait()
            self._names = None

    def version(self) -> str:
        """From the folder of its files: asking the command would start a second server."""
        for path in sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*")):
            return f"RabbitMQ {path.name.rpartition('-')[2]}"
        return "RabbitMQ"


def is_served(connect: Callable[[], socket.socket]) -> bool:
    try:
        connect().close()
    except (OSError, FrameFault):
        return False
    return True


KINDS: dict[str, type[QueueBroker]] = {
    kind.name: kind for kind in (SyncedMillstream, CachedMillstream, SyncedJetStream, JetStream, Rabbit)
}
