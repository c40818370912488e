"""The section of the configuration on how much memory the broker may use, and what it does when that gets short."""

from __future__ import annotations

from typing import Final

from millstream.config.section import Section, setting
from millstream.config.values import MemoryLimit, Milliseconds, TransientPolicy, Whole

MIB: Final = 1024 * 1024


class Memory(Section):
    limit: MemoryLimit = setting(
        "60%",
        "How much memory the process may have: a size such as `2 GiB`, or a share such as `60%` of what there is, which is the "
        "limit of its control group or the memory of the machine, whichever is less. The rest is for its children, the "
        "kernel's socket buffers and the page cache. `off` measures nothing and slows nobody: the kernel ends the process "
        "then when memory runs out.",
    )
    high_watermark: Whole = setting(
        70,
        "From so much of `memory.limit` on, clients that publish much are not read until there is room (AMQP clients are told by "
        "`connection.blocked`), caches are dropped, and records of durable queues leave memory early. In percent.",
        minimum=10,
        maximum=99,
    )
    critical_watermark: Whole = setting(
        90,
        "From so much of `memory.limit` on, publishes of more than 64 KiB (with all copies) are refused, and whoever holds most memory "
        "is made to let go of it. A fifth above the limit all publishes are, and at the limit sessions, connections, queues and subscriptions where those "
        "that are there have a good part of it: see docs/operations.md. In percent.",
        minimum=11,
        maximum=100,
    )
    stall_timeout: Milliseconds = setting(
        5000,
        "When memory has been above `memory.high_watermark` for so long without getting less, what stands still lets go of it "
        "as above `memory.critical_watermark`, so that publishers can go on.",
        unit="milliseconds",
        minimum=100,
        maximum=3_600_000,
    )
    transient_queue_policy: TransientPolicy = setting(
        "drop_head",
        "What a large transient queue does then: `drop_head` lets its oldest messages go, counted; `keep` keeps them, and "
        "publishers wait until they are consumed.",
    )


def to_bytes(limit: str, available: int) -> int:
    """The limit in bytes; 0: none, because it is off or nothing is known that a share could be of."""
    if limit.endswith("%"):
        return available * int(limit[:-1]) // 100
    return int(limit)
