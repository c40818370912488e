"""Rights on the ways in that no protocol machine guards: reads of streams and staged batches over HTTP, and the control socket.

A sibling of the matrix of rights, with the same oracle and the same table of indirect paths.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from indirect_paths import PATHS
from rights_oracle import Rule, make_rules
from rights_service import STREAMS, Service

from millstream.model.owner import Owner
from millstream.reader.http import HttpFault

SEEDS = range(6)
ROUNDS = 20
CASES_MIN = 500  # of one seed
TOPICS = ("a/b", "a", "b", "b/a", "z/z", "x/a", "y/b")
SPELLINGS = (
    "$queue/q",
    "$queue/d/k",
    "$queue/a%2Fb",
    "$queue/%71",
    "$queue/a%2fb",
    "$queue/$dlq/q",
    "$dlq/q",
)


async def read(service: Service) -> None:
    for name, topic in STREAMS.items():
        wanted = service.oracle.can_subscribe(topic)
        service.case(f"show {topic}", wanted, await service.is_read(name))
        service.case(f"records of {topic}", wanted, await service.is_read(name, "/records", first=0))
        service.case(f"offset in {topic}", wanted, await service.is_read(name, "/offset", timestamp=0))
    may = service.oracle.can_subscribe
    listed = sorted(name for name, topic in STREAMS.items() if may(topic))
    service.case("list of streams", listed, await service.list_streams())
    name, topic = service.chance.choice(list(STREAMS.items()))
    before = service.oracle.can_subscribe(topic)
    service.change(is_forgotten=False)
    service.case(f"{topic} is remembered", before, await service.is_read(name))
    service.forget()
    service.case(f"{topic} later", service.oracle.can_subscribe(topic), await service.is_read(name))


async def test_a_read_that_is_under_way_ends_when_its_right_is_gone(tmp_path: Path) -> None:
    async with Service(tmp_path, random.Random(1)) as service:
        service.change([{"allow": "all", "topics": ["$queue/#"]}])
        await service.control("queue.publish", name="q", messages=[{"payload": "x"}] * 3)
        rows = await service.begin_read("q")
        for _ in range(2):
            batch = await asyncio.to_thread(next, rows, None)
            assert batch is not None
            assert batch.num_rows == 1
            service.forget()
        service.change([{"allow": "all", "topics": ["$queue/d"]}])
        with pytest.raises(HttpFault) as caught:
            await asyncio.to_thread(next, rows, None)
        assert caught.value.status == 403


async def batch_to_topics(service: Service) -> None:
    topics = service.chance.sample((*TOPICS, *SPELLINGS), service.chance.randint(1, 3))

    def may() -> bool:
        return all(service.oracle.can_publish(topic) for topic in topics)

    stage = await service.stage("topic", topics, topics="true")
    service.case(f"stage for {topics}", may(), bool(stage))
    if not stage:
        return
    if service.chance.random() < 0.5:
        service.change()
    service.watched()
    may_commit = may()
    service.case(f"commit for {topics}", may_commit, await service.commit(stage, topics=True))
    ordinary = [topic for topic in topics if not topic.startswith("$")] if may_commit else []
    service.case(f"committed for {topics}", ordinary, service.watched())


async def batch_to_queue(service: Service) -> None:
    """Rows with and without a key: the right is that to the queue, and a key may be denied."""
    name, topic = service.chance.choice(list(STREAMS.items()))
    keys = service.chance.sample(("", "k", "z", "k/l"), service.chance.randint(1, 2))
    topics = [f"{topic}/{key}" if key else topic for key in keys]
    extra: list[Rule] = [
        {"allow": "publish", "topics": [topic]},
        {"deny": "publish", "topics": [f"{topic}/k"]},
    ]

    def change() -> None:
        """Rules by chance rarely name a key."""
        service.change(
            [*make_rules(service.chance), *service.chance.sample(extra, service.chance.randint(0, 2))]
        )

    def may() -> bool:
        denied = any(service.oracle.is_denied(each, "publish") for each in topics)
        return service.oracle.can_publish(topic) and not denied

    change()
    stage = await service.stage("key", keys, queue=name)
    service.case(f"stage for {topics}", may(), bool(stage))
    if not stage:
        return
    if service.chance.random() < 0.5:
        change()
    before = service.next_of(name)
    may_commit = may()
    service.case(f"commit for {topics}", may_commit, await service.commit(stage, queue=name))
    service.case(f"committed for {topics}", len(keys) * may_commit, service.next_of(name) - before)


async def batch(service: Service) -> None:
    await batch_to_topics(service)
    await batch_to_queue(service)


async def operator(service: Service) -> None:
    """Nobody's rights are asked, when it is set up or later."""
    await service.control("queue.create", name="z", definition={"bindings": ["a/#"], "kind": "work"})
    await service.control("queue.bind", name="z", filter="y/b")
    await service.control("exchange.declare", name="x", type="fanout")
    await service.control("exchange.bind", source="x", target="z", key="")
    for topic in ("a/b", "y/b"):
        before = service.next_of("z")
        service.publish(topic)
        service.case(f"binding of the operator brings {topic}", 1, service.next_of("z") - before)
        service.change()
    service.case("binding of the operator to an exchange", 1, service.reached("x", b"a"))
    user = Owner("anonymous", "anonymous", "")
    made = service.account.queues.catalog.get("z")
    await service.control("exchange.declare", name="y", type="direct")
    for key, is_user_first in ((b"a", True), (b"b", False)):
        if is_user_first:
            service.account.exchanges.bind_queue(made, "y", key, {}, user)
        await service.control("exchange.bind", source="y", target="z", key=key.decode())
        if not is_user_first:
            service.account.exchanges.bind_queue(made, "y", key, {}, user)
        service.change()
        service.case(f"binding of the operator and of a user, {key!r}", 1, service.reached("y", key))
    service.account.exchanges.bind_queue(made, "y", b"z", {}, user)
    service.change()
    may = service.oracle.can_subscribe("$queue/z") and service.oracle.has_all("y/z", "subscribe")
    service.case("binding of a user", int(may), service.reached("y", b"z"))
    before = service.next_of("q")
    await service.control("queue.publish", name="q", messages=[{"payload": "x"}])
    service.case("publish of the operator", 1, service.next_of("q") - before)
    service.case("peek of the operator", True, bool(await service.control("queue.peek", name="q")))
    await service.control("queue.delete", name="z")


CASES: dict[str, Callable[[Service], Awaitable[None]]] = {
    "commit of a staged batch (Spark)": batch,
    "read of a stream (reader, Spark)": read,
    "command over the control socket, queue or policy of the configuration": operator,
}


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_way_in_decides_as_the_documents_say(seed: int, tmp_path: Path) -> None:
    counted: Counter[str] = Counter()
    async with Service(tmp_path, random.Random(seed)) as service:
        for _ in range(ROUNDS):
            for run in CASES.values():
                service.change()
                await run(service)
                for what, wanted, found in service.cases:
                    assert found == wanted, (what, service.rules)
                    counted[run.__name__] += 1
                service.cases.clear()
    assert sum(counted.values()) >= CASES_MIN
    assert set(counted) == {run.__name__ for run in CASES.values()}


def test_it_has_a_case_for_every_path_that_the_matrix_leaves_out() -> None:
    assert set(CASES) == {path.name for path in PATHS if not path.is_in_matrix}
