"""Publishes batches that writers have staged: each is decided by one fact and then published slice by slice, exactly once.

Invariants
- A batch whose BATCH_BEGUN is durable is published to its end, by this run or by the next one.
- A slice of rows and the fact that says how far it came are appended in one turn of the loop, so that they are one atom.
- A batch up to the last one done of its query is never begun again.
- A stage is removed only when its batch is done and that is durable, or when no batch can need it.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import structlog

from millstream.batches.files import (
    Commit,
    CommitRefused,
    Key,
    check_stages,
    find_stages,
    find_stale,
    find_superseded,
    find_topics,
    remove_stages,
)
from millstream.broker.account import Account
from millstream.broker.broker import Broker
from millstream.broker.fan_out import steps_of
from millstream.broker.tasks import STEPS_PER_TURN
from millstream.model.errors import Reason, Unavailable
from millstream.model.message import NANOSECONDS, Message
from millstream.model.queue_topic import queue_topic, split_queue_topic
from millstream.runtime.disk.files import RealDisk
from millstream.runtime.loop.durable_wait import NO_STORAGE, DurableWait
from millstream.security.principal import Principal
from millstream.security.quota import QUEUES
from millstream.storage.disk import Disk, DiskFault, Failpoints
from millstream.storage.records.batch_records import (
    BATCH_ADVANCED,
    BATCH_BEGUN,
    QUERY_FORGOTTEN,
    StoredBatch,
    StoredQuery,
    apply_fact,
    encode_advanced,
    encode_begun,
    encode_forgotten,
)
from millstream.storage.stages.format import FOLDER, StagedRow, StageFault, decode_rows
from millstream.storage.stages.reader import BatchReader, Block

QUERIES_MAX: Final = 10_000
UNUSED_NS: Final = 30 * 86_400 * NANOSECONDS  # a query that is silent for so long may be forgotten
STALE_S: Final = 86_400.0  # a stage nobody has committed for so long goes
SWEEP_S: Final = 3600.0
WAIT_S: Final = 5.0  # then whoever waits for a batch is told to ask again
READ_BYTES: Final = 2 * 1024 * 1024
TOPICS_SLICE: Final = 1000  # whose rights are asked in one turn of the loop
WINDOW: Final = 16  # slices on their way to the disk
PAUSE_S: Final = (0.05, 1.0)  # between two tries of a row that is refused: the first, the longest
TELL_S: Final = 30.0  # between two lines in the log about the same wait
TAKEN: Final = (Reason.SUCCESS, Reason.NO_MATCHING_SUBSCRIBERS)


class StageCommits:
    """`queries` is what a start has found; it is changed from here on."""

    def __init__(
        self, broker: Broker, data_dir: Path, queries: dict[Key, StoredQuery], failpoints: Failpoints
    ) -> None:
        self.queries = queries
        self._broker = broker
        self._folder = data_dir / FOLDER
        self._disk: Disk = RealDisk(data_dir)
        self._durable = DurableWait(broker)
        self._hit = failpoints.hit
        self._log = structlog.get_logger("millstream")
        self._running: dict[Key, asyncio.Task[str]] = {}
        self._locks: weakref.WeakValueDictionary[Key, asyncio.Lock] = weakref.WeakValueDictionary()
        self._checking: dict[str, None] = {}  # stages a commit is looking at
        self._removing: dict[str, None] = {}
        self._sweeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Go on with what was begun, and begin to look for stages nobody wants."""
        for key, query in self.queries.items():
            if query.begun is not None:
                self._start(key)
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep_now_and_then())

    async def stop(self) -> None:
        """Between two slices; the next start goes on there."""
        tasks: list[asyncio.Task[str] | asyncio.Task[None]] = list(self._running.values())
        if self._sweeper is not None:
            tasks.append(self._sweeper)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def on_durable(self) -> None:
        self._durable.on_durable()

    # ----------------------------------------------------------------- commit

    async def commit(self, commit: Commit) -> tuple[int, bool]:
        """(rows, whether it had been decided before). CommitRefused says why not, or that it is under way."""
        try:
            async with asyncio.timeout(WAIT_S):
                return await self._commit(commit)
        except TimeoutError:
            query = self.queries.get(commit.key())
            batch = None if query is None else query.begun
            so_far = "" if batch is None else f", {batch.next_row} of {batch.rows} rows so far"
            text = f"the batch {commit.batch} is being published{so_far}"
            raise CommitRefused(202, text, rows=0 if batch is None else batch.next_row) from None

    async def _commit(self, commit: Commit) -> tuple[int, bool]:
        key = commit.key()
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        is_new = False
        async with lock:
            query = self.queries.get(key)
            if query is not None and query.owner != commit.owner:
                raise CommitRefused(403, f"the query {commit.query!r} belongs to another user")
            if query is not None and query.begun is not None and query.begun.batch != commit.batch:
                await self._wait_published(key)
            if query is None or (query.begun is None and query.last_done < commit.batch):
                await self._begin(commit)
                is_new = True
        if not is_new:
            await self._remove(self._unneeded(commit.stages))
        await self._wait_published(key)
        query = self.queries.get(key)
        rows = query.last_rows if query is not None and query.last_done == commit.batch else 0
        return rows, not is_new

    async def _wait_published(self, key: Key) -> None:
        task = self._running.get(key)
        if task is not None:
            fault = await asyncio.shield(task)
            if fault:
                raise CommitRefused(500, fault, "millstream storage verify")
            return
        query = self.queries.get(key)
        if query is not None and query.begun is not None:
            text = f"the batch {query.begun.batch} cannot be published; the log of the broker says why"
            raise CommitRefused(500, text, "millstream storage verify")

    async def _begin(self, commit: Commit) -> None:
        self._check_target(commit, 0)
        stages = dict.fromkeys(commit.stages)
        if len(stages) != len(commit.stages):
            raise CommitRefused(400, "a stage is named twice")
        self._checking.update(stages)
        try:
            if any(stage in self._removing for stage in stages):
                raise CommitRefused(409, "a stage of the batch has been dropped")
            rows, largest = await asyncio.to_thread(check_stages, self._disk, commit)
            await self._check_topics(commit)
            self._durable.begin()
            if self._broker.store.refusal() is not Reason.SUCCESS:
                raise CommitRefused(503, NO_STORAGE, retry_after_s=1)
            self._check_target(commit, largest)
            if commit.key() not in self.queries:
                self._make_room()
            self._hit("stage.before_begin")
            query = self.queries.get(commit.key())
            if query is None:
                query = StoredQuery(commit.account, commit.query, commit.owner, commit.is_single)
            batch = StoredBatch(commit.batch, commit.queue, commit.stages, rows)
            self._tell(query, BATCH_BEGUN, encode_begun(query, batch, self._wall_ns()))
            self._start(commit.key())
        finally:
            for stage in stages:
                self._checking.pop(stage, None)

    async def _check_topics(self, commit: Commit) -> None:
        """They were allowed when they were staged; rights may have changed since. Slice by slice: there may be very many."""
        principal = Principal(commit.owner, commit.account, "user")
        if commit.queue:
            await self._check_keys(commit, principal)
            return
        account = self._broker.accounts.get(commit.account)
        missing: dict[str, None] = {}  # queues that the rows make
        for stage in commit.stages:
            topics = await asyncio.to_thread(find_topics, self._disk, stage)
            for at, topic in enumerate(topics):
                place = split_queue_topic(topic)
                if (
                    place is not None
                    and account is not None
                    and account.queues.catalog.find(place[0]) is None
                ):
                    missing[place[0]] = None
                if not self._broker.authorizer.can_publish(principal, "", topic):
                    shown = topic.decode(errors="replace")
                    raise CommitRefused(403, f"{commit.owner!r} may not publish to {shown}")
                if at % TOPICS_SLICE == TOPICS_SLICE - 1:
                    await asyncio.sleep(0)

        if account is not None and missing:
            _check_room(account, commit.owner, len(missing))

    async def _check_keys(self, commit: Commit, principal: Principal) -> None:
        """The right is that to the queue, unless a rule denies a key of it: which hardly any does."""
        authorizer = self._broker.authorizer
        if not authorizer.denies_part(principal, "", queue_topic(commit.queue, b"#")):
            return
        for stage in commit.stages:
            topics = await asyncio.to_thread(find_topics, self._disk, stage)
            for at, topic in enumerate(topics):
                if authorizer.denies_part(principal, "", topic):
                    shown = topic.decode(errors="replace")
                    raise CommitRefused(403, f"{commit.owner!r} may not publish to {shown}")
                if at % TOPICS_SLICE == TOPICS_SLICE - 1:
                    await asyncio.sleep(0)

    def _check_target(self, commit: Commit, largest: int) -> None:
        """Refused now is better than waiting for ever afterwards."""
        account = self._broker.accounts.get(commit.account)
        if account is None:
            raise CommitRefused(403, f"the account {commit.account!r} is not configured")
        if not commit.queue:
            return
        topic = queue_topic(commit.queue, b"")
        principal = Principal(commit.owner, commit.account, "user")
        if not self._broker.authorizer.can_publish(principal, "", topic):
            raise CommitRefused(403, f"{commit.owner!r} may not publish to {topic.decode()}")
        queue = account.queues.catalog.find(commit.queue)
        if queue is None:
            hint = f"millstream queue create '{commit.queue}' --kind stream"
            raise CommitRefused(404, f"there is no queue {commit.queue!r}", hint)
        show = f"millstream queue show '{commit.queue}'"
        bytes_max = queue.definition.bytes_max
        if bytes_max and largest + 64 > bytes_max:
            text = f"a row has {largest} bytes; {commit.queue!r} holds at most {bytes_max}"
            raise CommitRefused(413, text, show)
        if queue.find_refusal(Message(topic, b"", 1, False, b"", 0, "")) is not Reason.SUCCESS:
            raise CommitRefused(503, f"{commit.queue!r} holds as much as it may", show, 1)

    def _make_room(self) -> None:
        """One that will not come again is forgotten first, then one that has been silent for long."""
        if len(self.queries) < QUERIES_MAX:
            return
        idle = [query for query in self.queries.values() if query.begun is None]
        before_ns = self._wall_ns() - UNUSED_NS
        singles = [query for query in idle if query.is_single]
        found = singles or [query for query in idle if query.used_wall_ns < before_ns]
        if not found:
            text = f"{QUERIES_MAX} queries have written here within 30 days, as many as there may be"
            raise CommitRefused(503, text, retry_after_s=60)
        oldest = min(found, key=lambda query: query.used_wall_ns)
        self._tell(oldest, QUERY_FORGOTTEN, encode_forgotten(oldest))

    def _tell(self, query: StoredQuery, kind: int, body: bytes) -> None:
        """To the log, and to what we know ourselves: by the same function that a start uses."""
        self._broker.store.queue_fact(kind, body)
        known = apply_fact(query, kind, body)
        if known is None:
            self.queries.pop(query.key(), None)
        else:
            self.queries[query.key()] = known

    def _wall_ns(self) -> int:
        return int(self._broker.clock.wall_ns())

    # ---------------------------------------------------------------- publish

    def _start(self, key: Key) -> None:
        task = asyncio.get_running_loop().create_task(self._publish(key))
        self._running[key] = task
        task.add_done_callback(lambda _: self._running.pop(key, None))

    async def _publish(self, key: Key) -> str:
        """Everything of the batch that is begun; what was lost of it, or nothing."""
        query = self.queries[key]
        batch = query.begun
        assert batch is not None
        account = self._broker.accounts.get(query.account)
        if account is None:
            text = f"the account {query.account!r} is not configured"
            self._log.error("stage_stuck", query=query.name, batch=batch.batch, reason=text)
            return text
        fault = ""
        try:
            await self._wait_durable(query, batch)
            self._hit("stage.after_begin")
            try:
                await self._publish_rows(account, query, batch)
            except StageFault as found:
                fault = (
                    f"the rows {batch.next_row} to {batch.rows - 1} of batch {batch.batch} are lost: {found}"
                )
                self._log.error("stage_damaged", query=query.name, reason=fault)
            if query.begun is batch:  # empty, or cut short
                self._durable.begin()
                self._advance(query, batch.rows, True)
            await self._wait_durable(query, batch)
            self._hit("stage.after_done")
            await self._remove(batch.stages)
            self._hit("stage.after_remove")
            left = await asyncio.to_thread(find_superseded, self._disk, query)
            await self._remove(self._unneeded(left))
        except asyncio.CancelledError:
            raise
        except Exception:
            log = self._log
            log.exception("stage_failed", query=query.name, batch=batch.batch)
            return "something went wrong inside the broker; its log has the details"
        return fault

    async def _publish_rows(self, account: Account, query: StoredQuery, batch: StoredBatch) -> None:
        reader = BatchReader(self._disk, batch.stages, batch.next_row)
        slices = 0
        try:
            while blocks := await self._read(reader, query, batch):
                for block in blocks:
                    rows = decode_rows(block.rows, block.count)
                    await self._publish_block(account, query, batch, block, rows)
                    slices += 1
                    if slices % WINDOW == 0:
                        await self._wait_durable(query, batch)
        finally:
            reader.close()

    async def _read(self, reader: BatchReader, query: StoredQuery, batch: StoredBatch) -> list[Block]:
        waiting = _Waiting(self._log, query, batch)
        while True:
            try:
                return await asyncio.to_thread(reader.read, READ_BYTES)
            except DiskFault as fault:
                await waiting.pause(fault.text)

    async def _publish_block(
        self, account: Account, query: StoredQuery, batch: StoredBatch, block: Block, rows: list[StagedRow]
    ) -> None:
        waiting = _Waiting(self._log, query, batch)
        while batch.next_row < block.end():
            reason = self._publish_slice(account, query, batch, rows, batch.next_row - block.first)
            self._hit("stage.after_slice")
            if reason is Reason.SUCCESS:
                await asyncio.sleep(0)  # everybody else has a turn
            else:
                topic = rows[batch.next_row - block.first].topic.decode(errors="replace")
                await waiting.pause(f"{topic!r} does not take it: {reason.name.lower().replace('_', ' ')}")

    def _publish_slice(
        self, account: Account, query: StoredQuery, batch: StoredBatch, rows: list[StagedRow], at: int
    ) -> Reason:
        """Rows from `at` on, and how far that came, in one turn of the loop. SUCCESS: all of them, or as many as fit in it."""
        broker = self._broker
        refusal = broker.store.refusal()
        if refusal is not Reason.SUCCESS:
            return refusal
        self._durable.begin()
        now_ns = int(broker.clock.now_ns)
        publisher = query.name
        user = query.owner  # whose the queues are that a row makes
        reason = Reason.SUCCESS
        done = 0
        routing = account.exchanges.routing_steps()
        spent = 0  # on rows that go to many receivers or are costly to route
        for row in rows[at:]:
            expires_ns = now_ns + int(row.expiry_s) * NANOSECONDS if row.expiry_s else 0
            message = Message(
                row.topic, row.payload, row.guarantee, row.retain, row.properties, expires_ns, publisher
            )
            route = account.find_route(row.topic, user)
            answer = broker.publishing.publish(account, route, message, None)
            if answer not in TAKEN:
                reason = answer
                break
            done += 1
            spent += int(steps_of(route))
            if spent + account.exchanges.routing_steps() - routing >= STEPS_PER_TURN:
                break
        while broker.publishing.has_pending():
            broker.publishing.work_off(1000)  # what waits for its fan-out belongs to the same atom
        if done:
            next_row = batch.next_row + done
            self._advance(query, next_row, next_row >= batch.rows)
        return reason

    def _advance(self, query: StoredQuery, next_row: int, is_done: bool) -> None:
        self._tell(query, BATCH_ADVANCED, encode_advanced(query, next_row, is_done, self._wall_ns()))

    async def _wait_durable(self, query: StoredQuery, batch: StoredBatch) -> None:
        """However long it takes."""
        waiting = _Waiting(self._log, query, batch)
        while True:
            try:
                await self._durable.wait_durable()
                return
            except Unavailable as fault:
                await waiting.pause(fault.text)

    # ------------------------------------------------------------------- drop

    async def drop(self, commit: Commit) -> int:
        """The stages of a batch that is not wanted any more; those a decided batch needs stay."""
        found = await asyncio.to_thread(find_stages, self._disk, commit)
        dropped = self._unneeded(found)
        await self._remove(dropped)
        return len(dropped)

    def _unneeded(self, stages: Iterable[str]) -> list[str]:
        needed = {
            stage
            for query in self.queries.values()
            if query.begun is not None
            for stage in query.begun.stages
        }
        return [stage for stage in stages if stage not in needed and stage not in self._checking]

    async def _remove(self, stages: list[str]) -> None:
        self._removing.update(dict.fromkeys(stages))
        try:
            await asyncio.to_thread(remove_stages, self._disk, stages)
        except DiskFault as fault:
            self._log.warning("stage_not_removed", reason=fault.text)  # the sweep tries again
        finally:
            for stage in stages:
                self._removing.pop(stage, None)

    async def _sweep_now_and_then(self) -> None:
        while True:
            await self.sweep(time.time())
            await asyncio.sleep(SWEEP_S)

    async def sweep(self, now_s: float) -> int:
        """Remove stages nobody has committed in time, and what a reader left unfinished."""
        stages = await asyncio.to_thread(find_stale, self._folder, now_s - STALE_S)
        dropped = self._unneeded(stages)
        await self._remove(dropped)
        if dropped:
            self._log.info("stages_dropped", count=len(dropped))
        return len(dropped)


def _check_room(account: Account, owner: str, count: int) -> None:
    """Refused now is better than waiting for ever afterwards."""
    reached = account.quotas.of(owner).find_reached(QUEUES, count)
    if reached is not None:
        account.quotas.report(QUEUES, reached, 1)
        bound = reached.quota.bounds[QUEUES]
        text = (
            f"the rows make {count} queues; {reached.title} has {reached.used[QUEUES]} and may have {bound.value} "
            f"({bound.key})"
        )
        raise CommitRefused(403, text, "raise the quota, or delete queues nobody needs")


class _Waiting:
    """Pauses that become longer, told in the log now and then."""

    def __init__(self, log: structlog.stdlib.BoundLogger, query: StoredQuery, batch: StoredBatch) -> None:
        self._log = log
        self._query = query
        self._batch = batch
        self._pause_s = PAUSE_S[0]
        self._told_s = -TELL_S

    async def pause(self, reason: str) -> None:
        now_s = time.monotonic()
        if now_s - self._told_s >= TELL_S:
            self._told_s = now_s
            self._log.warning(
                "stage_waits",
                query=self._query.name,
                batch=self._batch.batch,
                row=self._batch.next_row,
                reason=reason,
            )
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_S[1])
