"""The section of the configuration on the log of events."""

from __future__ import annotations

from millstream.config.section import Section, setting
from millstream.config.values import LogFormat, LogLevel, Seconds, Whole


class Log(Section):
    level: LogLevel = setting("info", "Least important level that is written.", live=True)
    format: LogFormat = setting(
        "auto", "`json` lines, readable `text`, or `auto`: text on a terminal and json elsewhere."
    )
    repeat_interval: Seconds = setting(
        10,
        "Within so long, the same event is written at most `log.repeat_burst` times; the next one after "
        "that tells in `left_out` how many were not. 0 writes all.",
        unit="seconds",
        minimum=0,
        maximum=86_400,
    )
    repeat_burst: Whole = setting(20, "See `log.repeat_interval`.", minimum=1, maximum=1_000_000)
