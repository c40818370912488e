"""Plain counters of one account. Read by snapshot; never an object or a call per message."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64


@final
class Counters:
    def __init__(self) -> None:
        self.messages_received: i64 = 0
        self.messages_sent: i64 = 0
        self.bytes_received: i64 = 0
        self.bytes_sent: i64 = 0
        self.connections_total: i64 = 0
        self.connections_refused: i64 = 0
        self.publishes_denied: i64 = 0
        self.subscribes_denied: i64 = 0
        self.deliveries_denied: i64 = 0
        self.bindings_revoked: i64 = 0  # suspended or removed, because the right they were made under is gone
        self.dead_letters_denied: i64 = 0  # the right to where they go is gone
        self.subscribes_limited: i64 = 0  # filters beyond a limit
        self.turns_waited: i64 = 0  # times a client's packets took more than its share of a turn, and waited
        self.dropped_slow: i64 = 0  # at most once, to a connection that does not keep up
        self.dropped_queue_full: i64 = 0
        self.dropped_expired: i64 = 0
        self.dropped_too_large: i64 = 0
        self.dropped_offline: i64 = 0  # at most once, to a session without a connection
        self.rate_pauses: i64 = 0  # times a client that publishes too fast was not read
        self.dropped_no_receiver: i64 = 0  # nobody was subscribed
        self.dropped_memory: i64 = 0  # memory is above its critical watermark
        self.dropped_no_storage: i64 = 0  # the disk is full, broken, or does not keep up
        self.retained_refused: i64 = 0
        self.deliveries_handed_over: i64 = 0
        self.protocol_errors: i64 = 0
        self.clients_refused: i64 = 0  # at their login, of any account
        self.clients_limited: i64 = 0  # kept from something, or slowed down, of any account
        self.quota_sessions: i64 = 0  # refused, because a user or the account has as many as it may
        self.quota_connections: i64 = 0
        self.quota_queues: i64 = 0
        self.quota_subscriptions: i64 = 0
        self.quota_bytes: i64 = 0
        self.sessions_expired: i64 = 0
        self.wills_sent: i64 = 0

    def snapshot(self) -> dict[str, int]:
        return {
            "quota_sessions": self.quota_sessions,
            "quota_connections": self.quota_connections,
            "quota_queues": self.quota_queues,
            "quota_subscriptions": self.quota_subscriptions,
            "quota_bytes": self.quota_bytes,
            "messages_received": self.messages_received,
            "messages_sent": self.messages_sent,
            "bytes_received": self.bytes_received,
            "bytes_sent": self.bytes_sent,
            "connections_total": self.connections_total,
            "connections_refused": self.connections_refused,
            "publishes_denied": self.publishes_denied,
            "subscribes_denied": self.subscribes_denied,
            "deliveries_denied": self.deliveries_denied,
            "bindings_revoked": self.bindings_revoked,
            "dead_letters_denied": self.dead_letters_denied,
            "subscribes_limited": self.subscribes_limited,
            "turns_waited": self.turns_waited,
            "dropped_slow": self.dropped_slow,
            "dropped_queue_full": self.dropped_queue_full,
            "dropped_expired": self.dropped_expired,
            "dropped_too_large": self.dropped_too_large,
            "dropped_offline": self.dropped_offline,
            "rate_pauses": self.rate_pauses,
            "dropped_no_receiver": self.dropped_no_receiver,
            "dropped_memory": self.dropped_memory,
            "dropped_no_storage": self.dropped_no_storage,
            "retained_refused": self.retained_refused,
            "deliveries_handed_over": self.deliveries_handed_over,
            "protocol_errors": self.protocol_errors,
            "clients_refused": self.clients_refused,
            "clients_limited": self.clients_limited,
            "sessions_expired": self.sessions_expired,
            "wills_sent": self.wills_sent,
        }
