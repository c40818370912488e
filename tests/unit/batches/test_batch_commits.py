"""Staged batches on a broker in memory with real stage files: the order of facts, refusals, limits, damage."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from control_world import ControlWorld
from fakes import FakeOutlet

from millstream.admin.operations.batches import make_stage_operations
from millstream.batches import commits as stage_commits
from millstream.batches.commits import StageCommits
from millstream.batches.files import Commit, CommitRefused
from millstream.broker.account_options import AccountOptions
from millstream.broker.fan_out import RECEIVERS_AT_ONCE, RECEIVERS_PER_STEP
from millstream.broker.tasks import STEPS_PER_TURN
from millstream.model.errors import Reason
from millstream.queues.definition import WORK, Definition
from millstream.routing.subscription import Subscription
from millstream.runtime.control.server import ControlRefusal
from millstream.runtime.disk.failpoints import NoFailpoints
from millstream.security.acl import parse_acl
from millstream.security.quota import QUEUES, Bound
from millstream.security.quotas import QuotaTerms, make_quota
from millstream.storage.records import batch_records, queue_records
from millstream.storage.records.batch_records import StageFold, StoredQuery
from millstream.storage.stages.format import FOLDER, StageHeader, StageWriter, stage_name

BEGUN, ADVANCED = batch_records.BATCH_BEGUN, batch_records.BATCH_ADVANCED
APPENDED = queue_records.RECORD_APPENDED


class StageWorld(ControlWorld):
    def __init__(self, folder: Path, default: AccountOptions | None = None) -> None:
        super().__init__(default=default)
        self.folder = folder
        (folder / FOLDER).mkdir()
        self.queries: dict[tuple[str, str], StoredQuery] = {}
        self.commits = StageCommits(self.broker, folder, self.queries, NoFailpoints())
        self.operations.update(make_stage_operations(self.context, self.commits))
        self._next_stage = 1

    def stage(self, batch: int, first: int, count: int, query: str = "query", queue: str = "out") -> str:
        writer = StageWriter(StageHeader("default", "spark", query, queue, batch, 0, 0))
        for at in range(first, first + count):
            writer.add(f"$queue/{queue}".encode(), b"", b"%d" % at, 1, False, 0)
        stage = f"{self._next_stage:032x}"
        self._next_stage += 1
        (self.folder / stage_name(stage)).write_bytes(b"".join(writer.finish()))
        return stage

    def stage_topics(self, *topics: bytes) -> Commit:
        """A commit of one row to each."""
        writer = StageWriter(StageHeader("default", "spark", "query", "", 0, 0, 0))
        for topic in topics:
            writer.add(topic, b"", b"x", 1, False, 0)
        stage = f"{self._next_stage:032x}"
        self._next_stage += 1
        (self.folder / stage_name(stage)).write_bytes(b"".join(writer.finish()))
        return Commit("default", "spark", "query", 0, [stage], "", False)

    def files(self) -> list[str]:
        return sorted(path.name for path in (self.folder / FOLDER).iterdir())


def request(batch: int, stages: list[str], query: str = "query", is_single: bool = False) -> Commit:
    return Commit("default", "spark", query, batch, stages, "out", is_single)


@pytest.fixture
async def world(tmp_path: Path) -> StageWorld:
    world = StageWorld(tmp_path)
    await world.fill("out", 0, kind="stream")
    world.store.kinds.clear()
    return world


async def test_the_decision_comes_first_and_every_slice_says_how_far_it_came(world: StageWorld) -> None:
    stages = [world.stage(0, 0, 300), world.stage(0, 300, 10)]
    assert await world.commits.commit(request(0, stages)) == (310, False)
    expected = [BEGUN, *[APPENDED] * 256, ADVANCED, *[APPENDED] * 44, ADVANCED, *[APPENDED] * 10, ADVANCED]
    assert world.store.kinds == expected
    assert await world.payloads("out") == [str(at) for at in range(310)]
    assert world.files() == []


async def test_rows_that_go_to_very_many_receivers_share_a_slice_with_few_others(world: StageWorld) -> None:
    router = world.broker.get_account("default").router
    for _ in range(RECEIVERS_AT_ONCE):
        router.subscribe(Subscription(FakeOutlet(), b"t", b"", 0, False, False, 0))
    commit = world.stage_topics(*[b"t"] * 100)
    world.store.kinds.clear()
    assert await world.commits.commit(commit) == (100, False)
    per_slice = STEPS_PER_TURN * RECEIVERS_PER_STEP // RECEIVERS_AT_ONCE
    assert world.store.kinds == [BEGUN, *[ADVANCED] * -(-100 // per_slice)]


async def test_rows_that_are_costly_to_route_share_a_slice_with_few_others(world: StageWorld) -> None:
    account = world.broker.get_account("default")
    queue = account.queues.catalog.declare("bound", Definition(WORK))
    account.exchanges.bind_exchange("amq.headers", "amq.topic", b"#", {})
    for number in range(600):
        account.exchanges.bind_queue(queue, "amq.headers", b"", {f"k{at}": number for at in range(25)})
    commit = world.stage_topics(*[b"new/%d" % number for number in range(32)])
    world.store.kinds.clear()
    assert await world.commits.commit(commit) == (32, False)
    assert world.store.kinds == [BEGUN, *[ADVANCED] * 5], "each takes a seventh of a turn"


async def test_a_batch_without_rows_is_done_as_well(world: StageWorld) -> None:
    assert await world.commits.commit(request(0, [world.stage(0, 0, 0)])) == (0, False)
    assert world.store.kinds == [BEGUN, ADVANCED]
    assert world.queries["default", "query"].last_done == 0


async def test_a_commit_asks_again_for_every_topic_that_was_staged(world: StageWorld) -> None:
    """Rights may have changed since the rows came."""
    to_topics = world.stage_topics(b"office/a", b"plant/a", b"office/b")
    world.broker.authorizer.replace(parse_acl({"rules": [{"allow": "publish", "topics": ["office/#"]}]}))
    with pytest.raises(CommitRefused, match="may not publish to plant/a") as caught:
        await world.commits.commit(to_topics)
    assert caught.value.status == 403
    assert world.store.kinds == []
    world.broker.authorizer.replace(parse_acl({"rules": [{"allow": "publish", "topics": ["#"]}]}))
    assert await world.commits.commit(to_topics) == (3, False)


async def test_queues_that_staged_rows_make_count_for_who_staged_them(tmp_path: Path) -> None:
    quota = make_quota({QUEUES: Bound(2, "user_quotas.max_queues")})
    world = StageWorld(tmp_path, AccountOptions(0, QuotaTerms(None, quota)))
    catalog = world.broker.get_account("default").queues.catalog
    too_many = world.stage_topics(b"$queue/a", b"$queue/b/k", b"$queue/b", b"$queue/c", b"plain")
    with pytest.raises(CommitRefused) as caught:
        await world.commits.commit(too_many)
    assert caught.value.status == 403
    assert caught.value.text == (
        "the rows make 3 queues; the user 'spark' has 0 and may have 2 (user_quotas.max_queues)"
    )
    assert list(catalog.queues) == []
    assert await world.commits.commit(world.stage_topics(b"$queue/a", b"$queue/b")) == (2, False)
    assert [queue.usage.name for queue in catalog.queues.values()] == ["spark", "spark"]


async def test_two_commits_of_one_batch_at_once_publish_it_once(world: StageWorld) -> None:
    stages = [world.stage(5, 0, 1000)]
    other = [world.stage(5, 0, 1000)]
    answers = await asyncio.gather(
        world.commits.commit(request(5, stages)),
        world.commits.commit(request(5, other)),
        world.commits.commit(request(5, stages)),
    )
    assert sorted(answers) == [(1000, False), (1000, True), (1000, True)]
    assert await world.payloads("out") == [str(at) for at in range(1000)]
    assert world.files() == []


async def test_batches_of_a_query_are_published_in_their_order(world: StageWorld) -> None:
    first, second = world.stage(1, 0, 1000), world.stage(2, 1000, 10)
    await asyncio.gather(
        world.commits.commit(request(1, [first])), world.commits.commit(request(2, [second]))
    )
    assert await world.payloads("out") == [str(at) for at in range(1010)]


async def test_what_was_begun_is_carried_on_behind_its_last_safe_row(world: StageWorld) -> None:
    stages = [world.stage(3, 0, 700)]
    query = StoredQuery("default", "query", "spark", False)
    fold = StageFold()
    fold.apply(BEGUN, batch_records.encode_begun(query, batch_records.StoredBatch(3, "out", stages, 700), 1))
    fold.apply(ADVANCED, batch_records.encode_advanced(query, 300, False, 1))
    commits = StageCommits(world.broker, world.folder, fold.queries, NoFailpoints())
    commits.start()
    assert await commits.commit(request(3, stages)) == (700, True)
    assert await world.payloads("out") == [str(at) for at in range(300, 700)]
    await commits.stop()


async def test_rows_that_are_damaged_are_named_and_the_query_goes_on(world: StageWorld) -> None:
    stage = world.stage(0, 0, 700)
    query = StoredQuery("default", "query", "spark", False)
    fold = StageFold()
    fold.apply(BEGUN, batch_records.encode_begun(query, batch_records.StoredBatch(0, "out", [stage], 700), 1))
    path = world.folder / stage_name(stage)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    commits = StageCommits(world.broker, world.folder, fold.queries, NoFailpoints())
    commits.start()
    with pytest.raises(
        CommitRefused, match=r"the rows 256 to 699 of batch 0 are lost: .* checksum"
    ) as refused:
        await commits.commit(request(0, [stage]))
    assert refused.value.status == 500
    assert len(await world.payloads("out")) == 256
    assert await commits.commit(request(1, [world.stage(1, 0, 1)])) == (1, False)
    await commits.stop()


async def test_a_damaged_stage_is_refused_before_anything_is_decided(world: StageWorld) -> None:
    stage = world.stage(0, 0, 700)
    path = world.folder / stage_name(stage)
    data = bytearray(path.read_bytes())
    data[-40] ^= 1
    path.write_bytes(data)
    with pytest.raises(CommitRefused, match="cannot be used: the checksum of a block is wrong"):
        await world.commits.commit(request(0, [stage]))
    assert world.store.kinds == []
    assert world.queries == {}


async def test_nothing_is_decided_while_the_disk_takes_nothing(world: StageWorld) -> None:
    stage = world.stage(0, 0, 10)
    world.store.is_broken = True
    with pytest.raises(CommitRefused, match="the disk takes nothing now") as refused:
        await world.commits.commit(request(0, [stage]))
    assert (refused.value.status, refused.value.retry_after_s) == (503, 1)
    assert world.store.kinds == []
    world.store.is_broken = False
    assert await world.commits.commit(request(0, [stage])) == (10, False)


async def test_a_row_that_no_queue_can_ever_hold_is_refused_at_once(world: StageWorld) -> None:
    await world.ask("queue.update", name="out", definition={"bytes_max": 100, "overflow": "reject"})
    writer = StageWriter(StageHeader("default", "spark", "query", "out", 0, 0, 0))
    writer.add(b"$queue/out", b"", bytes(200), 1, False, 0)
    (world.folder / stage_name("a" * 32)).write_bytes(b"".join(writer.finish()))
    with pytest.raises(CommitRefused, match="a row has 210 bytes; 'out' holds at most 100") as refused:
        await world.commits.commit(request(0, ["a" * 32]))
    assert refused.value.status == 413


async def test_a_commit_that_takes_long_says_how_far_it_is(
    world: StageWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_commits, "WAIT_S", 0.2)
    await world.ask("queue.update", name="out", definition={"length_max": 100, "overflow": "reject"})
    stage = world.stage(0, 0, 150)
    with pytest.raises(
        CommitRefused, match="the batch 0 is being published, 100 of 150 rows so far"
    ) as refused:
        await world.commits.commit(request(0, [stage]))
    assert (refused.value.status, refused.value.rows) == (202, 100)
    assert await world.commits.drop(request(0, [stage])) == 0  # it is decided: nothing takes it back
    await world.ask("queue.update", name="out", definition={"length_max": 0})
    monkeypatch.setattr(stage_commits, "WAIT_S", 30.0)
    assert await world.commits.commit(request(0, [stage])) == (150, True)
    assert await world.payloads("out") == [str(at) for at in range(150)]


async def test_the_oldest_write_that_will_not_come_again_is_forgotten_first(
    world: StageWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_commits, "QUERIES_MAX", 3)
    for name, is_single in (("stream", False), ("first", True), ("second", True), ("third", True)):
        await world.commits.commit(request(0, [world.stage(0, 0, 1, name)], name, is_single))
        world.broker.clock.wall_offset_ns += 1_000_000_000
    assert [name for _, name in world.queries] == ["stream", "second", "third"]
    assert batch_records.QUERY_FORGOTTEN in world.store.kinds


async def test_a_query_is_not_forgotten_while_it_may_come_again(
    world: StageWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_commits, "QUERIES_MAX", 1)
    await world.commits.commit(request(0, [world.stage(0, 0, 1)]))
    other = request(0, [world.stage(0, 0, 1, "other")], "other")
    with pytest.raises(CommitRefused, match="1 queries have written here within 30 days"):
        await world.commits.commit(other)
    world.broker.clock.wall_offset_ns += 31 * 86_400 * 1_000_000_000
    assert await world.commits.commit(other) == (1, False)


async def test_only_what_no_batch_needs_is_swept(world: StageWorld) -> None:
    await world.ask("queue.update", name="out", definition={"length_max": 5, "overflow": "reject"})
    needed, stale = world.stage(0, 0, 10), world.stage(9, 0, 10)
    commit = asyncio.ensure_future(world.commits.commit(request(0, [needed])))
    while ("default", "query") not in world.queries:  # noqa: ASYNC110 the turns of a thread and the loop
        await asyncio.sleep(0)
    now_s = (world.folder / stage_name(stale)).stat().st_mtime
    assert await world.commits.sweep(now_s + stage_commits.STALE_S - 10) == 0
    assert await world.commits.sweep(now_s + stage_commits.STALE_S + 10) == 1
    assert world.files() == [f"{needed}.stage"]
    await world.ask("queue.update", name="out", definition={"length_max": 0})
    assert await commit == (10, False)


async def test_requests_that_make_no_sense_are_refused_in_words(world: StageWorld) -> None:
    good = {
        "account": "default",
        "user": "spark",
        "query": "q",
        "batch": 0,
        "stages": ["0" * 32],
        "queue": "out",
    }
    for change, text in (
        ({"query": ""}, "a query is named by"),
        ({"query": "x" * 201}, "a query is named by"),
        ({"batch": -1}, "batch must be a whole number"),
        ({"batch": True}, "batch must be a whole number"),
        ({"stages": ["../../etc/passwd"]}, "is no stage"),
        ({"stages": [7]}, "is no stage"),
        ({"stages": "x"}, "stages must be a list"),
        ({"stages": []}, "at least one stage"),
    ):
        with pytest.raises(ControlRefusal, match=text):
            await world.ask("stage.commit", **{**good, **change})
    answer = await world.ask("stage.commit", **{**good, "stages": ["0" * 32, "0" * 32]})
    assert (answer["refused"], answer["error"]) == (400, "a stage is named twice")
    answer = await world.ask("stage.commit", **{**good, "queue": "none"})
    assert (answer["refused"], answer["hint"]) == (404, "millstream queue create 'none' --kind stream")
    limits = await world.ask("stage.limits")
    assert limits["message_size_max"] == world.broker.limits.message_size_max
    assert world.broker.store.refusal() is Reason.SUCCESS


async def test_a_batch_that_is_done_takes_what_dead_attempts_left_of_it(world: StageWorld) -> None:
    dead = world.stage(0, 0, 2)
    good = world.stage(0, 0, 2)
    of_the_next = world.stage(1, 2, 2)
    of_another = world.stage(0, 0, 2, query="other")
    await world.commits.commit(Commit("default", "spark", "query", 0, [good], "out"))
    left = {
        name for name in (dead, good, of_the_next, of_another) if (world.folder / stage_name(name)).exists()
    }
    assert left == {of_the_next, of_another}
