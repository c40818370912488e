"""`millstream serve`: check everything, then run the broker until it is told to stop."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.commands.outcome import CommandFailed, ExitCode
from millstream.commands.settings import ConfigOption, OptionalOption, SetOption, load_settings

if TYPE_CHECKING:
    from millstream.config.load import Loaded
    from millstream.runtime.start_fault import StartFault

SCHEMES = {
    "mqtt": "mqtt",
    "mqtt_tls": "mqtts",
    "websocket": "ws",
    "websocket_tls": "wss",
    "amqp": "amqp",
    "amqp_tls": "amqps",
    "reader": "http",
    "flight": "grpc+tcp",
}
TLS_SCHEMES = {"reader": "https", "flight": "grpc+tls"}

STOPPED_TEXT = (
    "The broker has stopped, and its storage had failed: {}. "
    "Publishers that got no confirm must send again; start it again when the cause is removed."
)

EXAMPLES = """\b
Examples:
  millstream serve
  millstream serve --config millstream.yaml
  millstream serve --set mqtt.port=1884 --set websocket.enabled=false
  millstream serve --set mqtt.port=0 --ready-file ready.json
"""


def serve(
    config: ConfigOption = None,
    config_optional: OptionalOption = False,
    set_: SetOption = None,
    log_level: Annotated[
        str | None,
        typer.Option(metavar="LEVEL", help="debug, info, warning or error; same as --set log.level=…"),
    ] = None,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the chosen addresses there, as JSON, once all are listening."
        ),
    ] = None,
) -> None:
    """Run the broker.

    SIGTERM and SIGINT stop it. SIGHUP reads the configuration again: keys that can change are applied, the log
    tells which need a restart. Users and access rules are taken up by themselves when their files change.

    Without a configuration it listens on loopback only: MQTT on 1883, WebSocket on 8083, AMQP on 5672.
    """
    overrides = [*(set_ or []), *([f"log.level={log_level}"] if log_level else [])]
    load_again = partial(load_settings, config, overrides, is_optional=config_optional)
    loaded = load_again()
    if ready_file is not None and not ready_file.absolute().parent.is_dir():
        raise CommandFailed(
            ExitCode.USAGE, f"--ready-file: there is no directory {ready_file.absolute().parent}."
        )
    from millstream.app.server import StopFault
    from millstream.app.server import serve as run_broker
    from millstream.commands.reload import Reload
    from millstream.runtime.logs import configure_logs
    from millstream.runtime.start_fault import StartFault
    from millstream.storage.disk import DiskFault

    log = loaded.config.log
    logs = configure_logs(
        log.level, log.format, repeat_interval_s=log.repeat_interval, repeat_burst=log.repeat_burst
    )

    reload = Reload(loaded, load_again, logs)
    reload.install()

    is_ready: list[bool] = []

    def on_ready(addresses: dict[str, tuple[str, int]]) -> None:
        for line in address_lines(
            addresses, loaded.config.websocket.path, loaded.config.reader.tls.cert_file is not None
        ):
            print(line, flush=True)
        if ready_file is not None:
            write_ready_file(ready_file, addresses)
        is_ready.append(True)

    try:
        code = run_broker(loaded.config, on_ready, lambda broker: reload.connect(broker.apply, broker.health))
    except StopFault as fault:
        raise CommandFailed(
            ExitCode.FAILED, STOPPED_TEXT.format(fault), "millstream storage verify"
        ) from fault
    except StartFault as fault:
        raise explain(fault, loaded) from fault
    except (DiskFault, OSError) as error:
        raise explain_error(error, is_started=bool(is_ready)) from error
    raise typer.Exit(code)


def explain(fault: StartFault, loaded: Loaded) -> CommandFailed:
    """With the setting it is about and where that was written."""
    place = find_place(fault.key, loaded)
    key = f"{fault.key}: " if fault.key else ""
    code = ExitCode.USAGE if fault.is_setting else ExitCode.FAILED
    return CommandFailed(code, f"The broker cannot start: {place}{key}{fault}.", fault.hint)


def find_place(key: str, loaded: Loaded) -> str:
    """Where a key was written, or the first of the keys below it."""
    path = tuple(key.split(".")) if key else ()
    for each, origin in loaded.origins.items():
        if path and each[: len(path)] == path:
            return f"{origin.text}: "
    return ""


def explain_error(error: Exception, *, is_started: bool) -> CommandFailed:
    """What nobody has a better sentence for: an error of the system, with the file it is about."""
    text = str(error)
    if isinstance(error, OSError):
        text = error.strerror or str(error)
        if error.filename is not None:
            text = f"{error.filename}: {text}"
    if is_started:
        return CommandFailed(
            ExitCode.FAILED, f"The broker has ended because of an error: {text}.", "millstream storage verify"
        )
    return CommandFailed(ExitCode.FAILED, f"The broker cannot start: {text}.", "millstream config check")


def address_lines(
    addresses: dict[str, tuple[str, int]], path: str, has_reader_tls: bool = False
) -> list[str]:
    """`mqtt mqtt://127.0.0.1:1883`, one line per listener."""
    lines: list[str] = []
    for name, (host, port) in addresses.items():
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        end = path if name.startswith("websocket") else ""
        scheme = SCHEMES.get(name, name)
        if has_reader_tls:
            scheme = TLS_SCHEMES.get(name, scheme)
        lines.append(f"{name} {scheme}://{place}{end}")
    return lines


def write_ready_file(path: Path, addresses: dict[str, tuple[str, int]]) -> None:
    """Written beside and renamed: whoever sees the file sees all of it."""
    listeners = {name: {"host": host, "port": port} for name, (host, port) in addresses.items()}
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(json.dumps({"pid": os.getpid(), "listeners": listeners}) + "\n")
    unfinished.replace(path)
