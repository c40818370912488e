"""What reaches the topic space by another exchange: its subscribers know it by the topic that they subscribed to, and every right is
asked for that topic. Queues keep it by the name under which it was published."""

from __future__ import annotations

import pytest
from amqp091_declarations import declare, find
from amqp091_traffic import publish
from amqp091_world import AmqpPeer, AmqpWorld
from fakes import FakeLine, FakeOutlet

from millstream.broker.fan_out import RECEIVERS_AT_ONCE
from millstream.broker.queue_access import ConsumeRequest
from millstream.broker.session import Session
from millstream.protocols.amqp091.wire.properties import BasicProperties
from millstream.routing.subscription import Subscription
from millstream.security.acl import parse_acl

EVERYTHING = ["#", "$queue/#"]


def rules(ben: list[str], denied: list[str] | None = None) -> object:
    listed: list[object] = [
        {"allow": "all", "topics": EVERYTHING, "users": ["anonymous"]},
        {"allow": "subscribe", "topics": ben, "users": ["ben"]},
    ]
    if denied:
        listed.append({"deny": "subscribe", "topics": denied, "users": ["ben"]})
    return {"rules": listed}


class SpaceWorld(AmqpWorld):
    """The exchange x leads to the topic space by a binding, y as an alternate, and to the queue q with another key."""

    def __init__(self, ben: list[str]) -> None:
        super().__init__(rules=rules(ben))
        access = self.account.exchanges
        access.declare("x", "direct", True, False, False, {})
        access.declare("y", "direct", True, False, False, {"alternate-exchange": "amq.topic"})
        for key in (b"plant.a", b"office.a"):
            access.bind_exchange("amq.topic", "x", key, {})
        self.peer = self.client()
        self.peer.open_channel()

    def listen(self, filter: bytes, user: str = "ben", window: int = 100) -> tuple[Session, FakeLine]:
        session, line = self.connect(f"listener of {filter!r}", user=user, window=window)
        self.subscribe(session, filter, 1)
        return session, line

    def send(self, key: bytes, exchange: bytes = b"x", *copies: bytes) -> None:
        headers: dict[bytes, object] = {b"CC": list(copies)} if copies else {}
        properties = BasicProperties(delivery_mode=2, headers=headers)
        self.peer.receive(publish(key, b"x", exchange, properties))
        self.settle_down()

    def deny(self, ben: list[str], denied: list[str]) -> None:
        self.authorizer.replace(parse_acl(rules(ben, denied)))
        self.account.on_rights_changed()
        self.settle_down()


def topics_of(line: FakeLine) -> list[bytes]:
    return [delivery.message.topic for delivery in line.deliveries]


@pytest.mark.parametrize("filter", [b"plant/#", b"$share/g/plant/#"])
@pytest.mark.parametrize("exchange", [b"x", b"y"])
def test_a_subscriber_gets_it_by_the_topic_that_it_subscribed_to(exchange: bytes, filter: bytes) -> None:
    world = SpaceWorld(["plant/#"])
    _, line = world.listen(filter)
    world.send(b"plant.a", exchange)
    assert topics_of(line) == [b"plant/a"]


def test_a_queue_keeps_it_by_the_name_under_which_it_was_published() -> None:
    world = SpaceWorld(["plant/#"])
    declare(world.peer.endpoint)
    world.account.exchanges.bind_queue(find(world), "amq.topic", b"plant.#", {})
    outlet = FakeOutlet()
    world.account.router.subscribe(Subscription(outlet, b"#", b"", 1, False, False, 0))
    session, line = world.connect("consumer", user="anonymous")
    wanted = Subscription(session, b"$queue/q", b"", 1, False, False, 0)
    world.broker.consume(session, wanted, ConsumeRequest("g", 1, 0, False, False, b""))
    world.send(b"plant.a")
    assert [message.topic for message in outlet.messages] == [b"plant/a"]
    assert topics_of(line) == [b"$queue/q/x/plant/a"]


def test_one_that_waits_is_not_handed_out_when_the_right_to_its_topic_is_gone() -> None:
    world = SpaceWorld(["#"])
    session, line = world.listen(b"plant/#", window=1)
    for _ in range(3):
        world.send(b"plant.a")
    assert session.queued_count() == 2
    world.deny(["#"], ["plant/#"])
    session.on_settled(line.deliveries[0].packet_id, line.deliveries[0].phase)
    assert topics_of(line) == [b"plant/a"]
    assert session.queued_count() == 0
    assert world.account.counters.deliveries_denied == 2


def test_one_that_waits_is_handed_out_by_the_right_to_its_topic_alone() -> None:
    world = SpaceWorld(["plant/#"])
    session, line = world.listen(b"plant/#", window=1)
    for _ in range(2):
        world.send(b"plant.a")
    session.on_settled(line.deliveries[0].packet_id, line.deliveries[0].phase)
    assert topics_of(line) == [b"plant/a"] * 2


def test_a_member_that_leaves_hands_it_over_to_others_of_its_group() -> None:
    world = SpaceWorld(["plant/#"])
    session, line = world.listen(b"$share/g/plant/#")
    world.send(b"plant.a")
    other, other_line = world.connect("other", user="ben")
    world.subscribe(other, b"$share/g/plant/#", 1)
    world.broker.close_line(session, line, False)
    assert topics_of(other_line) == [b"plant/a"]


@pytest.mark.parametrize(("key", "copy"), [(b"plant.a", b"office.a"), (b"elsewhere", b"plant.a")])
def test_one_with_several_keys_goes_by_the_first_that_leads_to_the_topic_space(
    key: bytes, copy: bytes
) -> None:
    world = SpaceWorld(["plant/#", "office/#"])
    _, line = world.listen(b"#", user="anonymous")
    _, narrow = world.listen(b"plant/#")
    world.send(key, b"x", copy)
    assert topics_of(line) == [b"plant/a"]
    assert topics_of(narrow) == [b"plant/a"]


def test_very_many_subscribers_get_it_by_their_topic_too() -> None:
    world = SpaceWorld(["plant/#"])
    outlets = [FakeOutlet(str(number)) for number in range(int(RECEIVERS_AT_ONCE) + 1)]
    for outlet in outlets:
        world.account.router.subscribe(Subscription(outlet, b"plant/#", b"", 1, False, False, 0))
    world.send(b"plant.a")
    assert {message.topic for outlet in outlets for message in outlet.messages} == {b"plant/a"}


def overflow(peer: AmqpPeer) -> None:
    properties = BasicProperties(delivery_mode=2)
    peer.receive(publish(b"q", b"x", b"", properties))


def test_a_dead_letter_goes_by_the_topic_too() -> None:
    world = SpaceWorld(["plant/#"])
    arguments = {
        b"x-max-length": 1,
        b"x-dead-letter-exchange": b"x",
        b"x-dead-letter-routing-key": b"plant.a",
    }
    declare(world.peer.endpoint, arguments=arguments)
    _, line = world.listen(b"plant/#")
    _, shared = world.listen(b"$share/g/plant/#")
    overflow(world.peer)
    overflow(world.peer)
    world.settle_down()
    assert topics_of(line) == topics_of(shared) == [b"plant/a"]
