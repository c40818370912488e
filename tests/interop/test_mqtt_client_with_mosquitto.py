"""Our MQTT client against a broker nobody here wrote: Debian's mosquitto."""

from __future__ import annotations

import asyncio
import getpass
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from millstream.client.mqtt_client import MESSAGES_MAX, ExitKind, MqttClient, MqttClientError
from millstream.protocols.mqtt.machine.client_session import ClientSession
from millstream.protocols.mqtt.wire.packets import Publish, Will
from millstream.protocols.mqtt.wire.properties import Properties

MOSQUITTO = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
pytestmark = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")

VERSIONS = [4, 5]


class Mosquitto:
    """One broker with a port each for TCP, WebSocket and TLS."""

    def __init__(self, folder: Path, certificates: trustme.CA) -> None:
        self.port, self.websocket_port, self.tls_port = free_ports(3)
        issued = certificates.issue_cert("localhost")
        issued.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
        issued.private_key_pem.write_to_path(str(folder / "key.pem"))
        certificates.cert_pem.write_to_path(str(folder / "ca.pem"))
        self._config = folder / "mosquitto.conf"
        self._config.write_text(
            f"user {getpass.getuser()}\n"  # it would give up root's rights and not read the folder
            "per_listener_settings false\nallow_anonymous true\npersistence false\n"
            "max_queued_messages 0\nmax_inflight_messages 20\n"
            f"listener {self.port} 127.0.0.1\n"
            f"listener {self.websocket_port} 127.0.0.1\nprotocol websockets\n"
            f"listener {self.tls_port} 127.0.0.1\n"
            f"certfile {folder / 'cert.pem'}\nkeyfile {folder / 'key.pem'}\n"
        )
        assert MOSQUITTO is not None
        self.process = subprocess.Popen(
            [MOSQUITTO, "-c", str(self._config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def wait_ready(self) -> None:
        for port in (self.port, self.websocket_port, self.tls_port):
            wait_listening(port)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def wait_listening(port: int) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert time.monotonic() < deadline, "mosquitto did not start"
            time.sleep(0.02)  # another process: there is no event to wait for
        else:
            return


@pytest.fixture(scope="module")
def certificates() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory: pytest.TempPathFactory, certificates: trustme.CA) -> Iterator[Mosquitto]:
    broker = Mosquitto(tmp_path_factory.mktemp("mosquitto"), certificates)
    try:
        broker.wait_ready()
        yield broker
    finally:
        broker.stop()


async def take(client: MqttClient, count: int) -> list[Publish]:
    taken: list[Publish] = []
    async with asyncio.timeout(10):
        async for message in client.messages():
            taken.append(message)
            if len(taken) == count:
                break
    return taken


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_messages_go_round_at_every_qos(mosquitto: Mosquitto, version: int, qos: int) -> None:
    topic = f"round/{version}/{qos}"
    client = await MqttClient.connect(
        "127.0.0.1", mosquitto.port, version=version, client_id=f"r{version}{qos}"
    )
    assert await client.subscribe([(topic, qos)]) == [qos]
    for number in range(50):
        assert await client.publish(topic, b"%d" % number, qos) == 0
    messages = await take(client, 50)
    assert [message.payload for message in messages] == [b"%d" % number for number in range(50)]
    assert {message.qos for message in messages} == {qos}
    assert await client.unsubscribe([topic]) == ([0] if version == 5 else [])
    await client.disconnect()


@pytest.mark.parametrize("version", VERSIONS)
async def test_many_publishes_at_once_stay_in_the_window_and_are_all_confirmed(
    mosquitto: Mosquitto, version: int
) -> None:
    client = await MqttClient.connect("127.0.0.1", mosquitto.port, version=version)
    await client.subscribe([("window/#", 2)])
    reasons = await asyncio.gather(*[client.publish("window/a", b"%d" % n, n % 2 + 1) for n in range(300)])
    assert reasons == [0] * 300
    messages = await take(client, 300)
    assert sorted(int(message.payload) for message in messages) == list(range(300))
    await client.disconnect()


@pytest.mark.parametrize("version", VERSIONS)
async def test_it_works_over_websocket(mosquitto: Mosquitto, version: int) -> None:
    client = await MqttClient.connect(
        "127.0.0.1", mosquitto.websocket_port, version=version, websocket_path="/mqtt"
    )
    await client.subscribe([("ws/#", 1)])
    payload = bytes(range(256)) * 40
    assert await client.publish("ws/a", payload, 1) == 0
    assert [message.payload for message in await take(client, 1)] == [payload]
    await client.disconnect()


@pytest.mark.parametrize("version", VERSIONS)
async def test_it_works_over_tls(mosquitto: Mosquitto, certificates: trustme.CA, version: int) -> None:
    context = ssl.create_default_context()
    certificates.configure_trust(context)
    client = await MqttClient.connect("localhost", mosquitto.tls_port, version=version, tls=context)
    await client.subscribe([("tls/#", 2)])
    assert await client.publish("tls/a", b"x", 2) == 0
    assert [message.payload for message in await take(client, 1)] == [b"x"]
    await client.disconnect()


async def test_a_certificate_nobody_vouches_for_is_refused(mosquitto: Mosquitto) -> None:
    with pytest.raises(MqttClientError, match="not trusted") as caught:
        await MqttClient.connect("localhost", mosquitto.tls_port, tls=ssl.create_default_context())
    assert caught.value.exit_kind is ExitKind.UNREACHABLE


async def test_properties_arrive_as_they_were_sent(mosquitto: Mosquitto) -> None:
    client = await MqttClient.connect("127.0.0.1", mosquitto.port)
    await client.subscribe([("props", 1)], retain_as_published=True)
    properties = Properties()
    properties.content_type = b"text/plain"
    properties.response_topic = b"answers/1"
    properties.correlation_data = b"\x00\x01"
    properties.payload_format_indicator = 1
    properties.user_properties = [(b"b", b"1"), (b"a", b"2"), (b"b", b"1")]
    assert await client.publish("props", b"x", 1, properties=properties) == 0
    (message,) = await take(client, 1)
    assert message.properties == properties
    await client.disconnect()


async def test_nobody_listening_is_told_by_the_broker(mosquitto: Mosquitto) -> None:
    client = await MqttClient.connect("127.0.0.1", mosquitto.port)
    assert await client.publish("nobody/here", b"x", 1) == 0x10
    await client.disconnect()


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_came_while_away_is_delivered_in_the_same_session(
    mosquitto: Mosquitto, version: int
) -> None:
    name = f"away-{version}"
    session = ClientSession()
    first = await MqttClient.connect(
        "127.0.0.1",
        mosquitto.port,
        client_id=name,
        version=version,
        clean_start=False,
        session_expiry_s=60,
        session=session,
    )
    assert not first.connack.session_present
    await first.subscribe([(f"away/{version}", 2)])
    await first.disconnect()
    other = await MqttClient.connect("127.0.0.1", mosquitto.port, version=version)
    for number in range(5):
        assert await other.publish(f"away/{version}", b"%d" % number, 2) == 0
    await other.disconnect()
    second = await MqttClient.connect(
        "127.0.0.1", mosquitto.port, client_id=name, version=version, clean_start=False, session=session
    )
    assert second.connack.session_present
    assert [message.payload for message in await take(second, 5)] == [b"0", b"1", b"2", b"3", b"4"]
    await second.disconnect()


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_will_is_sent_when_the_connection_breaks(mosquitto: Mosquitto, version: int) -> None:
    watcher = await MqttClient.connect("127.0.0.1", mosquitto.port, version=version)
    await watcher.subscribe([(f"will/{version}", 1)])
    dying = await MqttClient.connect(
        "127.0.0.1", mosquitto.port, version=version, will=Will(b"will/%d" % version, b"gone", 1)
    )
    dying._abort()
    assert [message.payload for message in await take(watcher, 1)] == [b"gone"]
    await watcher.disconnect()


async def test_a_taken_over_client_learns_it(mosquitto: Mosquitto) -> None:
    first = await MqttClient.connect("127.0.0.1", mosquitto.port, client_id="twin")
    second = await MqttClient.connect("127.0.0.1", mosquitto.port, client_id="twin")
    with pytest.raises(MqttClientError, match="the connection ended") as caught:
        await take(first, 1)
    assert caught.value.exit_kind is ExitKind.CLOSED
    with pytest.raises(MqttClientError):
        await first.publish("a", b"", 1)
    await first.disconnect()
    await second.disconnect()


async def test_a_name_is_assigned_to_a_client_without_one(mosquitto: Mosquitto) -> None:
    client = await MqttClient.connect("127.0.0.1", mosquitto.port)
    assert client.client_id.startswith("auto-")
    await client.disconnect()
    await client.disconnect()


async def test_a_reader_that_lags_stops_the_socket_and_loses_nothing(mosquitto: Mosquitto) -> None:
    total = MESSAGES_MAX * 3
    reader = await MqttClient.connect("127.0.0.1", mosquitto.port, version=4)
    await reader.subscribe([("lag", 1)])
    writer = await MqttClient.connect("127.0.0.1", mosquitto.port, version=4)
    for start in range(0, total, 100):
        await asyncio.gather(
            *[writer.publish("lag", b"%d" % n + b"x" * 500, 1) for n in range(start, start + 100)]
        )
    messages = await take(reader, total)
    assert [int(message.payload.rstrip(b"x")) for message in messages] == list(range(total))
    await reader.disconnect()
    await writer.disconnect()


async def test_messages_end_after_disconnect(mosquitto: Mosquitto) -> None:
    client = await MqttClient.connect("127.0.0.1", mosquitto.port)
    reader = asyncio.create_task(take(client, 1))
    await client.disconnect()
    assert await reader == []
