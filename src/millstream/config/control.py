"""The section of the configuration on the channel for commands."""

from __future__ import annotations

from millstream.config.section import Section, setting
from millstream.config.values import Switch


class Control(Section):
    enabled: Switch = setting(
        default=True,
        text="Open `control.sock` in `data_dir`, through which `millstream queue` reaches the broker. Only the user the "
        "broker runs as can use it.",
    )
