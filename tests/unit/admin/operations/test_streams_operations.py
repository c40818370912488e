"""What the reader asks of the broker: streams, sealing, commits, and who may do what."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from control_world import ControlWorld

from millstream.admin.operations.streams import TOPICS_MAX
from millstream.app.control import stream_operations
from millstream.broker.conditions import CLIENT_BUSY
from millstream.model.errors import Reason, Unavailable
from millstream.runtime.control.server import ControlRefusal
from millstream.security.acl import Authorizer, parse_acl
from millstream.security.authentication import Credentials, Decision, Verdict
from millstream.security.principal import Principal

RULES = {
    "rules": [
        {"allow": "subscribe", "topics": ["$queue/a", "plant/#"]},
        {"allow": "publish", "topics": ["$queue/b", "$SYS/#"]},
    ]
}


class StreamWorld(ControlWorld):
    """Sealing folds at once; anna is known by her password."""

    def __init__(self, is_on_disk: bool = True, interval_s: float = 0.0) -> None:
        super().__init__(accounts=("other",))
        self.seals = 0
        self.shown: list[Credentials] = []
        seal = self._seal if is_on_disk else None
        self.operations.update(stream_operations(self.context, seal, self._decide, interval_s))
        self.broker.authorizer = Authorizer(parse_acl(RULES))

    async def _seal(self) -> None:
        self.seals += 1
        await asyncio.sleep(0)
        self.broker.on_folded(self.store.position())

    async def _decide(self, credentials: Credentials) -> Decision:
        self.shown.append(credentials)
        if credentials.password == b"secret":
            principal = Principal(credentials.username or "token", "default", "user")
            return Decision(Verdict.ALLOWED, principal, Reason.SUCCESS, "")
        if credentials.password == b"busy":
            return Decision(Verdict.DENIED, None, Reason.SERVER_BUSY, "too many logins at once, try again")
        return Decision(Verdict.DENIED, None, Reason.BAD_CREDENTIALS, "no user of that name")

    async def names(self, **fields: object) -> list[str]:
        answer: Any = await self.ask("stream.list", **fields)
        return [stream["name"] for stream in answer["streams"]]


async def test_streams_are_listed_in_pages_and_other_queues_are_not() -> None:
    world = StreamWorld()
    for name in ("c", "a", "b"):
        await world.fill(name, 1, "stream")
    await world.fill("work", 1)
    assert await world.names() == ["a", "b", "c"]
    assert (await world.ask("stream.list", limit=2))["more"] is True
    assert await world.names(limit=2) == ["a", "b"]
    assert await world.names(after="b") == ["c"]
    assert await world.names(account="other") == []


async def test_a_stream_is_shown_and_what_is_none_says_why() -> None:
    world = StreamWorld()
    await world.fill("s", 3, "stream")
    await world.fill("w", 3)
    shown = (await world.ask("stream.show", name="s"))["stream"]
    assert (shown["first"], shown["end"], shown["next"]) == (0, 0, 3)
    assert "no queue 'x'" in (await world.ask("stream.show", name="x"))["error"]
    assert "'w' is a work queue" in (await world.ask("stream.show", name="w"))["error"]


async def test_sealing_moves_the_end_to_what_is_durable() -> None:
    world = StreamWorld()
    await world.fill("s", 300, "stream")
    assert await world.ask("stream.seal") == {"sealed": 1}
    assert (await world.ask("stream.show", name="s"))["stream"]["end"] == 300


async def test_without_anything_new_nothing_is_sealed() -> None:
    world = StreamWorld(is_on_disk=True)
    await world.fill("s", 3, "stream")
    await world.ask("stream.seal")
    assert await world.ask("stream.seal") == {"sealed": 0}
    assert await world.ask("stream.seal", name="s") == {"sealed": 0}
    assert await world.ask("stream.seal", name="none") == {"sealed": 0}
    assert await world.ask("stream.seal", account="other") == {"sealed": 0}
    assert world.seals == 1


async def test_those_who_come_within_the_interval_wait_for_its_end() -> None:
    world = StreamWorld(interval_s=0.05)
    loop = asyncio.get_running_loop()
    await world.fill("s", 3, "stream")
    began = loop.time()
    await world.ask("stream.seal")
    await world.fill("t", 3, "stream")
    await asyncio.gather(*[world.ask("stream.seal") for _ in range(5)])
    assert loop.time() - began >= 0.05
    assert (await world.ask("stream.show", name="t"))["stream"]["end"] == 3


async def test_in_memory_there_is_nothing_to_seal_into() -> None:
    world = StreamWorld(is_on_disk=False)
    await world.fill("s", 3, "stream")
    with pytest.raises(Unavailable, match="memory"):
        await world.ask("stream.seal")


async def test_a_commit_makes_the_group_and_never_moves_it_back() -> None:
    world = StreamWorld()
    await world.fill("s", 10, "stream")
    for offset, committed in ((4, 4), (2, 4), (0, 4), (10, 10)):
        answer = await world.ask("stream.commit", name="s", group="spark", offset=offset)
        assert answer == {"committed": committed}


@pytest.mark.parametrize(
    "fields",
    [
        {"group": "g", "offset": 11},
        {"group": "g", "offset": -1},
        {"group": "g", "offset": True},
        {"group": "g", "offset": 1.5},
        {"group": "g"},
        {"group": "", "offset": 1},
        {"group": "a@b", "offset": 1},
        {"group": "a\nb", "offset": 1},
        {"group": "x" * 257, "offset": 1},
        {"offset": 1},
    ],
)
async def test_a_commit_that_makes_no_sense_is_refused(fields: dict[str, object]) -> None:
    world = StreamWorld()
    await world.fill("s", 10, "stream")
    with pytest.raises(ControlRefusal):
        await world.ask("stream.commit", name="s", **fields)
    assert not world.queue("s").groups


async def test_a_work_queue_takes_no_commit() -> None:
    world = StreamWorld()
    await world.fill("w", 3)
    with pytest.raises(ControlRefusal, match="only groups of streams"):
        await world.ask("stream.commit", name="w", group="g", offset=1)


async def test_rights_are_those_of_subscribers_and_publishers() -> None:
    world = StreamWorld()
    anna = {"username": "anna", "password": "secret"}
    topics = ["$queue/a", "$queue/b", "plant/1", "plant/#/x", ""]
    answer = await world.ask("stream.admit", action="read", topics=topics, **anna)
    assert (answer["name"], answer["account"]) == ("anna", "default")
    assert answer["refused"] == ["$queue/b", "plant/#/x", ""]
    topics = ["$queue/a", "$queue/b", "plant/1", "$SYS/broker/uptime", "$queue/b/+"]
    answer = await world.ask("stream.admit", action="write", topics=topics, **anna)
    assert answer["refused"] == ["$queue/a", "plant/1", "$SYS/broker/uptime", "$queue/b/+"]


async def test_a_wrong_secret_is_not_told_from_an_unknown_name() -> None:
    answer = await StreamWorld().ask("stream.admit", action="read", topics=[], username="x", password="y")
    assert answer == {"known": False, "busy": False, "error": "the credentials were not accepted"}


async def test_a_broker_that_cannot_check_now_says_so() -> None:
    answer = await StreamWorld().ask("stream.admit", action="read", topics=[], username="x", password="busy")
    assert answer["busy"] is True


async def test_a_token_stands_where_the_password_does() -> None:
    world = StreamWorld()
    await world.ask("stream.admit", action="read", topics=[], token="secret", address="10.0.0.7")
    await world.ask("stream.admit", action="read", topics=[])
    seen = [(shown.username, shown.password, shown.address) for shown in world.shown]
    assert seen == [(None, b"secret", "10.0.0.7"), (None, None, "")]


@pytest.mark.parametrize(
    "fields",
    [
        {"action": "eat", "topics": []},
        {"action": "read"},
        {"action": "read", "topics": [1]},
        {"action": "read", "topics": ["x"] * (TOPICS_MAX + 1)},
        {"action": "read", "topics": [], "username": 7},
        {"action": "read", "topics": [], "password": "x" * 20_000},
    ],
)
async def test_questions_about_rights_are_bounded(fields: dict[str, object]) -> None:
    with pytest.raises(ControlRefusal):
        await StreamWorld().ask("stream.admit", **fields)


async def test_an_address_that_keeps_the_reader_busy_is_a_condition() -> None:
    world = StreamWorld()
    await world.ask("stream.busy", address="192.0.2.1", text="sends 900 requests a second to the reader")
    told = world.broker.health.find(CLIENT_BUSY)
    assert told is not None
    assert told.cause == "192.0.2.1: sends 900 requests a second to the reader"
