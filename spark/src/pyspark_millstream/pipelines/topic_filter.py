"""A filter over topics, as MQTT has it, for Spark's `rlike`."""

from __future__ import annotations

import re


def regex_of(filter: str) -> str:
    """`plant/+/temperature` and `plant/#` as a regular expression over whole topics."""
    levels = filter.split("/")
    if any(("+" in level and level != "+") or ("#" in level and level != "#") for level in levels):
        raise ValueError(f"`{filter}` is no filter of topics: + and # stand for whole levels")
    if "#" in levels[:-1] or not filter:
        raise ValueError(f"`{filter}` is no filter of topics: # comes last")
    is_open = levels[-1] == "#"
    wanted = ["[^/]*" if level == "+" else re.escape(level) for level in (levels[:-1] if is_open else levels)]
    start = "(?!\\$)" if levels[0] in ("+", "#") else ""  # a wildcard does not reach into $SYS and its like
    if not is_open:
        return f"^{start}{'/'.join(wanted)}$"
    return f"^{start}{'/'.join(wanted)}(/.*)?$" if wanted else f"^{start}.*$"
