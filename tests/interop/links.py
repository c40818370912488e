"""Which clients the tests run, over which transports, in which version of MQTT."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pytest
from aiomqtt_client import AiomqttClient
from gmqtt_client import GmqttClient
from mqttjs_client import MqttJsClient, find_missing
from paho_client import PahoClient

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet
    from foreign_client import ForeignClient

TRANSPORTS = ("tcp", "tls", "ws", "wss")
VERSIONS = (4, 5)
KINDS: tuple[type[ForeignClient], ...] = (PahoClient, AiomqttClient, GmqttClient, MqttJsClient)


@dataclass(frozen=True)
class Link:
    """One way for one client to reach the broker."""

    kind: type[ForeignClient]
    transport: str
    version: int


def marks_of(*kinds: type[ForeignClient]) -> list[pytest.MarkDecorator]:
    missing = find_missing() if MqttJsClient in kinds else None
    return [] if missing is None else [pytest.mark.skip(reason=missing)]


def links(
    transports: Iterable[str] = TRANSPORTS,
    versions: Iterable[int] = VERSIONS,
    kinds: Iterable[type[ForeignClient]] = KINDS,
) -> list[ParameterSet]:
    """Every combination that exists, as parameters of a test."""
    return [
        pytest.param(
            Link(kind, transport, version), id=f"{kind.name}-{transport}-{version}", marks=marks_of(kind)
        )
        for kind in kinds
        for transport in transports
        if transport in kind.transports
        for version in versions
    ]


def runnable(parameters: list[ParameterSet]) -> list[Link]:
    """Those that are not skipped, for a test that takes all at once."""
    return [cast(Link, parameter.values[0]) for parameter in parameters if not parameter.marks]


EVERY_LINK = links()
EVERY_LINK_5 = links(versions=[5])
EACH_CLIENT = links(transports=["tcp"])
EACH_CLIENT_5 = links(transports=["tcp"], versions=[5])
PAIRS = [
    pytest.param(
        Link(publisher, "tcp", version),
        Link(subscriber, "tcp", 9 - version),
        id=f"{publisher.name}-{version}-to-{subscriber.name}-{9 - version}",
        marks=marks_of(publisher, subscriber),
    )
    for publisher in KINDS
    for subscriber in KINDS
    for version in VERSIONS
]
