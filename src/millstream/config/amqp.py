"""The section of the configuration on AMQP 0.9.1. Keys that RabbitMQ has too bear its names."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from millstream.config.section import Section, setting
from millstream.config.tls import LOOPBACK, PORT_TEXT, Tls
from millstream.config.values import (
    Milliseconds,
    OptionalMilliseconds,
    OptionalSize,
    OptionalText,
    OptionalWhole,
    PolicyOverflow,
    PolicyTarget,
    Seconds,
    Size,
    Switch,
    Text,
    Whole,
)
from millstream.model.limits import Limits

KIB: Final = 1024
MIB: Final = 1024 * KIB
DAY_MS: Final = 86_400_000

_DEFAULTS: Final = Limits()


class AmqpTls(Tls):
    port: Whole = setting(5671, f"Port of the TLS listener. {PORT_TEXT}", minimum=0, maximum=65_535)


class AmqpPolicy(Section):
    """What RabbitMQ's policies can say. A number holds beside the argument of a declaration: the smaller counts."""

    pattern: Text = setting(
        "", "Regular expression over names; found anywhere in the name unless it is anchored.", live=True
    )
    apply_to: PolicyTarget = setting("all", "`queues`, `exchanges` or `all`.", live=True)
    priority: Whole = setting(
        0,
        "Of all policies that fit a name only the one with the highest counts.",
        minimum=0,
        maximum=1_000_000,
        live=True,
    )
    message_ttl: OptionalMilliseconds = setting(
        None, "As `x-message-ttl`.", unit="milliseconds", minimum=0, maximum=3650 * DAY_MS, live=True
    )
    expires: OptionalMilliseconds = setting(
        None, "As `x-expires`.", unit="milliseconds", minimum=1, maximum=3650 * DAY_MS, live=True
    )
    max_length: OptionalWhole = setting(None, "As `x-max-length`.", minimum=0, maximum=10**15, live=True)
    max_length_bytes: OptionalSize = setting(
        None, "As `x-max-length-bytes`.", unit="bytes", minimum=0, maximum=1024 * 1024**4, live=True
    )
    overflow: PolicyOverflow = setting(
        None, "As `x-overflow`: `drop-head`, `reject-publish` or `reject-publish-dlx`.", live=True
    )
    dead_letter_exchange: OptionalText = setting(None, "As `x-dead-letter-exchange`.", live=True)
    dead_letter_routing_key: OptionalText = setting(None, "As `x-dead-letter-routing-key`.", live=True)
    max_age: OptionalText = setting(
        None, "As `x-max-age` of a stream: a number with Y, M, D, h, m or s.", live=True
    )
    delivery_limit: OptionalWhole = setting(
        None, "As `x-delivery-limit` of a quorum queue.", minimum=0, maximum=999_999, live=True
    )
    alternate_exchange: OptionalText = setting(
        None,
        "Where an exchange sends what matches none of its bindings, as its argument `alternate-exchange`.",
        live=True,
    )


class Amqp(Section):
    enabled: Switch = setting(
        default=True, text="Open the plain TCP listener. The TLS listener is opened by `amqp.tls`."
    )
    host: Text = setting(LOOPBACK, "Address to listen on. Beyond loopback, authentication must be set up.")
    port: Whole = setting(5672, f"Port of the plain listener. {PORT_TEXT}", minimum=0, maximum=65_535)
    tls: AmqpTls = Field(default=AmqpTls(), description="The TLS listener for AMQP.")
    frame_max: Size = setting(
        _DEFAULTS.amqp_frame_max,
        "Largest frame, offered to clients; a client may ask for smaller ones.",
        unit="bytes",
        minimum=4096,  # frame-min-size of the specification
        maximum=16 * MIB,
    )
    channel_max: Whole = setting(
        _DEFAULTS.amqp_channel_max,
        "Channels of one connection, offered to clients; a client may ask for fewer.",
        minimum=1,
        maximum=65_535,
    )
    heartbeat: Seconds = setting(
        _DEFAULTS.amqp_heartbeat_s,
        "Heartbeat time-out suggested to clients; the client decides. 0 suggests none.",
        unit="seconds",
        minimum=0,
        maximum=65_535,
    )
    consumer_timeout: Milliseconds = setting(
        _DEFAULTS.amqp_consumer_timeout_ms,
        "A delivery that is not acknowledged for so long closes its channel and goes back to the queue; 0 for no "
        "such limit.",
        unit="milliseconds",
        minimum=0,
        maximum=365 * DAY_MS,
    )
    max_message_size: Size = setting(
        _DEFAULTS.amqp_body_size_max,
        "Largest body taken from an AMQP client; `broker.max_message_size` bounds the payloads of MQTT.",
        unit="bytes",
        minimum=1,
        maximum=512 * MIB,
    )
    max_properties_size: Size = setting(
        _DEFAULTS.amqp_properties_size_max,
        "Largest property list of a message, headers included. It must fit one frame in any case.",
        unit="bytes",
        minimum=256,
        maximum=16 * MIB,
    )
    max_header_conditions: Whole = setting(
        _DEFAULTS.amqp_header_conditions_max,
        "Values that all bindings of headers exchanges of an account may compare with a message, which is what a message to "
        "one of them costs to route; a binding beyond it is refused.",
        minimum=100,
        maximum=100_000_000,
    )
    policies: dict[str, AmqpPolicy] = Field(
        default={},
        description="Settings for queues that AMQP clients declared, and for exchanges, by a pattern of their names. "
        "They hold for what is there and for what will be declared; a change of them takes effect on SIGHUP.",
    )
