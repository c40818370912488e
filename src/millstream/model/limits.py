"""Every bound of the broker, in one place, with its default.

The configuration schema fills one `Limits` and hands it to everything that needs a bound.
Sizes are bytes, times carry their unit in the name, 0 never means "unlimited" unless the line says so.
"""

from __future__ import annotations

from dataclasses import dataclass

NEVER_EXPIRES = 0xFFFF_FFFF  # MQTT 5's own value for "does not expire", in seconds


@dataclass(frozen=True)
class Limits:
    # --- messages and topics
    message_size_max: int = 1024 * 1024  # payload
    packet_size_max: int = 1024 * 1024 + 64 * 1024  # a whole MQTT packet after authentication
    topic_length_max: int = 65_535  # all that MQTT can carry [MQTT-4.7.3-3]
    topic_levels_max: int = 256
    user_properties_max: int = 256
    guarantee_max: int = 2  # highest QoS granted and accepted

    # --- before authentication
    connect_packet_size_max: int = 72 * 1024  # room for one field of 65,535 bytes
    handshake_timeout_ms: int = 10_000  # from accept to CONNECT complete, TLS and WebSocket included
    authentication_timeout_ms: int = 10_000
    connections_max: int = 100_000
    unauthenticated_max: int = 20_000
    unauthenticated_per_address_max: int = 15_000
    tls_handshakes_max: int = 1000  # between ClientHello and authentication

    # --- connection
    keep_alive_s_max: int = 65_535  # a longer or absent keep-alive is answered with this [MQTT-3.1.2-21]
    receive_maximum: int = 1024  # QoS 1 and 2 publishes a client may have open towards us
    topic_alias_maximum: int = 64  # aliases a client may use towards us
    topic_alias_out_maximum: int = 16  # aliases we use towards a client that allows them
    unsent_bytes_high: int = 1024 * 1024  # above: sources wait
    unsent_bytes_low: int = 256 * 1024  # below: they go on
    unsent_bytes_max: int = 8 * 1024 * 1024  # above: QoS 0 to this connection is dropped and counted
    slow_grace_ms: int = 100  # a full outlet without progress for so long no longer holds its sources
    disconnect_on_full: bool = False

    # --- sessions
    sessions_max: int = 100_000
    session_expiry_default_s: int = NEVER_EXPIRES  # for 3.1.1 clients with clean session 0
    session_expiry_s_max: int = NEVER_EXPIRES
    inflight_max: int = 256  # unsettled deliveries per session
    offline_messages_max: int = 1000
    offline_bytes_max: int = 16 * 1024 * 1024
    offline_policy: str = "evict"  # evict the oldest, or reject the new
    inflight_overflow: str = "backpressure"  # or pending
    pending_messages_max: int = 1000
    subscriptions_max: int = 10_000  # per session
    subscription_bytes_max: int = 4 * 1024 * 1024  # of the filters of a session
    filters_per_subscribe_max: int = 1000
    session_shapes_max: int = 100  # ways in which the wildcards of a session's filters are placed
    will_delay_s_max: int = NEVER_EXPIRES

    # --- broker
    retained_messages_max: int = 1_000_000
    retained_bytes_max: int = 1024 * 1024 * 1024
    async_fan_out: bool = False
    fan_out_pending_max: int = 10_000
    reject_qos2_publish: bool = False
    downgrade_qos2_subscribe: bool = False
    max_ack_pending: int = 0  # 0: only inflight_max bounds the window
    route_cache_max: int = 200_000  # topics remembered per account
    shapes_max: int = 4096  # the same of the filters of an account: what one topic costs to match
    queues_per_message_max: int = 12_000  # one message is put into all its queues in one turn of the loop
    stored_bytes_per_message_max: int = 64 * 1024 * 1024  # one message in all its durable queues
    share_groups_max: int = 10_000  # of an account, beside the first of each filter: a message goes to each
    sys_interval_s: int = 10  # refresh of $SYS; 0 turns it off

    # --- queues
    revoked_bindings: str = "suspend"  # or remove: what becomes of those made under a right that is gone
    queue_backlog_max: int = 5000  # messages a served queue may grow by; then publishers wait. 0: no bound
    queue_backlog_bytes_max: int = 16 * 1024 * 1024
    queue_auto_create: str = "work"  # kind of a queue that the first use of its name makes; off: none is

    # --- AMQP 0.9.1
    amqp_frame_max: int = 128 * 1024
    amqp_channel_max: int = 2047  # of one connection
    amqp_heartbeat_s: int = 60  # suggested to clients; 0: none
    amqp_consumer_timeout_ms: int = 30 * 60 * 1000  # 0: a delivery may stay open for ever
    amqp_body_size_max: int = 16 * 1024 * 1024  # as in RabbitMQ 4: one body is one turn of the loop
    amqp_properties_size_max: int = 128 * 1024
    amqp_header_conditions_max: int = (
        200_000  # values that bindings of headers exchanges compare with each message
    )

    # --- rates (tokens per second and burst); 0 turns a limit off
    connection_rate: float = 0.0  # new connections per address
    connection_burst: int = 100
    message_rate: float = 0.0  # publishes per client
    message_burst: int = 1000
    subscribe_rate: float = 0.0  # filters per client
    subscribe_burst: int = 1000
