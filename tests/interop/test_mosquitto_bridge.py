"""A mosquitto broker whose bridge is a client of ours: messages cross in both directions."""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from foreign_client import TIMEOUT_S, Address, Certificate, ForeignClient, Options
from paho_client import PahoClient
from passwords import PASSWORDS

pytest_plugins = ["interop_fixtures"]

MOSQUITTO = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
pytestmark = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")

PROTOCOLS = {4: "mqttv311", 5: "mqttv50"}

# By default it also tells the other side, below $SYS, that it is up; no client may write there.
QUIET = "notifications_local_only true"
# In 3.1.1 it first asks for a mode of its own, is refused, and tries the plain one some seconds later.
PLAIN = "try_private false"

# By default it drops the 21st QoS 2 message whose release it has not seen, and in 3.1.1 it cannot tell the sender.
WIDE = "max_inflight_messages 1000"

StartBridge = Callable[..., Address]


def wait_listening(process: subprocess.Popen[bytes], port: int, log_file: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert process.poll() is None, log_file.read_text()
            assert time.monotonic() < deadline, "mosquitto did not start"
            time.sleep(0.02)  # another process: there is no event to wait for
        else:
            return


@pytest.fixture
def start_bridge(tmp_path: Path) -> Iterator[StartBridge]:
    """Starts mosquitto with a bridge to an address, and tells where mosquitto itself listens."""
    processes: list[subprocess.Popen[bytes]] = []
    log_file = tmp_path / "mosquitto.log"

    def start(target: Address, version: int, *settings: str) -> Address:
        with socket.create_server(("127.0.0.1", 0)) as held:
            port = held.getsockname()[1]
        lines = [
            f"user {getpass.getuser()}",  # it would give up root's rights and not read the folder
            "persistence false",
            "allow_anonymous true",
            WIDE,
            f"listener {port} 127.0.0.1",
            f"connection edge-{port}",
            f"address {target.host}:{target.port}",
            f"bridge_protocol_version {PROTOCOLS[version]}",
            "restart_timeout 1",
            *settings,
        ]
        if target.ca_file is not None:
            lines.append(f"bridge_cafile {target.ca_file}")
        config = tmp_path / "mosquitto.conf"
        config.write_text("".join(f"{line}\n" for line in lines))
        assert MOSQUITTO is not None
        with log_file.open("wb") as log:
            process = subprocess.Popen([MOSQUITTO, "-v", "-c", str(config)], stdout=log, stderr=log)
        processes.append(process)
        wait_listening(process, port, log_file)
        return Address("tcp", port)

    yield start
    for process in processes:
        process.terminate()
        process.wait(10)


@pytest.fixture
def joined() -> Iterator[list[ForeignClient]]:
    clients: list[ForeignClient] = []
    yield clients
    for client in clients:
        if not client.inbox.is_closed:
            client.disconnect()


def join(joined: list[ForeignClient], address: Address, **options: str) -> ForeignClient:
    client = PahoClient(address, Options(f"crossing-{len(joined)}", 5, **options))  # type: ignore[arg-type]
    client.connect()
    joined.append(client)
    return client


def wait_bridge(client: ForeignClient) -> None:
    """mosquitto tells on its own broker when the bridge is up."""
    client.subscribe("$SYS/broker/connection/+/state", 1)
    while client.take_one().payload != b"1":
        pass
    client.unsubscribe("$SYS/broker/connection/+/state")


def assert_crosses(source: ForeignClient, target: ForeignClient, topic: str, qos: int) -> None:
    target.subscribe(topic, qos)
    payloads = [b"%d" % number for number in range(30)]
    source.publish_all(topic, payloads, qos, retain=False, properties=None)
    messages = target.take(30)
    assert [message.payload for message in messages] == payloads
    assert {message.qos for message in messages} == {qos}


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("transport", ["tcp", "tls"])
def test_messages_cross_a_bridge_both_ways_at_every_qos(
    addresses: dict[str, Address],
    start_bridge: StartBridge,
    joined: list[ForeignClient],
    topic: str,
    transport: str,
    version: int,
) -> None:
    crossing = (f"topic {topic}/up/# out 2", f"topic {topic}/down/# in 2")
    edge = join(joined, start_bridge(addresses[transport], version, *crossing, QUIET, PLAIN))
    centre = join(joined, addresses["tcp"])
    wait_bridge(edge)
    for qos in (0, 1, 2):
        assert_crosses(edge, centre, f"{topic}/up/{qos}", qos)
        assert_crosses(centre, edge, f"{topic}/down/{qos}", qos)


def test_a_bridge_refused_its_private_mode_falls_back_to_plain_mqtt_3_1_1(
    addresses: dict[str, Address], start_bridge: StartBridge, joined: list[ForeignClient], topic: str
) -> None:
    edge = join(joined, start_bridge(addresses["tcp"], 4, f"topic {topic}/# out 1", QUIET))
    centre = join(joined, addresses["tcp"])
    wait_bridge(edge)
    assert_crosses(edge, centre, topic, 1)


def test_a_topic_bridged_both_ways_does_not_loop(
    addresses: dict[str, Address], start_bridge: StartBridge, joined: list[ForeignClient], topic: str
) -> None:
    edge = join(joined, start_bridge(addresses["tcp"], 5, f"topic {topic}/# both 1", QUIET))
    centre = join(joined, addresses["tcp"])
    wait_bridge(edge)
    edge.subscribe(f"{topic}/#", 1)
    centre.subscribe(f"{topic}/#", 1)
    edge.publish(f"{topic}/a", b"from the edge", 1)
    assert centre.take_one().payload == b"from the edge"
    centre.publish(f"{topic}/b", b"from the centre", 1)
    assert centre.take_one().payload == b"from the centre"
    assert [message.payload for message in edge.take(2)] == [b"from the edge", b"from the centre"]


@pytest.mark.parametrize("version", [4, 5])
def test_a_bridge_prefixes_topics_and_carries_retained_messages(
    addresses: dict[str, Address],
    start_bridge: StartBridge,
    joined: list[ForeignClient],
    topic: str,
    version: int,
) -> None:
    centre = join(joined, addresses["tcp"])
    centre.publish(f"{topic}/plant/setting", b"kept", 1, retain=True)
    prefixed = f"topic # in 1 local/ {topic}/plant/"
    edge = join(joined, start_bridge(addresses["tcp"], version, prefixed, QUIET, PLAIN))
    edge.subscribe("local/#", 1)
    message = edge.take_one()
    assert (message.topic, message.payload) == ("local/setting", b"kept")
    centre.publish(f"{topic}/plant/setting", b"", retain=True)


@pytest.mark.parametrize("version", [4, 5])
def test_a_bridge_logs_in_with_a_password(
    guarded_addresses: dict[str, Address],
    start_bridge: StartBridge,
    joined: list[ForeignClient],
    topic: str,
    version: int,
) -> None:
    login = ("remote_username bob", f"remote_password {PASSWORDS['bob']}")
    crossing = (f"topic house/bob/{topic}/up/# out 1", f"topic house/bob/{topic}/down/# in 1")
    edge = join(joined, start_bridge(guarded_addresses["tcp"], version, *crossing, *login, QUIET, PLAIN))
    centre = join(joined, guarded_addresses["tcp"], username="bob", password=PASSWORDS["bob"])
    wait_bridge(edge)
    assert_crosses(edge, centre, f"house/bob/{topic}/up/1", 1)
    assert_crosses(centre, edge, f"house/bob/{topic}/down/1", 1)


def test_a_bridge_shows_a_certificate(
    guarded_addresses: dict[str, Address],
    alice_certificate: Certificate,
    start_bridge: StartBridge,
    joined: list[ForeignClient],
    topic: str,
) -> None:
    files = (
        f"bridge_certfile {alice_certificate.cert_file}",
        f"bridge_keyfile {alice_certificate.key_file}",
    )
    crossing = f"topic house/alice/{topic}/# out 1"
    edge = join(joined, start_bridge(guarded_addresses["tls"], 5, crossing, *files, QUIET))
    centre = join(joined, guarded_addresses["tcp"], username="alice", password=PASSWORDS["alice"])
    wait_bridge(edge)
    assert_crosses(edge, centre, f"house/alice/{topic}/up", 1)
