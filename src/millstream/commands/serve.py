"""`millstream serve`: check everything, then run the broker until it is told to stop."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from millstream.commands.outcome import CommandFailed, ExitCode
from millstream.commands.settings import ConfigOption, OptionalOption, SetOption, load_settings

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
    from millstream.app.server import serve as run_broker
    from millstream.app.storage import StorageFault
    from millstream.commands.reload import Reload
    from millstream.runtime.listeners import ListenFault
    from millstream.runtime.logs import configure_logs

    log = loaded.config.log
    logs = configure_logs(
        log.level, log.format, repeat_interval_s=log.repeat_interval, repeat_burst=log.repeat_burst
    )

    reload = Reload(loaded, load_again, logs)
    reload.install()

    def on_ready(addresses: dict[str, tuple[str, int]]) -> None:
        for line in address_lines(
            addresses, loaded.config.websocket.path, loaded.config.reader.tls.cert_file is not None
        ):
            print(line, flush=True)
        if ready_file is not None:
            write_ready_file(ready_file, addresses)

    try:
        code = run_broker(loaded.config, on_ready, lambda millstream: reload.connect(millstream.apply))
    except StorageFault as fault:
        raise CommandFailed(ExitCode.FAILED, f"The broker cannot start: {fault}.", fault.hint) from fault
    except ListenFault as fault:
        raise CommandFailed(ExitCode.FAILED, f"The broker cannot start: {fault}.", fault.hint) from fault
    except OSError as error:
        raise CommandFailed(
            ExitCode.FAILED,
            f"The broker cannot start: {error.strerror or error}.",
            "millstream serve --set mqtt.port=0 --set websocket.port=0 --set amqp.port=0",
        ) from error
    raise typer.Exit(code)


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
