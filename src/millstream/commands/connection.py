"""Where `pub`, `sub` and `bench` connect to, and how their failures end."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Coroutine
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import unquote, urlsplit

import typer

from millstream.commands.input_file import read_input
from millstream.commands.outcome import CommandFailed, ExitCode

if TYPE_CHECKING:
    from millstream.client.mqtt_client import MqttClient, MqttClientError

DEFAULT_PORTS: Final = {"mqtt": 1883, "mqtts": 8883, "ws": 8083, "wss": 8084}
DEFAULT_URL: Final = "mqtt://127.0.0.1:1883"
PASSWORD_SIZE_MAX: Final = 65_535
REFUSAL_FIRST: Final = 0x80  # reason codes from here on say no
CREDENTIAL_REASONS: Final = (4, 5, 0x86, 0x87)  # bad user name or password, not authorized; both versions
LOCAL_HOSTS: Final = ("127.0.0.1", "localhost", "::1")

PROTOCOL_LEVELS: Final = {"5": 5, "3.1.1": 4}


class MqttVersion(StrEnum):
    FIVE = "5"
    THREE = "3.1.1"


UrlOption = Annotated[
    str,
    typer.Option(
        "--url",
        metavar="URL",
        help="Where to connect: mqtt://host:port, mqtts://, ws://host:port/path or wss://.",
    ),
]
UserOption = Annotated[
    str | None,
    typer.Option("--user", "-u", metavar="NAME", help="User name; the password is in MILLSTREAM_PASSWORD."),
]
PasswordFileOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="File with the password, instead of MILLSTREAM_PASSWORD.")
]
ClientIdOption = Annotated[
    str, typer.Option("--client-id", "-i", metavar="ID", help="Client id. Default: one the broker chooses.")
]
VersionOption = Annotated[MqttVersion, typer.Option("--mqtt-version", help="Version of MQTT to speak.")]
QosOption = Annotated[
    int, typer.Option("--qos", "-q", min=0, max=2, metavar="0|1|2", help="Quality of service.")
]
CaFileOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Authorities that sign the certificate of the broker.")
]
CertFileOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Certificate to show to the broker.")
]
KeyFileOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Private key of that certificate.")]


@dataclass(frozen=True)
class Target:
    """One broker to connect to, with all that is needed to be let in."""

    scheme: str
    host: str
    port: int
    path: str | None
    username: str | None
    password: bytes | None = field(repr=False)
    tls: ssl.SSLContext | None
    version: int

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path or ''}"

    async def connect(
        self,
        client_id: str = "",
        *,
        clean_start: bool = True,
        keep_alive_s: int = 60,
        session_expiry_s: int = 0,
    ) -> MqttClient:
        from millstream.client.mqtt_client import MqttClient

        return await MqttClient.connect(
            self.host,
            self.port,
            client_id=client_id,
            version=self.version,
            username=self.username,
            password=self.password,
            clean_start=clean_start,
            keep_alive_s=keep_alive_s,
            session_expiry_s=session_expiry_s,
            tls=self.tls,
            websocket_path=self.path,
        )


def find_target(
    url: str,
    user: str | None,
    password_file: Path | None,
    version: MqttVersion,
    ca_file: Path | None = None,
    cert_file: Path | None = None,
    key_file: Path | None = None,
) -> Target:
    parts = urlsplit(url if "://" in url else f"mqtt://{url}")
    try:
        port = parts.port
    except ValueError:
        raise CommandFailed(ExitCode.USAGE, f"--url {url}: the port must be between 1 and 65535.") from None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise CommandFailed(
            ExitCode.USAGE,
            f"--url {url}: write mqtt://host:port, mqtts://, ws:// or wss://.",
            "millstream sub --help",
        )
    if parts.password is not None:
        raise CommandFailed(
            ExitCode.USAGE,
            "--url must not hold a password, because other users can see it; put it in MILLSTREAM_PASSWORD.",
        )
    is_websocket = parts.scheme in ("ws", "wss")
    is_secure = parts.scheme in ("mqtts", "wss")
    if not is_secure and (ca_file or cert_file or key_file):
        raise CommandFailed(ExitCode.USAGE, "Certificates need TLS: write mqtts:// or wss:// in --url.")
    username = user if user is not None else (unquote(parts.username) if parts.username else None)
    return Target(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port or DEFAULT_PORTS[parts.scheme],
        path=(parts.path or "/mqtt") if is_websocket else None,
        username=username,
        password=_find_password(password_file, needed=username is not None),
        tls=_make_tls(ca_file, cert_file, key_file) if is_secure else None,
        version=PROTOCOL_LEVELS[version],
    )


def _find_password(file: Path | None, *, needed: bool) -> bytes | None:
    if file is not None:
        return read_input(file, PASSWORD_SIZE_MAX).rstrip(b"\r\n")
    password = os.environ.get("MILLSTREAM_PASSWORD") if needed else None
    return None if password is None else password.encode("utf-8", "surrogateescape")


def _make_tls(ca_file: Path | None, cert_file: Path | None, key_file: Path | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file)
        if cert_file is not None:
            context.load_cert_chain(cert_file, key_file)
    except (OSError, ValueError) as error:
        raise CommandFailed(ExitCode.USAGE, f"The certificates cannot be used: {error}.") from None
    return context


def run(target: Target, work: Coroutine[object, object, None]) -> None:
    """Runs `work` to its end; what the connection may run into becomes a sentence and an exit code."""
    from millstream.client.mqtt_client import MqttClientError

    try:
        asyncio.run(work)
    except KeyboardInterrupt:
        return  # the way such a command usually ends
    except MqttClientError as error:
        text = error.text[:1].upper() + error.text[1:]
        raise CommandFailed(_exit_code(error), f"{text}.", _next_step(target, error)) from None


def _exit_code(error: MqttClientError) -> ExitCode:
    from millstream.client.mqtt_client import ExitKind

    if error.exit_kind is ExitKind.USAGE:
        return ExitCode.USAGE
    # A broker that says why it ends a connection has refused something; one that does not is gone.
    is_refusal = error.exit_kind is ExitKind.REFUSED or error.reason >= REFUSAL_FIRST
    return ExitCode.REFUSED if is_refusal else ExitCode.NOT_CONNECTED


def _next_step(target: Target, error: MqttClientError) -> str | None:
    from millstream.client.mqtt_client import ExitKind

    if error.exit_kind is ExitKind.UNREACHABLE:
        return "millstream serve" if target.host in LOCAL_HOSTS else None
    if error.reason in CREDENTIAL_REASONS and target.username is not None and target.password is None:
        return "export MILLSTREAM_PASSWORD, or give --password-file"
    if error.reason in CREDENTIAL_REASONS and target.username is None:
        return "give --user NAME, and its password in MILLSTREAM_PASSWORD"
    return None


def refusal(target: Target, action: str, topic: str, reason: int) -> CommandFailed:
    """The failure of a publish or subscribe that the broker answered with a reason code."""
    from millstream.protocols.mqtt.wire.reason_codes import get_reason_name

    name = get_reason_name(reason, target.version)
    user = target.username or "anonymous"
    return CommandFailed(
        ExitCode.REFUSED,
        f"The broker refused to {action} {topic}: {name} (0x{reason:02X}).",
        f"millstream acl check {user} {action} '{topic}' --config millstream.yaml",
    )
