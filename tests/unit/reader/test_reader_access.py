"""What a caller may is asked of the broker and remembered for a moment; a wrong password never is."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.reader.access import CALLERS_MAX, READ, REMEMBERED_S, WRITE, Access, queue_topic
from millstream.reader.broker_link import BrokerLink
from millstream.reader.http import Credentials, HttpFault


class Desk(BrokerLink):
    """A broker that knows anna and what she may."""

    def __init__(self) -> None:
        super().__init__(Path("nowhere"))
        self.allowed = {"$queue/a", "$queue/b"}
        self.asked: list[tuple[str, list[str]]] = []
        self.is_busy = False

    def admit(self, credentials: Credentials, action: str, topics: list[str]) -> dict[str, object]:
        self.asked.append((action, topics))
        if credentials.username != "anna" or self.is_busy:
            return {"known": False, "busy": self.is_busy, "error": "not accepted"}
        refused = [topic for topic in topics if topic not in self.allowed]
        return {"known": True, "account": "default", "name": "anna", "refused": refused}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


ANNA = Credentials("anna", "secret")


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def access(desk: Desk, clock: Clock) -> Access:
    return Access(desk, clock)


def test_an_answer_is_remembered_for_two_seconds_and_no_longer(
    access: Access, desk: Desk, clock: Clock
) -> None:
    for _ in range(3):
        assert access.admit(ANNA, READ, ["$queue/a"]).account == "default"
    assert len(desk.asked) == 1
    desk.allowed.clear()
    clock.now += REMEMBERED_S
    with pytest.raises(HttpFault) as caught:
        access.admit(ANNA, READ, ["$queue/a"])
    assert caught.value.status == 403


def test_new_questions_do_not_lengthen_what_is_remembered(access: Access, desk: Desk, clock: Clock) -> None:
    access.admit(ANNA, READ, ["$queue/a"])
    clock.now += REMEMBERED_S - 0.1
    access.admit(ANNA, READ, ["$queue/b"])
    desk.allowed.clear()
    clock.now += 0.2
    with pytest.raises(HttpFault):
        access.admit(ANNA, READ, ["$queue/a"])


def test_reading_is_not_writing_and_another_secret_is_another_caller(access: Access, desk: Desk) -> None:
    access.admit(ANNA, READ, ["$queue/a"])
    access.admit(ANNA, WRITE, ["$queue/a"])
    access.admit(Credentials("anna", "other"), READ, ["$queue/a"])
    access.admit(Credentials("anna", "secret", address="elsewhere"), READ, ["$queue/a"])
    assert len(desk.asked) == 4


def test_a_refusal_names_the_topic_and_the_command_that_explains_it(access: Access) -> None:
    with pytest.raises(HttpFault) as caught:
        access.admit(ANNA, WRITE, ["$queue/a", "$queue/c"])
    assert caught.value.error == "'anna' may not publish to '$queue/c'"
    assert caught.value.hint == "millstream acl check anna publish '$queue/c'"


def test_a_wrong_password_is_asked_every_time(access: Access, desk: Desk) -> None:
    for _ in range(3):
        with pytest.raises(HttpFault) as caught:
            access.identify(Credentials("bob", "guess"))
        assert caught.value.status == 401
    assert len(desk.asked) == 3


def test_a_busy_broker_is_asked_again_later(access: Access, desk: Desk) -> None:
    desk.is_busy = True
    with pytest.raises(HttpFault) as caught:
        access.identify(ANNA)
    assert (caught.value.status, caught.value.retry_after_s) == (503, 5)


def test_many_topics_are_asked_in_parts(access: Access, desk: Desk) -> None:
    topics = [f"$queue/{number}" for number in range(2500)]
    desk.allowed = set(topics[::2])
    assert access.choose(ANNA, READ, topics) == [number % 2 == 0 for number in range(2500)]
    assert [len(part) for _, part in desk.asked] == [1000, 1000, 500]


def test_the_memory_is_bounded(access: Access) -> None:
    for number in range(CALLERS_MAX + 10):
        access.identify(Credentials("anna", str(number)))
    assert len(access._known) == CALLERS_MAX


def test_the_topic_of_a_queue_is_the_one_consumers_subscribe_to() -> None:
    assert queue_topic("jobs") == "$queue/jobs"
    assert queue_topic("$dlq/jobs") == "$dlq/jobs"
