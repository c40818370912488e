"""The section of the configuration on how fast clients may connect, publish and subscribe."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from millstream.config.section import Section, setting
from millstream.config.values import Rate, Switch, Whole
from millstream.model.limits import Limits

_DEFAULTS: Final = Limits()


class ConnectionRate(Section):
    rate: Rate = setting(
        100.0, "New connections per second from one address; 0 for no limit.", minimum=0, maximum=1e9
    )
    burst: Whole = setting(
        _DEFAULTS.connection_burst, "Connections at once.", minimum=1, maximum=1_000_000_000
    )


class MessageRate(Section):
    rate: Rate = setting(
        1000.0, "Publishes per second from one client; 0 for no limit.", minimum=0, maximum=1e9
    )
    burst: Whole = setting(_DEFAULTS.message_burst, "Publishes at once.", minimum=1, maximum=1_000_000_000)


class SubscribeRate(Section):
    rate: Rate = setting(
        100.0,
        "Filters per second subscribed by one MQTT client, more are refused; queues, exchanges, bindings and consumers "
        "per second made by one AMQP client, which is not read until its rate allows for them. 0 for no limit.",
        minimum=0,
        maximum=1e9,
    )
    burst: Whole = setting(_DEFAULTS.subscribe_burst, "So many at once.", minimum=1, maximum=1_000_000_000)


class RateLimit(Section):
    enabled: Switch = setting(default=False, text="Enforce the rates below.")
    connection: ConnectionRate = Field(default=ConnectionRate(), description="New connections, by address.")
    message: MessageRate = Field(default=MessageRate(), description="Publishes, by client.")
    subscribe: SubscribeRate = Field(
        default=SubscribeRate(), description="Subscriptions and declarations, by client."
    )
