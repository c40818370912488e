"""`millstream pub`: publish messages and wait for the broker's answer to each."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.commands.connection import (
    DEFAULT_URL,
    REFUSAL_FIRST,
    CaFileOption,
    CertFileOption,
    ClientIdOption,
    KeyFileOption,
    MqttVersion,
    PasswordFileOption,
    QosOption,
    Target,
    UrlOption,
    UserOption,
    VersionOption,
    find_target,
    refusal,
    run,
)
from millstream.commands.outcome import CommandFailed, ExitCode
from millstream.commands.output import Output, OutputOption, print_json
from millstream.commands.payload import (
    FileOption,
    LinesOption,
    MessageArgument,
    PropertyOption,
    parse_properties,
    read_payload,
)

if TYPE_CHECKING:
    from millstream.protocols.mqtt.wire.properties import Properties

EXAMPLES = """\b
Examples:
  millstream pub plant/hall1/temperature 21.5
  millstream pub plant/state on --qos 1 --retain
  millstream pub plant/picture --file picture.png --url mqtts://broker.example --user alice
  millstream pub jobs/1 '{}' --content-type application/json --property trace=7 --expiry 60
  tail -f readings.txt | millstream pub plant/readings --lines --qos 1
"""


def publish(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to publish to.")],
    message: MessageArgument = None,
    file: FileOption = None,
    lines: LinesOption = False,
    retain: Annotated[
        bool, typer.Option("--retain", "-r", help="Keep the message for later subscribers.")
    ] = False,
    empty: Annotated[
        bool, typer.Option("--empty", "-n", help="Empty payload; with --retain it clears.")
    ] = False,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Publish the message so many times.")] = 1,
    property_: PropertyOption = None,
    expiry: Annotated[
        int | None,
        typer.Option(min=0, max=0xFFFF_FFFF, metavar="SECONDS", help="Forget the message after so long."),
    ] = None,
    content_type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Content type, such as text/plain.")
    ] = None,
    response_topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Topic for the response.")
    ] = None,
    qos: QosOption = 0,
    url: UrlOption = DEFAULT_URL,
    user: UserOption = None,
    password_file: PasswordFileOption = None,
    client_id: ClientIdOption = "",
    mqtt_version: VersionOption = MqttVersion.FIVE,
    ca_file: CaFileOption = None,
    cert_file: CertFileOption = None,
    key_file: KeyFileOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Publish one message, or one for every line of standard input."""
    payloads = _payloads(message, file, lines=lines, empty=empty, count=count)
    target = find_target(url, user, password_file, mqtt_version, ca_file, cert_file, key_file)
    properties = make_properties(property_ or [], expiry, content_type, response_topic)
    if properties is not None and mqtt_version is not MqttVersion.FIVE:
        raise CommandFailed(ExitCode.USAGE, "Properties need MQTT 5; leave --mqtt-version out.")
    order = _Order(topic, qos, retain, properties)
    run(target, _publish(target, client_id, order, payloads, output))


@dataclass(frozen=True)
class _Order:
    """What all messages of one command have in common."""

    topic: str
    qos: int
    retain: bool
    properties: Properties | None


def make_properties(
    pairs: list[str], expiry_s: int | None, content_type: str | None, response_topic: str | None
) -> Properties | None:
    """The MQTT 5 properties the options ask for, None if they ask for none."""
    from millstream.protocols.mqtt.wire.properties import Properties

    if not pairs and expiry_s is None and content_type is None and response_topic is None:
        return None
    properties = Properties()
    properties.message_expiry_interval = expiry_s
    properties.content_type = None if content_type is None else content_type.encode()
    properties.response_topic = None if response_topic is None else response_topic.encode()
    for name, value in parse_properties(pairs):
        properties.user_properties.append((name.encode(), value.encode()))
    return properties


def _payloads(
    message: str | None, file: Path | None, *, lines: bool, empty: bool, count: int
) -> Iterator[bytes]:
    if (message is not None) + (file is not None) + lines + empty != 1:
        raise CommandFailed(
            ExitCode.USAGE, "Give one of MESSAGE, --file, --lines and --empty.", "millstream pub --help"
        )
    if lines:
        return (line.rstrip(b"\r\n") for line in iter(sys.stdin.buffer.readline, b""))
    if file is not None:
        return iter([read_payload(file)] * count)
    payload = b"" if message is None else message.encode("utf-8", "surrogateescape")
    return iter([payload] * count)


async def _publish(
    target: Target, client_id: str, order: _Order, payloads: Iterator[bytes], output: Output
) -> None:
    client = await target.connect(client_id)
    published = 0
    try:
        # A pipe may be silent for long; waiting for it must not stop the keep-alive.
        while (payload := await asyncio.to_thread(next, payloads, None)) is not None:
            reason = await client.publish(order.topic, payload, order.qos, order.retain, order.properties)
            if reason >= REFUSAL_FIRST:
                raise refusal(target, "publish", order.topic, reason)
            published += 1
    finally:
        await client.disconnect()
    if output is Output.JSON:
        print_json({"topic": order.topic, "qos": order.qos, "retain": order.retain, "published": published})
