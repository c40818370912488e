"""What MQTT 5 adds, as clients nobody here wrote see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from foreign_client import ForeignClient, Properties, Received, Will
from gmqtt_client import GmqttClient
from links import EACH_CLIENT_5, EVERY_LINK_5, KINDS, Link, links, marks_of, runnable
from mqttjs_client import MqttJsClient
from paho_client import PahoClient

if TYPE_CHECKING:
    from guests import Guests

pytest_plugins = ["interop_fixtures"]

# MQTT.js keeps user properties in an object: the order of values with one name, and of first names.
USER = (("a", "1"), ("a", "2"), ("a", "2"), ("ä", "ö"), ("b", ""), ("c", "3"))
MIXED_USER = (("b", "1"), ("a", "2"), ("b", "1"), ("a", "2"), ("a", "1"), ("", "empty"))
FULL = Properties(
    content_type="text/plain; charset=utf-8",
    response_topic="where/to/answer",
    correlation_data=bytes(range(256)),
    is_text=True,
    user=USER,
)


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("link", EVERY_LINK_5)
def test_properties_arrive_as_they_were_sent(guests: Guests, topic: str, link: Link, qos: int) -> None:
    client = guests.join(link)
    client.subscribe(topic, qos)
    client.publish(topic, b"text", qos, properties=FULL)
    assert client.take_one() == Received(topic, b"text", qos, False, FULL)


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize(
    "link", links(versions=[5], transports=["tcp", "tls"], kinds=[k for k in KINDS if k is not MqttJsClient])
)
def test_user_properties_keep_order_and_duplicates(
    guests: Guests, topic: str, link: Link, retain: bool
) -> None:
    client = guests.join(link)
    properties = Properties(user=MIXED_USER)
    if retain:
        client.publish(topic, b"x", 1, retain=True, properties=properties)
    client.subscribe(topic, 1)
    if not retain:
        client.publish(topic, b"x", 1, properties=properties)
    assert client.take_one().properties.user == MIXED_USER
    client.publish(topic, b"", 1, retain=True)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(first, second, id=f"{first.name}-{second.name}", marks=marks_of(first, second))
        for first in KINDS
        for second in KINDS
    ],
)
def test_a_request_finds_its_response(
    guests: Guests, topic: str, first: type[ForeignClient], second: type[ForeignClient]
) -> None:
    asking, answering = guests.join(Link(first, "tcp", 5)), guests.join(Link(second, "tcp", 5))
    answering.subscribe(f"{topic}/request", 1)
    asking.subscribe(f"{topic}/response", 1)
    asked = Properties(response_topic=f"{topic}/response", correlation_data=b"\x00\xff17")
    asking.publish(f"{topic}/request", b"6 * 7", 1, properties=asked)
    request = answering.take_one()
    assert request.properties == asked
    assert request.properties.response_topic is not None
    answer = Properties(correlation_data=request.properties.correlation_data)
    answering.publish(request.properties.response_topic, b"42", 1, properties=answer)
    assert asking.take_one() == Received(f"{topic}/response", b"42", 1, False, answer)


@pytest.mark.parametrize("link", EACH_CLIENT_5)
def test_a_message_names_all_subscriptions_it_matches(guests: Guests, topic: str, link: Link) -> None:
    client = guests.join(link)
    client.subscribe(f"{topic}/#", 1, identifier=1)
    client.subscribe(f"{topic}/+", 2, identifier=268_435_455)
    client.subscribe(f"{topic}/b", 0, identifier=300)
    client.subscribe(f"{topic}/none", 0)
    client.publish(f"{topic}/a", b"", 2)
    client.publish(f"{topic}/b", b"", 2)
    client.publish(f"{topic}/none/at/all", b"", 2)
    found = [sorted(one.properties.subscription_ids) for one in client.take(3)]
    assert found == [[1, 268_435_455], [1, 300, 268_435_455], [1]]


def test_stored_messages_age_and_expire(guests: Guests, topic: str) -> None:
    all_links = runnable(EACH_CLIENT_5)
    away = [guests.join(link, clean=False) for link in all_links]
    for client in away:
        client.subscribe(f"{topic}/#", 1)
        client.disconnect()
    publisher = guests.join(Link(PahoClient, "tcp", 5), keep_alive_s=1)
    for retain in (False, True):
        publisher.publish(f"{topic}/brief", b"brief", 1, retain=retain, properties=Properties(expiry_s=1))
        publisher.publish(f"{topic}/long", b"long", 1, retain=retain, properties=Properties(expiry_s=1000))
    publisher.inbox.wait_pings(3)  # the time that has to pass
    for link, gone in zip(all_links, away, strict=True):
        back = guests.join(link, client_id=gone.options.client_id, clean=False)
        late = guests.join(link)
        late.subscribe(f"{topic}/#", 1)
        for message in (*back.take(2), late.take_one()):
            assert message.payload == b"long"
            assert message.properties.expiry_s is not None
            assert 900 < message.properties.expiry_s < 1000
        publisher.publish(f"{topic}/end", b"end", 1)
        assert [back.take_one().payload, late.take_one().payload] == [b"end", b"end"]
        back.disconnect()
    publisher.publish(f"{topic}/long", b"", retain=True)


@pytest.mark.parametrize("link", EACH_CLIENT_5)
def test_no_local_keeps_own_messages_away(guests: Guests, topic: str, link: Link) -> None:
    client, other = guests.join(link), guests.join(link)
    client.subscribe(topic, 1, no_local=True)
    client.publish(topic, b"own", 1)
    other.publish(topic, b"other's", 1)
    assert client.take_one().payload == b"other's"


@pytest.mark.parametrize("link", EACH_CLIENT_5)
def test_retain_as_published_shows_the_flag_as_it_was_sent(guests: Guests, topic: str, link: Link) -> None:
    client, plain = guests.join(link), guests.join(link)
    client.subscribe(topic, 1, retain_as_published=True)
    plain.subscribe(topic, 1)
    client.publish(topic, b"flagged", 1, retain=True)
    client.publish(topic, b"", 1, retain=True)
    assert [message.retain for message in client.take(2)] == [True, True]
    assert [message.retain for message in plain.take(2)] == [False, False]


@pytest.mark.parametrize("link", EACH_CLIENT_5)
def test_retain_handling_decides_when_retained_messages_come(guests: Guests, topic: str, link: Link) -> None:
    client = guests.join(link)
    client.publish(topic, b"kept", 1, retain=True)
    client.subscribe(topic, 1, retain_handling=2)
    client.publish(f"{topic}", b"live 1", 1)
    client.subscribe(topic, 1, retain_handling=1)
    client.publish(f"{topic}", b"live 2", 1)
    client.subscribe(topic, 1, retain_handling=0)
    assert [message.payload for message in client.take(3)] == [b"live 1", b"live 2", b"kept"]
    client.unsubscribe(topic)
    client.subscribe(topic, 1, retain_handling=1)
    assert client.take_one() == Received(topic, b"kept", 1, True)
    client.publish(topic, b"", retain=True)


@pytest.mark.parametrize("link", EVERY_LINK_5)
def test_a_will_carries_its_properties(guests: Guests, topic: str, link: Link) -> None:
    observer = guests.join(link)
    observer.subscribe(topic, 1)
    guests.join(link, will=Will(topic, b"gone", 1, properties=FULL)).cut()
    assert observer.take_one() == Received(topic, b"gone", 1, False, FULL)


@pytest.mark.parametrize("kind", [pytest.param(k, id=k.name, marks=marks_of(k)) for k in KINDS])
def test_a_client_may_use_topic_aliases(guests: Guests, topic: str, kind: type[ForeignClient]) -> None:
    client, observer = guests.join(Link(kind, "tcp", 5)), guests.join(Link(PahoClient, "tcp", 4))
    observer.subscribe(f"{topic}/#", 1)
    alias = Properties(topic_alias=3)
    client.publish(f"{topic}/first", b"1", 1, properties=alias)
    client.publish("", b"2", 1, properties=alias)
    client.publish(f"{topic}/second", b"3", 1, properties=alias)
    client.publish("", b"4", 1, properties=alias)
    assert [(one.topic, one.payload) for one in observer.take(4)] == [
        (f"{topic}/first", b"1"),
        (f"{topic}/first", b"2"),
        (f"{topic}/second", b"3"),
        (f"{topic}/second", b"4"),
    ]


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize(
    "kind", [pytest.param(k, id=k.name, marks=marks_of(k)) for k in (GmqttClient, MqttJsClient)]
)
def test_topic_aliases_of_the_broker_are_understood(
    guests: Guests, topic: str, kind: type[ForeignClient], qos: int
) -> None:
    client = guests.join(Link(kind, "tcp", 5), topic_alias_max=2)
    client.subscribe(f"{topic}/#", qos)
    publisher = guests.join(Link(PahoClient, "tcp", 4))
    topics = [f"{topic}/{name}" for name in ("a", "b", "c", "a", "b", "c", "a", "a", "b", "c")]
    for number, name in enumerate(topics):
        publisher.publish(name, b"%d" % number, qos)
    assert [(one.topic, one.payload) for one in client.take(10)] == [
        (name, b"%d" % number) for number, name in enumerate(topics)
    ]
    if isinstance(client, MqttJsClient):
        assert client.aliases, "the broker used none"
