"""What every connection of a broker is held to, as native numbers, and the scratch they share.

One event loop owns all connections, and a scan is over before the next begins: one scratch serves all.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.protocols.amqp091.wire.field_table import FieldTable
from millstream.protocols.amqp091.wire.frames import PublishScan

FRAME_MIN: Final[i64] = 4096  # [AMQP091 connection.tune] every peer takes frames of this size
GATHERED_MIN: Final[i64] = 256 * 1024 * 1024


@final
class Terms:
    def __init__(
        self,
        frame_max: i64,
        channel_max: i64,
        heartbeat_s: i64,
        body_size_max: i64,
        properties_size_max: i64,
        handshake_timeout_ns: i64,
        start_bytes_max: i64,
        mechanisms: bytes,
        server_properties: FieldTable,
    ) -> None:
        assert frame_max >= FRAME_MIN, "no frame of the handshake would fit"
        self.frame_max: i64 = frame_max
        self.channel_max: i64 = channel_max
        self.heartbeat_s: i64 = heartbeat_s
        self.body_size_max: i64 = body_size_max
        self.properties_size_max: i64 = properties_size_max
        self.handshake_timeout_ns: i64 = handshake_timeout_ns  # also for the answer to our close
        self.start_bytes_max: i64 = start_bytes_max  # a frame of a peer that is not authenticated
        self.mechanisms = mechanisms
        self.server_properties = server_properties
        # unfinished contents of all channels of a connection: the channels may be many, memory is not
        self.gathered_max: i64 = max(GATHERED_MIN, 2 * body_size_max)
        self.scan = PublishScan()
