"""mosquitto_pub, mosquitto_sub and mosquitto_rr against a real broker, over TCP and TLS, in both versions."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from foreign_client import Address, Certificate, Properties
from links import Link
from mosquitto_tools import MISSING, Subscriber, Tools
from paho_client import PahoClient
from passwords import PASSWORDS

if TYPE_CHECKING:
    from guests import Guests

pytest_plugins = ["interop_fixtures"]

pytestmark = pytest.mark.skipif(bool(MISSING), reason="mosquitto-clients is not installed")


@pytest.fixture(params=["tcp-4", "tcp-5", "tls-4", "tls-5"])
def tools(request: pytest.FixtureRequest, addresses: dict[str, Address]) -> Tools:
    transport, version = request.param.split("-")
    return Tools(addresses[transport], int(version))


@pytest.fixture(params=["tcp", "tls"])
def tools_5(request: pytest.FixtureRequest, addresses: dict[str, Address]) -> Tools:
    return Tools(addresses[request.param], 5)


@pytest.fixture
def running() -> Iterator[list[Subscriber]]:
    subscribers: list[Subscriber] = []
    yield subscribers
    for subscriber in subscribers:
        subscriber.stop()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_lines_arrive_in_order_at_every_qos(
    tools: Tools, topic: str, qos: int, running: list[Subscriber]
) -> None:
    subscriber = tools.subscribe(f"{topic}/#", qos)
    running.append(subscriber)
    tools.publish_lines(f"{topic}/x", [b"line %d" % number for number in range(200)], qos)
    messages = subscriber.take(200)
    assert [message["payload"] for message in messages] == [f"line {number}" for number in range(200)]
    assert {message["qos"] for message in messages} == {qos}


@pytest.mark.parametrize("qos", [0, 2])
def test_a_large_file_arrives_whole(tools: Tools, topic: str, qos: int, running: list[Subscriber]) -> None:
    subscriber = tools.subscribe(topic, qos)
    running.append(subscriber)
    payload = "0123456789abcdef" * (900 * 64)
    tools.publish(topic, payload.encode(), qos)
    assert subscriber.take(1)[0]["payload"] == payload


def test_a_retained_message_is_kept_and_removed(tools: Tools, topic: str) -> None:
    tools.publish(topic, b"kept", 1, "-r")
    found = tools.fetch(1, "-t", topic, "-q", "1")
    assert [(one["payload"], one["retain"]) for one in found] == [("kept", 1)]
    tools.clear(topic)
    tools.publish(f"{topic}/end", b"end", 1, "-r")
    assert [one["payload"] for one in tools.fetch(1, "-t", f"{topic}/#")] == ["end"]
    tools.clear(f"{topic}/end")


def test_offline_messages_wait_for_a_kept_session(tools: Tools, topic: str) -> None:
    session = ("-i", f"tools-{topic}", "-c", "-t", f"{topic}/#", "-q", "2")
    tools.run("mosquitto_sub", *session, "-E")
    tools.publish_lines(f"{topic}/x", [b"%d" % number for number in range(50)], 2)
    assert [one["payload"] for one in tools.fetch(50, *session)] == [str(number) for number in range(50)]
    tools.run("mosquitto_sub", "-i", f"tools-{topic}", "-t", topic, "-E")


def test_a_killed_subscriber_leaves_its_will(tools: Tools, topic: str, running: list[Subscriber]) -> None:
    observer = tools.subscribe(topic, 2)
    running.append(observer)
    will = ("--will-topic", topic, "--will-payload", "killed", "--will-qos", "2")
    tools.subscribe(f"{topic}/other", 0, *will).kill()
    message = observer.take(1)[0]
    assert (message["payload"], message["qos"]) == ("killed", 2)


def test_a_subscriber_that_ends_leaves_a_will_only_if_it_asks_for_it(
    tools: Tools, topic: str, running: list[Subscriber]
) -> None:
    observer = tools.subscribe(topic, 1)
    running.append(observer)
    tools.subscribe(f"{topic}/other", 0, "--will-topic", topic, "--will-payload", "ended").stop()
    tools.publish(topic, b"end", 1)
    # in MQTT 5 mosquitto_sub ends with DISCONNECT 0x04, which asks for the will; in 3.1.1 it cannot
    expected = ["ended", "end"] if tools.version == 5 else ["end"]
    assert [message["payload"] for message in observer.take(len(expected))] == expected


def test_a_share_group_divides_the_messages(tools: Tools, topic: str, running: list[Subscriber]) -> None:
    running += [tools.subscribe(f"$share/tools/{topic}", 1, "-t", f"{topic}/end") for _ in range(2)]
    tools.publish_lines(topic, [b"%d" % number for number in range(40)], 1)
    tools.publish(f"{topic}/end", b"end", 1)
    shares = []
    for subscriber in running:
        share = []
        while (message := subscriber.take(1)[0])["payload"] != "end":
            share.append(int(message["payload"]))
        shares.append(share)
    assert all(shares)
    assert sorted(shares[0] + shares[1]) == list(range(40))


def test_all_properties_of_a_message_are_printed(
    tools_5: Tools, topic: str, running: list[Subscriber]
) -> None:
    subscriber = tools_5.subscribe(topic, 1, "-D", "subscribe", "subscription-identifier", "77")
    running.append(subscriber)
    given = [
        ("content-type", "application/json"),
        ("correlation-data", "0042"),
        ("message-expiry-interval", "3600"),
        ("payload-format-indicator", "1"),
        ("response-topic", "back/here"),
    ]
    arguments = [word for name, value in given for word in ("-D", "publish", name, value)]
    for value in ("1", "2", "1"):
        arguments += ["-D", "publish", "user-property", "key", value]
    tools_5.publish(topic, b"{}", 1, *arguments)
    properties = subscriber.take(1)[0]["properties"]
    assert properties["content-type"] == "application/json"
    assert properties["correlation-data"] == "0042"
    assert 3590 < properties["message-expiry-interval"] <= 3600
    assert properties["payload-format-indicator"] == 1
    assert properties["response-topic"] == "back/here"
    assert properties["subscription-identifier"] == 77


def test_a_request_gets_its_response(tools: Tools, topic: str, guests: Guests) -> None:
    answering = guests.join(Link(PahoClient, "tcp", 5))
    answering.subscribe(f"{topic}/request", 1)
    target = ["mosquitto_rr", *tools.target, "-q", "1", "-t", f"{topic}/request", "-e", f"{topic}/response"]
    asking = subprocess.Popen([*target, "-m", "ping", "-F", "%p"], stdout=subprocess.PIPE, text=True)
    request = answering.take_one()
    assert request.payload == b"ping"
    response_topic = f"{topic}/response"
    if tools.version == 5:
        assert request.properties.response_topic == response_topic
    answer = Properties(correlation_data=request.properties.correlation_data)
    answering.publish(response_topic, b"pong", 1, properties=answer)
    assert asking.communicate(timeout=20)[0].strip() == "pong"


@pytest.mark.parametrize("version", [4, 5])
class TestGuarded:
    def tools(self, addresses: dict[str, Address], version: int, user: str, password: str) -> Tools:
        return Tools(addresses["tcp"], version, None, "-u", user, "-P", password)

    def test_a_user_publishes_and_reads_with_the_password(
        self, guarded_addresses: dict[str, Address], version: int, topic: str
    ) -> None:
        tools = self.tools(guarded_addresses, version, "bob", PASSWORDS["bob"])
        tools.publish(f"house/bob/{topic}", b"mine", 1, "-r")
        assert tools.fetch(1, "-t", f"house/bob/{topic}")[0]["payload"] == "mine"
        tools.clear(f"house/bob/{topic}")

    def test_a_wrong_password_is_refused(
        self, guarded_addresses: dict[str, Address], version: int, topic: str
    ) -> None:
        tools = self.tools(guarded_addresses, version, f"nobody-{topic}", "wrong")
        done = tools.run("mosquitto_pub", "-t", "open/x", "-m", "x", "-q", "1", code=None)
        assert done.returncode != 0
        assert b"bad user name or password" in done.stderr.lower()

    def test_a_forbidden_filter_is_refused(self, guarded_addresses: dict[str, Address], version: int) -> None:
        tools = self.tools(guarded_addresses, version, "alice", PASSWORDS["alice"])
        done = tools.run("mosquitto_sub", "-t", "house/bob/#", code=None)
        assert b"All subscription requests were denied" in done.stderr + done.stdout

    def test_a_certificate_names_the_user(
        self,
        guarded_addresses: dict[str, Address],
        version: int,
        topic: str,
        alice_certificate: Certificate,
    ) -> None:
        tools = Tools(guarded_addresses["tls"], version, alice_certificate)
        tools.publish(f"house/alice/{topic}", b"certified", 1, "-r")
        assert tools.fetch(1, "-t", f"house/alice/{topic}")[0]["payload"] == "certified"
        tools.clear(f"house/alice/{topic}")

    def test_nobody_comes_in_without_a_certificate(
        self, guarded_addresses: dict[str, Address], version: int
    ) -> None:
        done = Tools(guarded_addresses["tls"], version).run(
            "mosquitto_pub", "-t", "open/x", "-m", "x", "-q", "1", code=None
        )
        assert done.returncode != 0
