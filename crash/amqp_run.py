"""`python -m crash.amqp_run --kills 100`: kill the broker under AMQP 0.9.1 clients, and see whether it kept its word.

Confirmed messages are all there, committed transactions whole and others whole or not at all, declared exchanges, queues
and bindings still there, deleted ones gone. Exit 1 when a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import random
import shutil
import sys
import tempfile
from pathlib import Path

import aio_pika
from aio_pika.exceptions import ChannelNotFoundEntity

from crash.amqp_clients import (
    COMMITTED,
    EXCHANGE,
    QUEUE,
    TRANSACTION,
    AmqpClient,
    Committer,
    Declarer,
    Journal,
    Publisher,
    Worker,
)
from crash.broker import Broker
from millstream.build_kind import build_name

LIFE_S = (0.3, 1.5)
DRAIN_S = 120.0
LOAD_S = 30.0
SHOWN = 10


class AmqpCampaign:
    def __init__(self, kills: int, seed: int, module: str = "millstream", folder: Path | None = None) -> None:
        self.folder = folder or Path(tempfile.mkdtemp(prefix="millstream-crash-amqp-"))
        self.journal = Journal()
        self.kills = kills
        self.faults: list[str] = []
        self._chance = random.Random(seed)
        self._broker = Broker(self.folder, (), module)

    async def run(self) -> None:
        broker = self._broker
        broker.start()
        try:
            await self._prepare()
            clients = self._make_clients()
            tasks = [asyncio.create_task(client.run()) for client in clients]
            for _ in range(self.kills):
                await asyncio.sleep(
                    self._chance.uniform(*LIFE_S)
                )  # how long it lives is what is left to chance
                broker.kill()
                await asyncio.to_thread(broker.start)
            for client in clients:
                if not isinstance(client, Worker):
                    client.is_stopping = True
            await self._drain()
            for client in clients:
                client.is_stopping = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._judge()
            await self._judge_declared()
        finally:
            broker.close()

    async def _wait_confirmed(self) -> None:
        """A kill that nobody was promised anything before shows nothing."""
        self.journal.grown.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.journal.grown.wait(), LOAD_S)

    def _port(self) -> int:
        return self._broker.ports["amqp"]

    def _url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self._port()}/"

    def _make_clients(self) -> list[AmqpClient]:
        journal = self.journal
        clients: list[AmqpClient] = [Publisher(journal, self._port, f"p{at}") for at in range(3)]
        clients += [Committer(journal, self._port, f"t{at}") for at in range(2)]
        clients += [Declarer(journal, self._port)]
        clients += [Worker(journal, self._port, QUEUE) for _ in range(2)]
        clients += [Worker(journal, self._port, COMMITTED)]
        return clients

    async def _prepare(self) -> None:
        async with await aio_pika.connect(self._url()) as connection:
            channel = await connection.channel()
            exchange = await channel.declare_exchange(EXCHANGE, durable=True)
            for name, key in ((QUEUE, "work"), (COMMITTED, "committed")):
                queue = await channel.declare_queue(name, durable=True)
                await queue.bind(exchange, key)

    async def _drain(self) -> None:
        """Until both queues are empty and nothing has come for a while."""
        deadline = asyncio.get_running_loop().time() + DRAIN_S
        calm = 0
        seen = -1
        async with await aio_pika.connect(self._url()) as connection:
            channel = await connection.channel()
            while calm < 5:
                if asyncio.get_running_loop().time() > deadline:
                    self.faults.append(f"the queues were not drained in {DRAIN_S:.0f} s")
                    return
                await asyncio.sleep(0.2)  # what has arrived by then is what counts
                left = 0
                for name in (QUEUE, COMMITTED):
                    queue = await channel.declare_queue(name, passive=True)
                    left += queue.declaration_result.message_count or 0
                arrived = sum(self.journal.arrived.values())
                calm = calm + 1 if left == 0 and arrived == seen else 0
                seen = arrived

    def _judge(self) -> None:
        journal = self.journal
        lost = [body for body in journal.confirmed if body not in journal.arrived]
        if lost:
            self.faults.append(f"{len(lost)} confirmed messages are lost: {lost[:SHOWN]}")
        for name in journal.begun:
            parts = sum(name + b":" + str(part).encode() in journal.arrived for part in range(TRANSACTION))
            if name in journal.committed and parts != TRANSACTION:
                self.faults.append(f"of the committed transaction {name!r} {parts} of {TRANSACTION} arrived")
            elif parts not in (0, TRANSACTION):
                self.faults.append(f"of the transaction {name!r} only {parts} of {TRANSACTION} arrived")

    async def _judge_declared(self) -> None:
        async with await aio_pika.connect(self._url()) as connection:
            for number in self.journal.declared:
                channel = await connection.channel()
                try:
                    await channel.get_exchange(f"crash.x.{number}", ensure=True)
                    queue = await channel.declare_queue(f"crash.q.{number}", passive=True)
                    count = queue.declaration_result.message_count
                    if count != 1:
                        self.faults.append(f"crash.q.{number} holds {count} messages instead of 1")
                    await channel.close()
                except ChannelNotFoundEntity as error:
                    self.faults.append(f"what was declared as {number} is lost: {error}")
            for number in self.journal.deleted:
                channel = await connection.channel()
                try:
                    await channel.declare_queue(f"crash.q.{number}", passive=True)
                    self.faults.append(f"crash.q.{number} was deleted and is there again")
                    await channel.close()
                except ChannelNotFoundEntity:
                    pass  # as it should be


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m crash.amqp_run", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1 << 31), help="of what is left to chance"
    )
    parser.add_argument("--module", default="millstream", help="the broker to start; crash.hasty has a bug")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")
    options = parser.parse_args(arguments)
    for library in ("aiormq", "aio_pika", "asyncio"):
        logging.getLogger(library).setLevel(
            logging.CRITICAL
        )  # that the broker is away is what we are here for
    campaign = AmqpCampaign(options.kills, options.seed, options.module)
    asyncio.run(campaign.run())
    journal = campaign.journal
    repeats = sum(journal.arrived.values()) - len(journal.arrived)
    report = {
        "build": build_name(),
        "seed": options.seed,
        "kills": campaign.kills,
        "confirmed": len(journal.confirmed),
        "unconfirmed": journal.refused,
        "transactions_committed": len(journal.committed),
        "transactions_begun": len(journal.begun),
        "declared": len(journal.declared),
        "deleted": len(journal.deleted),
        "delivered": sum(journal.arrived.values()),
        "delivered_again": repeats,
        "faults": campaign.faults,
    }
    for name, value in report.items():
        if name != "faults":
            print(f"{name.replace('_', ' '):24} {value}")
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    for fault in campaign.faults:
        print(f"BROKEN {fault}")
    if campaign.faults:
        print(f"seed {options.seed}; the data directory and the logs are in {campaign.folder}")
        return 1
    shutil.rmtree(campaign.folder)
    print(f"every promise was kept (seed {options.seed}, {build_name()} build)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
