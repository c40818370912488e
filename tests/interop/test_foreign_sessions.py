"""Sessions of clients nobody here wrote: resume, offline messages, takeover, keep alive."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from foreign_client import ForeignClient, Received, Will
from links import EACH_CLIENT, EVERY_LINK, KINDS, Link, links, marks_of, runnable
from mqttjs_client import MqttJsClient
from paho_client import PahoClient

if TYPE_CHECKING:
    from guests import Guests

pytest_plugins = ["interop_fixtures"]

SESSION_TAKEN_OVER = 0x8E


def again(guests: Guests, client: ForeignClient, **changes: object) -> tuple[ForeignClient, bool | None]:
    """The same client, connected anew, and whether the broker still had its session."""
    options = replace(client.options, **changes)  # type: ignore[arg-type]
    link = Link(type(client), client.address.transport, options.version)
    values = {name: value for name, value in vars(options).items() if name != "version"}
    new = guests.make(link, **values)
    return new, new.connect()


@pytest.mark.parametrize("leave", ["disconnect", "cut"])
@pytest.mark.parametrize("link", EVERY_LINK)
def test_a_resumed_session_gets_what_came_meanwhile_in_order(
    guests: Guests, topic: str, link: Link, leave: str
) -> None:
    client = guests.join(link, clean=False)
    assert client.subscribe(f"{topic}/#", 2) == 2
    getattr(client, leave)()
    publisher = guests.join(link)
    for number in range(12):
        publisher.publish(f"{topic}/{number}", b"%d" % number, 1 + number % 2)
    client, session_present = again(guests, client)
    assert session_present in (True, None)
    messages = client.take(12)
    for qos in (1, 2):  # a client may hold QoS 2 back until PUBREL: order is promised within a QoS only
        assert [one.payload for one in messages if one.qos == qos] == [
            b"%d" % n for n in range(qos - 1, 12, 2)
        ]
    publisher.publish(f"{topic}/live", b"live", 2)
    assert client.take_one().payload == b"live"


@pytest.mark.parametrize("link", EACH_CLIENT)
def test_a_clean_start_ends_the_old_session(guests: Guests, topic: str, link: Link) -> None:
    client = guests.join(link, clean=False)
    client.subscribe(f"{topic}/old", 1)
    client.disconnect()
    publisher = guests.join(link)
    publisher.publish(f"{topic}/old", b"lost", 1)
    client, session_present = again(guests, client, clean=True)
    assert session_present in (False, None)
    client.subscribe(f"{topic}/new", 1)
    publisher.publish(f"{topic}/old", b"lost", 1)
    publisher.publish(f"{topic}/new", b"new", 1)
    assert client.take_one().payload == b"new"


@pytest.mark.parametrize("link", EACH_CLIENT)
def test_a_session_outlives_a_change_of_make_and_version(guests: Guests, topic: str, link: Link) -> None:
    client = guests.join(link, clean=False)
    client.subscribe(topic, 1)
    client.disconnect()
    guests.join(link).publish(topic, b"kept", 1)
    heir = guests.make(
        Link(PahoClient, "ws", 9 - link.version), client_id=client.options.client_id, clean=False
    )
    assert heir.connect() is True
    assert heir.take_one().payload == b"kept"


@pytest.mark.parametrize("link", EVERY_LINK)
def test_a_second_connection_takes_the_client_id_over(guests: Guests, topic: str, link: Link) -> None:
    first = guests.join(link, clean=False)
    first.subscribe(topic, 1)
    second, session_present = again(guests, first)
    assert session_present in (True, None)
    assert first.inbox.wait_closed() == (SESSION_TAKEN_OVER if link.version == 5 else None)
    second.publish(topic, b"mine now", 1)
    assert second.take_one().payload == b"mine now"


@pytest.mark.parametrize("link", EACH_CLIENT)
def test_a_takeover_sends_the_will_of_the_first_connection(guests: Guests, topic: str, link: Link) -> None:
    observer = guests.join(link)
    observer.subscribe(topic, 1)
    first = guests.join(link, will=Will(topic, b"taken over", 1))
    again(guests, first, will=None)
    assert observer.take_one() == Received(topic, b"taken over", 1, False)
    first.inbox.wait_closed()


def test_pings_keep_quiet_connections_open(guests: Guests, topic: str) -> None:
    clients = [guests.join(link, keep_alive_s=1) for link in runnable(EVERY_LINK)]
    for client in clients:
        client.subscribe(topic, 1)
    for client in clients:
        client.inbox.wait_pings(2)
    clients[0].publish(topic, b"still here", 1)
    for client in clients:
        assert client.take_one().payload == b"still here"


def test_clients_that_fall_silent_are_closed_and_their_wills_sent(guests: Guests, topic: str) -> None:
    observer = guests.join(Link(PahoClient, "tcp", 5))
    observer.subscribe(f"{topic}/#", 1)
    expected = set()
    for link in runnable(links(["tcp", "ws"], kinds=[PahoClient, MqttJsClient])):
        name = f"{link.kind.name}-{link.transport}-{link.version}"
        expected.add(name)
        client = guests.join(link, keep_alive_s=1, will=Will(f"{topic}/{name}", name.encode(), 1))
        assert isinstance(client, PahoClient | MqttJsClient)
        client.fall_silent()
    assert {message.payload.decode() for message in observer.take(len(expected))} == expected


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name, marks=marks_of(kind)) for kind in KINDS])
def test_unsettled_messages_come_again_after_a_lost_connection(
    guests: Guests, topic: str, kind: type[ForeignClient], version: int
) -> None:
    client = guests.join(Link(kind, "tcp", version), clean=False)
    client.subscribe(topic, 2)
    publisher = guests.join(Link(PahoClient, "tcp", 5))
    payloads = [b"%d" % number for number in range(200)]
    publisher.publish_all(topic, payloads[:100], 1, retain=False, properties=None)
    client.take(10)
    client.cut()
    seen = {message.payload for message in client.inbox.take_waiting()}
    publisher.publish_all(topic, payloads[100:], 1, retain=False, properties=None)
    client, _ = again(guests, client)
    last = b""
    while last != payloads[-1]:
        last = client.take_one().payload
        seen.add(last)
    assert seen | set(payloads[:10]) == set(payloads)
