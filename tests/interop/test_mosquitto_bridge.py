"""A mosquitto broker whose bridge is a client of ours: messages cross in both directions."""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import PASSWORDS
from foreign_client import Address, Certificate, ForeignClient, Options
from paho_client import PahoClient

if TYPE_CHECKING:
    from conftest import Authority

MOSQUITTO = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
pytestmark = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")

PROTOCOLS = {4: "mqttv311", 5: "mqttv50"}

StartBridge = Callable[..., Address]


@pytest.fixture
def start_bridge(tmp_path: Path) -> Iterator[StartBridge]:
    """Starts mosquitto with a bridge to an address, and tells where mosquitto itself listens."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(target: Address, topics: list[str], settings: list[str]) -> Address:
        with socket.create_server(("127.0.0.1", 0)) as held:
            port = held.getsockname()[1]
        if target.ca_file is not None:
            settings = [*settings, f"bridge_cafile {target.ca_file}"]
        config = tmp_path / "mosquitto.conf"
        config.write_text(
            "\n".join(
                [
                    f"user {getpass.getuser()}",  # it would give up root's rights and not read the folder
                    "persistence false",
                    "allow_anonymous true",
                    f"listener {port} 127.0.0.1",
                    f"connection edge-{port}",
                    f"address {target.host}:{target.port}",
                    "restart_timeout 1",
                    *[f"topic {topic}" for topic in topics],
                    *settings,
                    "",
                ]
            )
        )
        assert MOSQUITTO is not None
        log = (tmp_path / "mosquitto.log").open("wb")
        processes.append(subprocess.Popen([MOSQUITTO, "-v", "-c", str(config)], stdout=log, stderr=log))
        log.close()
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
    """Connects as soon as somebody listens there: mosquitto has just been started."""
    for attempt in range(2000):
        client = PahoClient(address, Options(f"crossing-{len(joined)}-{attempt}", 5, **options))
        try:
            client.connect()
        except ConnectionRefusedError:
            continue
        joined.append(client)
        return client
    raise TimeoutError("mosquitto does not listen")


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
    crossing = [f"{topic}/up/# out 2", f"{topic}/down/# in 2"]
    edge_address = start_bridge(
        addresses[transport], crossing, [f"bridge_protocol_version {PROTOCOLS[version]}"]
    )
    edge, centre = join(joined, edge_address), join(joined, addresses["tcp"])
    wait_bridge(edge)
    for qos in (0, 1, 2):
        assert_crosses(edge, centre, f"{topic}/up/{qos}", qos)
        assert_crosses(centre, edge, f"{topic}/down/{qos}", qos)


@pytest.mark.parametrize("version", [4, 5])
def test_a_topic_bridged_both_ways_does_not_loop(
    addresses: dict[str, Address],
    start_bridge: StartBridge,
    joined: list[ForeignClient],
    topic: str,
    version: int,
) -> None:
    edge_address = start_bridge(
        addresses["tcp"], [f"{topic}/# both 1"], [f"bridge_protocol_version {PROTOCOLS[version]}"]
    )
    edge, centre = join(joined, edge_address), join(joined, addresses["tcp"])
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
    edge_address = start_bridge(
        addresses["tcp"],
        [f'# in 1 "local/" {topic}/plant/'],
        [f"bridge_protocol_version {PROTOCOLS[version]}"],
    )
    edge = join(joined, edge_address)
    wait_bridge(edge)
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
    edge_address = start_bridge(
        guarded_addresses["tcp"],
        [f"home/alice/{topic}/# both 1"],
        [
            f"bridge_protocol_version {PROTOCOLS[version]}",
            "remote_username alice",
            f"remote_password {PASSWORDS['alice']}",
            "notifications_local_only true",  # the rules give alice nothing below $SYS
        ],
    )
    edge = join(joined, edge_address)
    centre = join(joined, guarded_addresses["tcp"], username="alice", password=PASSWORDS["alice"])
    wait_bridge(edge)
    assert_crosses(edge, centre, f"home/alice/{topic}/up", 1)
    assert_crosses(centre, edge, f"home/alice/{topic}/down", 1)


def test_a_bridge_shows_a_certificate(
    guarded_addresses: dict[str, Address],
    authority: Authority,
    alice_certificate: Certificate,
    start_bridge: StartBridge,
    joined: list[ForeignClient],
    topic: str,
) -> None:
    edge_address = start_bridge(
        guarded_addresses["tls"],
        [f"home/alice/{topic}/# out 1"],
        [
            f"bridge_certfile {alice_certificate.cert_file}",
            f"bridge_keyfile {alice_certificate.key_file}",
            "notifications_local_only true",
        ],
    )
    edge = join(joined, edge_address)
    centre = join(joined, guarded_addresses["tcp"], username="alice", password=PASSWORDS["alice"])
    wait_bridge(edge)
    assert_crosses(edge, centre, f"home/alice/{topic}/up", 1)
