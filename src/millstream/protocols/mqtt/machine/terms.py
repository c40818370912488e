"""What every connection of a broker is held to, as native numbers, and the scratch they share.

One event loop owns all connections, and a scan is over before the next begins: one scratch serves all.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from millstream.model.limits import Limits
from millstream.model.outbox import OutboxPool
from millstream.protocols.mqtt.wire.publish_scan import PublishScan


@final
class Terms:
    def __init__(self, limits: Limits, pool: OutboxPool) -> None:
        self.pool = pool
        self.scan = PublishScan(limits.user_properties_max)
        self.packet_size_max: i64 = limits.packet_size_max
        self.connect_packet_size_max: i64 = limits.connect_packet_size_max
        self.message_size_max: i64 = limits.message_size_max
        self.receive_maximum: i64 = limits.receive_maximum
        self.topic_alias_maximum: i64 = limits.topic_alias_maximum
        self.topic_alias_out_maximum: i64 = limits.topic_alias_out_maximum
        self.keep_alive_s_max: i64 = limits.keep_alive_s_max
        self.filters_max = limits.filters_per_subscribe_max
        self.authentication_ns: i64 = limits.authentication_timeout_ms * 1_000_000
        self.handshake_ns: i64 = limits.handshake_timeout_ms * 1_000_000
