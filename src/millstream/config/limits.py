"""From the configuration to the bounds the core works with. Every field of `Limits` has its key here."""

from __future__ import annotations

from dataclasses import replace

from millstream.config.amqp import Amqp
from millstream.config.rates import RateLimit
from millstream.config.schema import PACKET_OVERHEAD, Broker, Config
from millstream.model.limits import Limits


def to_limits(config: Config) -> Limits:
    mqtt, broker, session = config.mqtt, config.broker, config.session
    packet_size_max = mqtt.max_packet_size
    limits = Limits(
        message_size_max=broker.max_message_size,
        packet_size_max=broker.max_message_size + PACKET_OVERHEAD
        if packet_size_max is None
        else packet_size_max,
        topic_length_max=broker.max_topic_length,
        topic_levels_max=broker.max_topic_levels,
        user_properties_max=broker.max_user_properties,
        guarantee_max=broker.max_qos,
        connect_packet_size_max=mqtt.max_connect_packet_size,
        handshake_timeout_ms=round(mqtt.handshake_timeout * 1000),
        authentication_timeout_ms=round(mqtt.authentication_timeout * 1000),
        connections_max=mqtt.max_connections,
        unauthenticated_max=mqtt.max_unauthenticated,
        unauthenticated_per_address_max=mqtt.max_unauthenticated_per_address,
        tls_handshakes_max=mqtt.max_tls_handshakes,
        keep_alive_s_max=mqtt.max_keep_alive,
        receive_maximum=mqtt.receive_maximum,
        topic_alias_maximum=mqtt.topic_alias_maximum,
        topic_alias_out_maximum=mqtt.topic_alias_out_maximum,
        unsent_bytes_high=session.send_queue_high_bytes,
        unsent_bytes_low=session.send_queue_low_bytes,
        unsent_bytes_max=session.max_send_queue_bytes,
        slow_grace_ms=session.slow_consumer_grace,
        disconnect_on_full=session.disconnect_on_full,
        sessions_max=session.max_sessions,
        session_expiry_default_s=min(session.default_expiry_interval, session.max_expiry_interval),
        session_expiry_s_max=session.max_expiry_interval,
        inflight_max=session.max_inflight_messages,
        offline_messages_max=session.max_offline_queue_size,
        offline_bytes_max=session.max_offline_queue_bytes,
        offline_policy=session.offline_queue_policy,
        inflight_overflow=session.inflight_overflow,
        pending_messages_max=session.pending_queue_size,
        subscriptions_max=session.max_subscriptions,
        subscription_bytes_max=session.max_subscription_bytes,
        filters_per_subscribe_max=session.max_filters_per_subscribe,
        session_shapes_max=session.max_filter_shapes,
        will_delay_s_max=session.max_will_delay_interval,
        retained_messages_max=broker.max_retained_messages,
        retained_bytes_max=broker.max_retained_bytes,
        async_fan_out=broker.async_fan_out,
        fan_out_pending_max=broker.fan_out_queue_size,
        reject_qos2_publish=mqtt.reject_qos2_publish,
        downgrade_qos2_subscribe=mqtt.downgrade_qos2_subscribe,
        max_ack_pending=mqtt.max_ack_pending,
        route_cache_max=broker.route_cache_size,
        shapes_max=broker.max_filter_shapes,
        share_groups_max=broker.max_share_groups,
        sys_interval_s=broker.sys_interval,
        revoked_bindings=config.auth.revoked_bindings,
    )
    return _with_amqp(_with_rates(_with_queues(limits, broker), config.ratelimit), config.amqp)


def _with_queues(limits: Limits, broker: Broker) -> Limits:
    return replace(
        limits,
        queues_per_message_max=broker.max_queues_per_message,
        stored_bytes_per_message_max=broker.max_stored_bytes_per_message,
        queue_auto_create=broker.queue_auto_create,
        queue_backlog_max=broker.queue_backlog_messages,
        queue_backlog_bytes_max=broker.queue_backlog_bytes,
    )


def _with_rates(limits: Limits, rates: RateLimit) -> Limits:
    return replace(
        limits,
        connection_rate=rates.connection.rate if rates.enabled else 0.0,
        connection_burst=rates.connection.burst,
        message_rate=rates.message.rate if rates.enabled else 0.0,
        message_burst=rates.message.burst,
        subscribe_rate=rates.subscribe.rate if rates.enabled else 0.0,
        subscribe_burst=rates.subscribe.burst,
    )


def _with_amqp(limits: Limits, amqp: Amqp) -> Limits:
    return replace(
        limits,
        amqp_frame_max=amqp.frame_max,
        amqp_channel_max=amqp.channel_max,
        amqp_heartbeat_s=amqp.heartbeat,
        amqp_consumer_timeout_ms=amqp.consumer_timeout,
        amqp_body_size_max=amqp.max_message_size,
        amqp_properties_size_max=amqp.max_properties_size,
        amqp_header_conditions_max=amqp.max_header_conditions,
    )
