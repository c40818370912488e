"""`millstream sub`: print what arrives on the given filters."""

from __future__ import annotations

import asyncio
import base64
import sys
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
from millstream.commands.output import Output, OutputOption, print_line

if TYPE_CHECKING:
    from millstream.client.mqtt_client import MqttClient
    from millstream.protocols.mqtt.wire.packets import Publish
    from millstream.protocols.mqtt.wire.properties import Properties

EXAMPLES = """\b
Examples:
  millstream sub 'plant/#'
  millstream sub 'plant/+/temperature' --qos 1 --count 10 -o json
  millstream sub '$share/workers/jobs/#' --url ws://127.0.0.1:8083/mqtt
  millstream sub 'orders/#' --client-id ledger --session-expiry 3600 --qos 1
"""


def subscribe(
    filters: Annotated[list[str], typer.Argument(metavar="FILTER...", help="Filters to subscribe to.")],
    count: Annotated[
        int, typer.Option("--count", "-n", min=0, metavar="N", help="Stop after so many messages; 0: never.")
    ] = 0,
    timeout: Annotated[
        float,
        typer.Option(
            min=0, metavar="SECONDS", help="Stop after so long; 0: never. Exit code 1 if --count is short."
        ),
    ] = 0,
    session_expiry: Annotated[
        int,
        typer.Option(min=0, metavar="SECONDS", help="Keep the session so long after leaving, and resume it."),
    ] = 0,
    payload_only: Annotated[
        bool, typer.Option("--payload-only", help="Print payloads without their topics.")
    ] = False,
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
    """Subscribe and print messages until interrupted.

    With -o json every message is one line: payload as text, or payload_base64 if it is not UTF-8.
    """
    if session_expiry and not client_id:
        raise CommandFailed(
            ExitCode.USAGE, "--session-expiry needs --client-id, or nobody could resume the session."
        )
    target = find_target(url, user, password_file, mqtt_version, ca_file, cert_file, key_file)
    printer = _Printer(count, output, payload_only=payload_only)
    run(target, _subscribe(target, client_id, filters, qos, session_expiry, timeout, printer))


class _Printer:
    """Prints messages and knows when there are enough."""

    def __init__(self, count: int, output: Output, *, payload_only: bool) -> None:
        self._left = count
        self._output = output
        self._payload_only = payload_only

    @property
    def wants_more(self) -> bool:
        return self._left > 0

    def print(self, message: Publish) -> bool:
        """True when this was the last one wanted."""
        if self._output is Output.JSON:
            print_line(as_dict(message))
        else:
            head = b"" if self._payload_only else message.topic + b" "
            sys.stdout.buffer.write(head + message.payload + b"\n")
            sys.stdout.buffer.flush()
        self._left -= 1
        return self._left == 0


def as_dict(message: Publish) -> dict[str, object]:
    fields: dict[str, object] = {
        "topic": message.topic.decode(),
        "qos": message.qos,
        "retain": message.retain,
        **_text_or_base64("payload", message.payload),
    }
    if message.properties is not None:
        fields.update(_property_fields(message.properties))
    return fields


def _property_fields(properties: Properties) -> dict[str, object]:
    fields: dict[str, object] = {}
    if properties.content_type is not None:
        fields["content_type"] = properties.content_type.decode()
    if properties.response_topic is not None:
        fields["response_topic"] = properties.response_topic.decode()
    if properties.correlation_data is not None:
        fields.update(_text_or_base64("correlation_data", properties.correlation_data))
    if properties.message_expiry_interval is not None:
        fields["expiry_s"] = properties.message_expiry_interval
    if properties.user_properties:
        pairs = properties.user_properties
        fields["properties"] = [[name.decode(), value.decode()] for name, value in pairs]
    return fields


def _text_or_base64(name: str, data: bytes) -> dict[str, object]:
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}


async def _subscribe(
    target: Target,
    client_id: str,
    filters: list[str],
    qos: int,
    session_expiry_s: int,
    timeout_s: float,
    printer: _Printer,
) -> None:
    client = await target.connect(
        client_id, clean_start=not session_expiry_s, session_expiry_s=session_expiry_s
    )
    try:
        reasons = await client.subscribe([(filter, qos) for filter in filters])
        for filter, reason in zip(filters, reasons, strict=True):
            if reason >= REFUSAL_FIRST:
                raise refusal(target, "subscribe", filter, reason)
        try:
            async with asyncio.timeout(timeout_s or None):
                await _print_all(client, printer)
        except TimeoutError:
            if printer.wants_more:
                raise CommandFailed(
                    ExitCode.FAILED, f"Fewer messages than --count came within {timeout_s:g} seconds."
                ) from None
    finally:
        await client.disconnect()


async def _print_all(client: MqttClient, printer: _Printer) -> None:
    async for message in client.messages():
        if printer.print(message):
            return
    raise CommandFailed(ExitCode.NOT_CONNECTED, "The broker closed the connection.", "millstream serve")
