"""Consumers of queues that a session keeps: their right is asked again after a start, and when the session is resumed."""

from __future__ import annotations

import pytest
from fakes import START_NS, make_message
from logged_store import LoggedStore
from queue_world import QueueBroker

from millstream.broker.tasks import STEPS_PER_SLICE
from millstream.security.acl import Authorizer, parse_acl

TOPICS = (b"$queue/q", b"$queue/kept")


def may(*topics: str) -> Authorizer:
    return Authorizer(parse_acl({"rules": [{"allow": "all", "topics": list(topics)}]}))


@pytest.fixture
def store() -> LoggedStore:
    """With a session that consumes from two queues, and was allowed to."""
    store = LoggedStore()
    world = QueueBroker(store=store, authorizer=may("$queue/#"))
    session, _ = world.connect("c")
    for topic in TOPICS:
        world.consume(session, topic)
    world.drop(session)
    return store


def start(store: LoggedStore, authorizer: Authorizer) -> QueueBroker:
    world = QueueBroker(store=store, authorizer=authorizer)
    world.broker.restore(START_NS)
    return world


def verdicts(world: QueueBroker) -> list[bool]:
    consumers = world.account.sessions["c"].consumers
    assert consumers is not None
    return [consumer.is_allowed for consumer in consumers.by_name.values()]


def got(world: QueueBroker) -> list[bytes]:
    """What comes to the session when it is back, of one message in each of its queues."""
    _, line = world.connect("c")
    for topic in TOPICS:
        world.put(topic, topic=topic)
    return line.payloads()


def test_a_start_asks_for_the_rights_of_restored_consumers(store: LoggedStore) -> None:
    world = start(store, may("$queue/kept"))
    world.account.review_rights()
    assert verdicts(world) == [False, True]
    assert got(world) == [b"$queue/kept"]
    assert world.queue("q").ready() == 1


def test_consumers_whose_right_is_still_there_go_on_after_a_start(store: LoggedStore) -> None:
    world = start(store, may("$queue/#"))
    world.account.review_rights()
    assert got(world) == list(TOPICS)


def test_a_resumed_session_gets_nothing_from_a_queue_whose_right_is_gone(store: LoggedStore) -> None:
    world = start(store, may("$queue/#"))
    world.account.review_rights()
    world.authorizer.replace(parse_acl({"rules": [{"allow": "all", "topics": ["$queue/kept"]}]}))
    assert got(world) == [b"$queue/kept"]  # before anybody told of the change
    assert verdicts(world) == [False, True]


def test_a_resumed_session_has_back_what_its_rights_allow_again(store: LoggedStore) -> None:
    world = start(store, may("$queue/kept"))
    world.account.review_rights()
    world.authorizer.replace(parse_acl({"rules": [{"allow": "all", "topics": ["$queue/#"]}]}))
    assert got(world) == list(TOPICS)


def test_very_many_consumers_are_asked_again_in_slices_and_all_of_them() -> None:
    world = QueueBroker(authorizer=may("$queue/#"))
    session, line = world.connect("c")
    count = int(STEPS_PER_SLICE)
    for number in range(count):
        world.consume(session, b"$queue/q%d" % number)
    world.authorizer.replace(parse_acl({"rules": [{"allow": "all", "topics": ["other"]}]}))
    world.account.on_rights_changed()
    consumers = session.consumers
    assert consumers is not None
    allowed = [consumer.is_allowed for consumer in consumers.by_name.values()]
    assert 0 < sum(allowed) < count
    while world.broker.tasks.work_off():
        pass
    assert not any(consumer.is_allowed for consumer in consumers.by_name.values())
    world.queue("q0").append(make_message(b"$queue/q0"))
    world.loop()
    assert line.deliveries == []


def test_a_few_consumers_are_asked_again_on_the_spot() -> None:
    world = QueueBroker(authorizer=may("$queue/#"))
    session, _ = world.connect("c")
    for topic in TOPICS:
        world.consume(session, topic)
    world.authorizer.replace(parse_acl({"rules": [{"allow": "all", "topics": ["$queue/kept"]}]}))
    world.account.on_rights_changed()
    assert verdicts(world) == [False, True]
