"""Options and loading shared by the commands that read the broker's configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from millstream.config.load import Loaded

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        envvar="MILLSTREAM_CONFIG",
        metavar="FILE",
        help="Configuration file (.yaml, .json or .toml).",
    ),
]
OptionalOption = Annotated[
    bool,
    typer.Option("--config-optional", help="Go on with the defaults if the configuration file is missing."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "-s", metavar="KEY=VALUE", help="Set one key, such as mqtt.port=0. May be repeated."
    ),
]


def load_settings(
    config: Path | None,
    overrides: list[str] | None = None,
    *,
    is_optional: bool = False,
    checks_files: bool = True,
) -> Loaded:
    from millstream.config.load import load

    return load(
        config,
        environment=os.environ,
        overrides=overrides or (),
        is_optional=is_optional,
        checks_files=checks_files,
    )
