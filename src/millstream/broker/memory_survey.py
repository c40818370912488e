"""Where the memory of the broker is: about how many bytes each kind of thing holds.

A sum of counters that are there anyway, made when somebody asks. A payload that many receivers share counts once for each
of them, so the kinds may add up to more than the process has; the resident size is what counts against the limit.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from millstream.broker.broker import Broker
from millstream.broker.line import Line
from millstream.model.memory_budget import MESSAGE_OVERHEAD, RETAINED_OVERHEAD
from millstream.queues.queue import Queue

DELIVERY_OVERHEAD: Final[i64] = 160  # a delivery and its places in a session
RECORD_OVERHEAD: Final[i64] = 64  # a record in the tail of a durable queue
ROUTE_OVERHEAD: Final[i64] = 400  # a route in a cache


def survey(broker: Broker, lines: list[Line]) -> dict[str, int]:
    send_queues: i64 = 0
    input_bytes: i64 = 0
    for line in lines:
        send_queues += line.unsent_bytes()
        input_bytes += line.held_bytes()
    sessions: i64 = 0
    tails: i64 = 0
    transient: i64 = 0
    caches: i64 = 0
    for account in broker.accounts.values():
        caches += (account.router.cache_weight() + account.exchanges.cache_weight()) * ROUTE_OVERHEAD
        for session in account.sessions.values():
            sessions += session.queued_bytes() + DELIVERY_OVERHEAD * (
                session.queued_count() + session.window.count
            )
        for queue in account.queues.catalog.queues.values():
            if queue.is_durable:
                tails += queue.footprint.memory_bytes() + RECORD_OVERHEAD * (
                    queue.tail.end - queue.tail.first
                )
            else:
                transient += transient_bytes(queue)
    return {
        "send_queues": send_queues,
        "input": input_bytes,
        "session_queues": sessions,
        "queue_tails": tails,
        "transient_queues": transient,
        "retained": retained_bytes(broker),
        "caches": caches,
        "log": broker.store.backlog_bytes(),
    }


def transient_bytes(queue: Queue) -> i64:
    return queue.footprint.bytes + MESSAGE_OVERHEAD * (queue.tail.end - queue.low_mark())


def retained_bytes(broker: Broker) -> i64:
    size: i64 = 0
    for account in broker.accounts.values():
        size += account.retained.size_bytes + account.retained.count * RETAINED_OVERHEAD
    return size
