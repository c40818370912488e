"""The brokers of `bench mqtt`."""

from __future__ import annotations

from benchmarks.suite.brokers import Broker, ConfiguredBroker, Millstream, find_free_port

MOSQUITTO_CONFIG = """\
listener {port} 127.0.0.1
allow_anonymous true
max_queued_messages 0
max_inflight_messages 0
persistence false
set_tcp_nodelay true
log_type error
"""

NATS_CONFIG = """\
server_name: bench
host: 127.0.0.1
port: {core_port}
jetstream {{ store_dir: "{folder}/jetstream" }}
mqtt {{ host: 127.0.0.1, port: {port}, max_ack_pending: 1024 }}
"""


class Mosquitto(ConfiguredBroker):
    name = "mosquitto"
    title = "mosquitto"
    program = "mosquitto"
    version_option = "-h"

    def config(self) -> str:
        return MOSQUITTO_CONFIG.format(port=self.port)


class Nats(ConfiguredBroker):
    name = "nats"
    title = "NATS MQTT"
    program = "nats-server"
    version_option = "-v"

    def config(self) -> str:
        return NATS_CONFIG.format(core_port=find_free_port(), port=self.port, folder=self.folder)


KINDS: dict[str, type[Broker]] = {kind.name: kind for kind in (Millstream, Mosquitto, Nats)}
