"""Messages between clients nobody here wrote: QoS, order, size, retained, wills, shared and overlapping filters."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest
from foreign_client import Received, Will
from links import EACH_CLIENT, EVERY_LINK, PAIRS, Link, links, runnable

if TYPE_CHECKING:
    from guests import Guests

pytest_plugins = ["interop_fixtures"]

LARGE_BYTES = 900 * 1024


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def payloads_of(messages: list[Received]) -> list[bytes]:
    return [message.payload for message in messages]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("link", EVERY_LINK)
def test_messages_go_round_at_every_qos(guests: Guests, topic: str, link: Link, qos: int) -> None:
    client = guests.join(link)
    assert client.subscribe(topic, qos) == qos
    client.publish_all(topic, numbered(20), qos, retain=False, properties=None)
    messages = client.take(20)
    assert payloads_of(messages) == numbered(20)
    assert {(message.topic, message.qos, message.retain) for message in messages} == {(topic, qos, False)}


@pytest.mark.parametrize(("published", "subscribed"), [(0, 2), (1, 0), (1, 2), (2, 0), (2, 1)])
@pytest.mark.parametrize("link", EACH_CLIENT)
def test_the_lower_qos_of_both_sides_counts(
    guests: Guests, topic: str, link: Link, published: int, subscribed: int
) -> None:
    client = guests.join(link)
    assert client.subscribe(topic, subscribed) == subscribed
    client.publish(topic, b"x", published)
    assert client.take_one().qos == min(published, subscribed)


@pytest.mark.parametrize("qos", [0, 2])
@pytest.mark.parametrize("link", EVERY_LINK)
def test_a_large_payload_arrives_whole(guests: Guests, topic: str, link: Link, qos: int) -> None:
    client = guests.join(link)
    client.subscribe(topic, qos)
    payload = random.Random(7).randbytes(LARGE_BYTES)
    client.publish(topic, payload, qos)
    assert client.take_one().payload == payload


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("link", links(transports=["tcp", "wss"]))
def test_many_messages_keep_their_order(guests: Guests, topic: str, link: Link, qos: int) -> None:
    subscriber, publisher = guests.join(link), guests.join(link)
    subscriber.subscribe(f"{topic}/#", qos)
    publisher.publish_all(f"{topic}/deep/er", numbered(500), qos, retain=False, properties=None)
    assert payloads_of(subscriber.take(500)) == numbered(500)


@pytest.mark.parametrize(("publisher_link", "subscriber_link"), PAIRS)
def test_clients_of_different_makes_and_versions_understand_each_other(
    guests: Guests, topic: str, publisher_link: Link, subscriber_link: Link
) -> None:
    publisher, subscriber = guests.join(publisher_link), guests.join(subscriber_link)
    subscriber.subscribe(f"{topic}/+", 2)
    for qos in (0, 1, 2):
        publisher.publish(f"{topic}/größe", f"{qos} µ".encode(), qos)
        message = subscriber.take_one()
        assert message == Received(f"{topic}/größe", f"{qos} µ".encode(), qos, False)


@pytest.mark.parametrize("link", EVERY_LINK)
def test_a_retained_message_meets_later_subscribers_until_it_is_cleared(
    guests: Guests, topic: str, link: Link
) -> None:
    publisher = guests.join(link)
    publisher.publish(topic, b"old", 1, retain=True)
    publisher.publish(topic, b"kept", 1, retain=True)
    early = guests.join(link)
    early.subscribe(topic, 1)
    assert early.take_one() == Received(topic, b"kept", 1, True)
    publisher.publish(topic, b"", 1, retain=True)
    assert early.take_one() == Received(topic, b"", 1, False)
    late = guests.join(link)
    late.subscribe(topic, 1)
    publisher.publish(topic, b"now", 1)
    assert late.take_one().payload == b"now"


@pytest.mark.parametrize("qos", [0, 2])
@pytest.mark.parametrize("link", EVERY_LINK)
def test_a_will_is_sent_when_the_connection_is_lost(guests: Guests, topic: str, link: Link, qos: int) -> None:
    observer = guests.join(link)
    observer.subscribe(topic, 2)
    lost = guests.join(link, will=Will(topic, b"gone", qos))
    lost.cut()
    assert observer.take_one() == Received(topic, b"gone", qos, False)


@pytest.mark.parametrize("link", EACH_CLIENT)
def test_a_retained_will_meets_later_subscribers(guests: Guests, topic: str, link: Link) -> None:
    observer = guests.join(link)
    observer.subscribe(topic, 1)
    guests.join(link, will=Will(topic, b"gone", 1, retain=True)).cut()
    observer.take_one()
    late = guests.join(link)
    late.subscribe(topic, 1)
    assert late.take_one() == Received(topic, b"gone", 1, True)
    late.publish(topic, b"", retain=True)


@pytest.mark.parametrize("link", EVERY_LINK)
def test_no_will_is_sent_after_a_proper_disconnect(guests: Guests, topic: str, link: Link) -> None:
    observer = guests.join(link)
    observer.subscribe(f"{topic}/#", 1)
    guests.join(link, will=Will(f"{topic}/will", b"gone", 1)).disconnect()
    guests.join(link, will=Will(f"{topic}/last", b"cut", 1)).cut()
    assert observer.take_one().payload == b"cut"


@pytest.mark.parametrize("link", EACH_CLIENT)
def test_nothing_comes_after_unsubscribe(guests: Guests, topic: str, link: Link) -> None:
    client = guests.join(link)
    client.subscribe(f"{topic}/a", 1)
    client.subscribe(f"{topic}/b", 1)
    client.unsubscribe(f"{topic}/a")
    client.publish(f"{topic}/a", b"unwanted", 1)
    client.publish(f"{topic}/b", b"wanted", 1)
    assert client.take_one().payload == b"wanted"


@pytest.mark.parametrize("link", EACH_CLIENT)
def test_overlapping_subscriptions_give_one_copy_at_the_highest_qos(
    guests: Guests, topic: str, link: Link
) -> None:
    client = guests.join(link)
    client.subscribe(f"{topic}/#", 0)
    client.subscribe(f"{topic}/+", 2)
    client.subscribe(f"{topic}/x", 1)
    client.publish(f"{topic}/x", b"overlap", 2)
    client.publish(f"{topic}/x", b"end", 2)
    assert [(one.payload, one.qos) for one in client.take(2)] == [(b"overlap", 2), (b"end", 2)]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("link", EACH_CLIENT)
def test_a_shared_subscription_gives_each_message_to_one_member(
    guests: Guests, topic: str, link: Link, qos: int
) -> None:
    members = [guests.join(link) for _ in range(3)]
    for member in members:
        assert member.subscribe(f"$share/group/{topic}/+", qos) == qos
        member.subscribe(f"{topic}-end", qos)
    publisher = guests.join(link)
    publisher.publish_all(f"{topic}/x", numbered(60), qos, retain=False, properties=None)
    publisher.publish(f"{topic}-end", b"end", qos)
    shares = []
    for member in members:
        share = []
        while (message := member.take_one()).payload != b"end":
            share.append(message.payload)
        shares.append(share)
    assert sorted(itertools.chain(*shares), key=int) == numbered(60)
    assert all(len(share) > 0 for share in shares)
    assert all(share == sorted(share, key=int) for share in shares)


@pytest.mark.parametrize("version", [4, 5])
def test_a_share_group_takes_members_of_every_make(guests: Guests, topic: str, version: int) -> None:
    members = [guests.join(link) for link in runnable(links(["tcp"], [version]))]
    for member in members:
        member.subscribe(f"$share/mixed/{topic}", 1)
        member.subscribe(f"{topic}/end", 1)
    members[0].publish_all(topic, numbered(40), 1, retain=False, properties=None)
    members[0].publish(f"{topic}/end", b"end", 1)
    taken = []
    for member in members:
        while (message := member.take_one()).payload != b"end":
            taken.append(message.payload)
    assert sorted(taken, key=int) == numbered(40)


@pytest.mark.parametrize("link", EACH_CLIENT)
def test_topics_of_the_broker_itself_do_not_come_through_a_leading_wildcard(
    guests: Guests, topic: str, link: Link
) -> None:
    client = guests.join(link)
    client.subscribe("$SYS/broker/version", 0)
    version = client.take_one()
    assert version.topic == "$SYS/broker/version"
    assert version.retain
    other = guests.join(link)
    other.subscribe("+/broker/version", 0)
    other.publish("plain/broker/version", topic.encode())
    assert other.take_one().topic == "plain/broker/version"
