"""The section of the configuration on what survives a restart."""

from __future__ import annotations

from typing import Final

from millstream.config.section import Section, setting
from millstream.config.values import Compression, Durability, Milliseconds, Size

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB


class Storage(Section):
    durability: Durability = setting(
        "fsync",
        "When a QoS 1 or 2 publish for a session that outlives its connection, a retained message or a subscription is "
        "confirmed: `fsync` after it is on disk; `os` after it is handed to the system, so that a power cut can "
        "take the last second, from the newest back, and what was received in it may come again; `memory` at once, and "
        "nothing survives the process.",
    )
    stall_timeout: Milliseconds = setting(
        600,
        "How long the disk may take nothing before publishers that wait for it are told, and others refused, until it answers "
        "again. Telling takes up to 0.4 s more. Longer suits a disk that pauses now and then.",
        unit="milliseconds",
        minimum=100,
        maximum=3_600_000,
    )
    log_file_size: Size = setting(
        16 * MIB,
        "Size of one file of the write-ahead log; a full one is folded into the state and removed. Records of queues "
        "stay in memory until then.",
        unit="bytes",
        minimum=64 * KIB,
        maximum=4 * GIB,
    )
    log_fill_size: Size = setting(
        256 * KIB,
        "With `fsync`: how much of a file of the log is filled with zeros ahead of small batches, so that their syncs need not "
        "enter new blocks into the file system's books. 0 for none: right where a file's blocks are never written twice in "
        "place, as on ZFS and Btrfs.",
        unit="bytes",
        minimum=0,
        maximum=16 * MIB,
    )
    segment_size: Size = setting(
        64 * MIB,
        "Size of one file with the records of a queue; the oldest goes when nobody needs anything in it.",
        unit="bytes",
        minimum=64 * KIB,
        maximum=4 * GIB,
    )
    check_segments: bool = setting(
        True,
        "Whether the files with the records of queues are read once after a start, in the background with a fifth of one processor at "
        "most, and damage in them is named in the log. Without it damage in a record is named when that is read.",
    )
    segment_compression: Compression = setting(
        "none",
        "Whether new files with the records of a queue are compressed: `zstd` makes text and JSON several times smaller, at "
        "the price of time in the process that writes them and in all that read them. Files of both kinds are read, "
        "whatever it says now.",
    )
