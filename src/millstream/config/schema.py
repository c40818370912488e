"""The one schema of the configuration: every key with its meaning, unit, default and bounds.

Loading, the reference page, the JSON Schema, the variables and `--set` are all derived from here.
Rules that look at several keys at once stand in `rules.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import Field

from millstream.config.amqp import Amqp
from millstream.config.control import Control
from millstream.config.log import Log
from millstream.config.memory import Memory
from millstream.config.named import Account, QueueSettings
from millstream.config.quotas import USER_QUOTAS_TEXT, UserQuotas
from millstream.config.rates import RateLimit
from millstream.config.reader import Reader
from millstream.config.section import Section, setting
from millstream.config.storage import Storage
from millstream.config.tls import LOOPBACK, PORT_TEXT, Tls
from millstream.config.values import (
    Algorithm,
    AutoCreate,
    FilePath,
    FractionalSeconds,
    Milliseconds,
    OptionalPath,
    OptionalSize,
    OptionalSwitch,
    OptionalText,
    Overflow,
    Policy,
    Quality,
    Revoked,
    Seconds,
    Size,
    Switch,
    Text,
    TextList,
    Whole,
)
from millstream.model.limits import NEVER_EXPIRES, Limits
from millstream.security.login_queue import WAITING_MAX, WAITING_PER_ADDRESS_MAX

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
PACKET_SIZE_CEILING: Final = 268_435_460  # the largest packet MQTT can express, header included
PACKET_OVERHEAD: Final = 64 * KIB  # room for topic and properties beside the largest payload
DEFAULT_ACCOUNT: Final = "default"

_DEFAULTS: Final = Limits()


class MqttTls(Tls):
    port: Whole = setting(8883, f"Port of the TLS listener. {PORT_TEXT}", minimum=0, maximum=65_535)


class WebSocketTls(Tls):
    port: Whole = setting(8084, f"Port of the TLS listener. {PORT_TEXT}", minimum=0, maximum=65_535)


class Mqtt(Section):
    enabled: Switch = setting(
        default=True, text="Open the plain TCP listener. The TLS listener is opened by `mqtt.tls`."
    )
    host: Text = setting(LOOPBACK, "Address to listen on. Beyond loopback, authentication must be set up.")
    port: Whole = setting(1883, f"Port of the plain listener. {PORT_TEXT}", minimum=0, maximum=65_535)
    tls: MqttTls = Field(default=MqttTls(), description="The TLS listener for MQTT.")
    max_connections: Whole = setting(
        _DEFAULTS.connections_max,
        "Connections open at the same time, over all listeners.",
        minimum=1,
        maximum=10_000_000,
    )
    max_unauthenticated: Whole = setting(
        _DEFAULTS.unauthenticated_max,
        "Connections that may be waiting for their CONNECT to be accepted at the same time.",
        minimum=1,
        maximum=10_000_000,
    )
    max_unauthenticated_per_address: Whole = setting(
        _DEFAULTS.unauthenticated_per_address_max,
        "The same, from one address.",
        minimum=1,
        maximum=10_000_000,
    )
    max_tls_handshakes: Whole = setting(
        _DEFAULTS.tls_handshakes_max,
        "TLS connections, over all listeners, that may be between their first message and an accepted login at the same "
        "time; at most half of them from one address. More wait, and who keeps them waiting for a second is closed. Logins that "
        "wait to be checked are not counted here but by auth.max_waiting_logins.",
        minimum=1,
        maximum=10_000_000,
    )
    handshake_timeout: FractionalSeconds = setting(
        _DEFAULTS.handshake_timeout_ms / 1000,
        "Time from accept to a complete CONNECT, TLS and WebSocket handshakes included.",
        unit="seconds",
        minimum=0.05,
        maximum=600,
    )
    authentication_timeout: FractionalSeconds = setting(
        _DEFAULTS.authentication_timeout_ms / 1000,
        "Time from CONNECT to the end of authentication, enhanced authentication included.",
        unit="seconds",
        minimum=0.05,
        maximum=600,
    )
    max_connect_packet_size: Size = setting(
        _DEFAULTS.connect_packet_size_max,
        "Largest packet taken from a client that is not authenticated yet.",
        unit="bytes",
        minimum=128,
        maximum=16 * MIB,
    )
    max_packet_size: OptionalSize = setting(
        None,
        "Largest MQTT packet taken from a client, announced to MQTT 5 clients.",
        unit="bytes",
        minimum=128,
        maximum=PACKET_SIZE_CEILING,
        shown_default="`broker.max_message_size` + 64 KiB",
    )
    max_keep_alive: Seconds = setting(
        _DEFAULTS.keep_alive_s_max,
        "Longest keep-alive. A longer or absent one is answered with this value (server keep alive).",
        unit="seconds",
        minimum=1,
        maximum=65_535,
    )
    receive_maximum: Whole = setting(
        _DEFAULTS.receive_maximum,
        "QoS 1 and 2 publishes a client may have unconfirmed at the same time.",
        minimum=1,
        maximum=65_535,
    )
    topic_alias_maximum: Whole = setting(
        _DEFAULTS.topic_alias_maximum,
        "Topic aliases a client may use towards the broker; 0 forbids them.",
        minimum=0,
        maximum=65_535,
    )
    topic_alias_out_maximum: Whole = setting(
        _DEFAULTS.topic_alias_out_maximum,
        "Topic aliases the broker uses towards a client that allows them; 0 uses none.",
        minimum=0,
        maximum=65_535,
    )
    reject_qos2_publish: Switch = setting(
        _DEFAULTS.reject_qos2_publish, "Refuse QoS 2 publishes and QoS 2 wills."
    )
    downgrade_qos2_subscribe: Switch = setting(
        _DEFAULTS.downgrade_qos2_subscribe, "Grant QoS 1 to subscriptions that ask for QoS 2."
    )
    max_ack_pending: Whole = setting(
        _DEFAULTS.max_ack_pending,
        "QoS 1 and 2 deliveries a session may leave unacknowledged; 0 leaves it to "
        "`session.max_inflight_messages`.",
        minimum=0,
        maximum=65_535,
    )
    server_reference: OptionalText = setting(
        None,
        "Another server, `host:port`, named to MQTT 5 clients that are turned away because this one is "
        "full or shutting down.",
    )


class WebSocket(Section):
    enabled: Switch = setting(
        default=True, text="Open the plain WebSocket listener. TLS is opened by `websocket.tls`."
    )
    host: Text = setting(LOOPBACK, "Address to listen on. Beyond loopback, authentication must be set up.")
    port: Whole = setting(8083, f"Port of the plain listener. {PORT_TEXT}", minimum=0, maximum=65_535)
    path: Text = setting("/mqtt", "Path of the upgrade request.")
    allowed_origins: TextList = setting(
        (),
        "Origins whose web pages may connect, such as `https://plant.example`, `*.plant.example` for every "
        "host below it, or `*` for all. Empty: pages from the host of the broker itself. Clients that send no "
        "Origin (all but browsers) are not concerned.",
    )
    allowed_hosts: TextList = setting(
        (),
        "Names by which clients may call the broker (the Host header), such as `plant.example` behind a proxy, or `*` "
        "for every name. Empty: on loopback addresses, `localhost` and the hosts of `websocket.allowed_origins`; "
        "beyond loopback every name. Other names are refused with 421: a web page could have made them mean this machine.",
    )
    tls: WebSocketTls = Field(default=WebSocketTls(), description="The TLS listener for WebSocket.")


class Broker(Section):
    max_message_size: Size = setting(
        _DEFAULTS.message_size_max,
        "Largest payload of a message.",
        unit="bytes",
        minimum=1,
        maximum=PACKET_SIZE_CEILING - PACKET_OVERHEAD,
    )
    max_topic_length: Size = setting(
        _DEFAULTS.topic_length_max, "Longest topic or filter.", unit="bytes", minimum=16, maximum=65_535
    )
    max_topic_levels: Whole = setting(
        _DEFAULTS.topic_levels_max, "Most levels of a topic or filter.", minimum=1, maximum=32_768
    )
    max_user_properties: Whole = setting(
        _DEFAULTS.user_properties_max, "Most user properties on one packet.", minimum=0, maximum=65_535
    )
    max_qos: Quality = setting(
        _DEFAULTS.guarantee_max, "Highest QoS accepted from publishers and granted to subscribers."
    )
    max_retained_messages: Whole = setting(
        _DEFAULTS.retained_messages_max,
        "Retained messages kept per account; a new topic beyond it is refused.",
        minimum=0,
        maximum=1_000_000_000,
    )
    max_retained_bytes: Size = setting(
        _DEFAULTS.retained_bytes_max,
        "Memory for retained messages per account.",
        unit="bytes",
        minimum=0,
        maximum=1024 * GIB,
    )
    queue_auto_create: AutoCreate = setting(
        _DEFAULTS.queue_auto_create,
        "The kind of queue that the first publish or subscription to `$queue/<name>` makes; `off` for none.",
    )
    queue_backlog_messages: Whole = setting(
        _DEFAULTS.queue_backlog_max,
        "Messages by which a queue may grow while its consumers are served; then those who publish into it are not read until "
        "it has shrunk. A queue without a consumer, or whose consumers answer nothing, makes nobody wait. 0: no bound.",
        minimum=0,
        maximum=10**9,
    )
    queue_backlog_bytes: Size = setting(
        _DEFAULTS.queue_backlog_bytes_max,
        "The same in bytes.",
        unit="bytes",
        minimum=64 * KIB,
        maximum=16 * GIB,
    )
    async_fan_out: Switch = setting(
        _DEFAULTS.async_fan_out,
        "Answer a QoS 2 publisher before its message has been handed to all subscribers.",
    )
    fan_out_queue_size: Whole = setting(
        _DEFAULTS.fan_out_pending_max,
        "Messages that may wait for an asynchronous fan-out; beyond it publishers wait.",
        minimum=1,
        maximum=10_000_000,
    )
    route_cache_size: Whole = setting(
        _DEFAULTS.route_cache_max,
        "Topics per account whose receivers are remembered.",
        minimum=0,
        maximum=100_000_000,
    )
    max_filter_shapes: Whole = setting(
        _DEFAULTS.shapes_max,
        "Different ways in which all filters of an account place their wildcards; one of more than 16 levels counts as several. "
        "It bounds what a message to a new topic costs. The binding patterns of its topic exchanges have the same bound; one "
        "with words behind `#` counts as many as it has words.",
        minimum=1,
        maximum=1_000_000,
    )
    max_queues_per_message: Whole = setting(
        _DEFAULTS.queues_per_message_max,
        "Queues that one message may go to; one that would go to more is refused, as it is put into all of them at once.",
        minimum=1,
        maximum=10_000_000,
    )
    max_stored_bytes_per_message: Size = setting(
        _DEFAULTS.stored_bytes_per_message_max,
        "Bytes that one message may take in all durable queues it goes to, together: each of them stores a copy. A message "
        "that would take more is refused. One queue takes every message that is not too large for the broker.",
        unit="bytes",
        minimum=1,
        maximum=1024 * GIB,
    )
    max_share_groups: Whole = setting(
        _DEFAULTS.share_groups_max,
        "Share groups of an account beside the first of each filter: a message goes to one member of each.",
        minimum=0,
        maximum=10_000_000,
    )
    sys_interval: Seconds = setting(
        _DEFAULTS.sys_interval_s,
        "How often the `$SYS` topics are refreshed; 0 turns them off.",
        unit="seconds",
        minimum=0,
        maximum=86_400,
    )


class Session(Section):
    max_sessions: Whole = setting(
        _DEFAULTS.sessions_max, "Sessions kept, connected or not.", minimum=1, maximum=100_000_000
    )
    default_expiry_interval: Seconds = setting(
        _DEFAULTS.session_expiry_default_s,
        "How long the session of an MQTT 3.1.1 client with clean session 0 is kept after it leaves. "
        "Cut to `session.max_expiry_interval` if that is shorter.",
        unit="seconds",
        minimum=0,
        maximum=NEVER_EXPIRES,
        shown_default="never",
    )
    max_expiry_interval: Seconds = setting(
        _DEFAULTS.session_expiry_s_max,
        "Longest session expiry interval granted to a client.",
        unit="seconds",
        minimum=0,
        maximum=NEVER_EXPIRES,
        shown_default="never",
    )
    max_inflight_messages: Whole = setting(
        _DEFAULTS.inflight_max,
        "QoS 1 and 2 deliveries a session may leave unacknowledged.",
        minimum=1,
        maximum=65_535,
    )
    inflight_overflow: Overflow = setting(
        _DEFAULTS.inflight_overflow,
        "What happens when that window is full: `backpressure` (0) makes publishers wait, `pending` (1) "
        "keeps up to `session.pending_queue_size` messages per session.",
    )
    pending_queue_size: Whole = setting(
        _DEFAULTS.pending_messages_max,
        "Messages per session that may wait for the window under `pending`.",
        minimum=1,
        maximum=10_000_000,
    )
    max_offline_queue_size: Whole = setting(
        _DEFAULTS.offline_messages_max,
        "Messages kept for a session while its client is away.",
        minimum=0,
        maximum=100_000_000,
    )
    max_offline_queue_bytes: Size = setting(
        _DEFAULTS.offline_bytes_max,
        "Bytes kept for a session while its client is away.",
        unit="bytes",
        minimum=0,
        maximum=1024 * GIB,
    )
    offline_queue_policy: Policy = setting(
        _DEFAULTS.offline_policy,
        "What a full offline queue does: `evict` drops its oldest message, `reject` refuses the new one. "
        "Both are counted.",
    )
    max_subscriptions: Whole = setting(
        _DEFAULTS.subscriptions_max, "Subscriptions of one session.", minimum=1, maximum=10_000_000
    )
    max_subscription_bytes: Size = setting(
        _DEFAULTS.subscription_bytes_max,
        "Bytes of the filters of one session, all together.",
        unit="bytes",
        minimum=1024,
        maximum=64 * GIB,
    )
    max_filters_per_subscribe: Whole = setting(
        _DEFAULTS.filters_per_subscribe_max,
        "Filters in one SUBSCRIBE or UNSUBSCRIBE packet.",
        minimum=1,
        maximum=1_000_000,
    )
    max_filter_shapes: Whole = setting(
        _DEFAULTS.session_shapes_max,
        "Different ways in which the filters of a session place their wildcards: `a/+/b` and `c/+/d` are one, `+/+/b` is another. "
        "Any number of filters may have the same.",
        minimum=1,
        maximum=1_000_000,
    )
    max_will_delay_interval: Seconds = setting(
        _DEFAULTS.will_delay_s_max,
        "Longest will delay; a longer one is cut.",
        unit="seconds",
        minimum=0,
        maximum=NEVER_EXPIRES,
        shown_default="never",
    )
    disconnect_on_full: Switch = setting(
        _DEFAULTS.disconnect_on_full,
        "Disconnect a client whose send queue is full instead of dropping QoS 0 messages to it.",
    )
    send_queue_low_bytes: Size = setting(
        _DEFAULTS.unsent_bytes_low,
        "Unsent bytes from which on a connection is watched for progress. Publishers that wait for it go on when "
        "a quarter of this is left.",
        unit="bytes",
        minimum=0,
        maximum=16 * GIB,
    )
    send_queue_high_bytes: Size = setting(
        _DEFAULTS.unsent_bytes_high,
        "Unsent bytes of a connection above which publishers to it wait.",
        unit="bytes",
        minimum=1,
        maximum=16 * GIB,
    )
    max_send_queue_bytes: Size = setting(
        _DEFAULTS.unsent_bytes_max,
        "Unsent bytes of a connection above which QoS 0 messages to it are dropped and counted.",
        unit="bytes",
        minimum=1,
        maximum=16 * GIB,
    )
    slow_consumer_grace: Milliseconds = setting(
        _DEFAULTS.slow_grace_ms,
        "A full connection that takes nothing for so long no longer makes publishers wait.",
        unit="milliseconds",
        minimum=0,
        maximum=600_000,
    )


class Jwt(Section):
    algorithm: Algorithm = setting(
        None, "Signature algorithm of the tokens clients send as their password. Null: no tokens."
    )
    secret_file: OptionalPath = setting(
        None, "File with the shared secret of HS256, at least 32 bytes.", needs_private=True
    )
    public_key_file: OptionalPath = setting(
        None, "File with the public key of RS256 or ES256 in PEM form.", is_input_file=True
    )
    issuer: OptionalText = setting(None, "Issuer (`iss`) a token must carry. Needed with tokens.")
    audience: OptionalText = setting(None, "Audience (`aud`) a token must carry. Needed with tokens.")

    @property
    def is_enabled(self) -> bool:
        return self.algorithm is not None


class Auth(Section):
    allow_anonymous: OptionalSwitch = setting(
        None,
        "Let clients in that show no credentials. Null: only while every listener is on loopback and no "
        "users or tokens are configured.",
    )
    anonymous_account: Text = setting(DEFAULT_ACCOUNT, "Account of clients without credentials.")
    password_file: OptionalPath = setting(
        None, "Users and their hashed passwords, made by `millstream user add`.", needs_private=True
    )
    acl_file: OptionalPath = setting(
        None, "Rules for who may publish and subscribe where. Null: everyone may.", is_input_file=True
    )
    revoked_bindings: Revoked = setting(
        _DEFAULTS.revoked_bindings,
        "What becomes of a binding whose maker has lost the right to it: `suspend` keeps it, and it brings nothing until "
        "the right is back; `remove` removes it.",
    )
    max_waiting_logins: Whole = setting(
        WAITING_MAX,
        "Logins that may wait for their password to be checked at the same time; more are told to try again (server busy).",
        minimum=1,
        maximum=1_000_000,
    )
    max_waiting_logins_per_address: Whole = setting(
        WAITING_PER_ADDRESS_MAX, "The same, from one address.", minimum=1, maximum=1_000_000
    )
    certificates_as_users: Switch = setting(
        default=False, text="Take the common name of a verified client certificate as the user."
    )
    jwt: Jwt = Field(default=Jwt(), description="Tokens instead of passwords.")


class Config(Section):
    data_dir: FilePath = setting(
        Path("millstream-data"),
        "Directory for what must survive a restart. One broker uses it at a time.",
    )
    storage: Storage = Field(default=Storage(), description="What survives a restart, and how safely.")
    mqtt: Mqtt = Field(default=Mqtt(), description="MQTT 3.1, 3.1.1 and 5.0 over TCP and TLS.")
    websocket: WebSocket = Field(default=WebSocket(), description="MQTT over WebSocket.")
    amqp: Amqp = Field(default=Amqp(), description="AMQP 0.9.1 over TCP and TLS.")
    broker: Broker = Field(default=Broker(), description="Messages, topics, retained messages, fan-out.")
    session: Session = Field(default=Session(), description="What is kept for a client and how much of it.")
    memory: Memory = Field(default=Memory(), description="How much memory the broker may use.")
    ratelimit: RateLimit = Field(default=RateLimit(), description="Token buckets per address and client.")
    auth: Auth = Field(default=Auth(), description="Who may connect, and what they may do.")
    accounts: dict[str, Account] = Field(
        default={},
        description="Isolated topic spaces by name. The account `default` always exists.",
    )
    user_quotas: UserQuotas = Field(default=UserQuotas(), description=USER_QUOTAS_TEXT)
    queues: dict[str, QueueSettings] = Field(
        default={},
        description="Queues that are there from the start, by name; those of the account `default`.",
    )
    reader: Reader = Field(default=Reader(), description="Streams as Arrow batches over HTTP.")
    control: Control = Field(default=Control(), description="How commands reach a running broker.")
    log: Log = Field(default=Log(), description="What is logged and how.")
