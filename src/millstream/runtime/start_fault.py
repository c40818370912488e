"""Why a broker cannot start, in the words of its configuration."""

from __future__ import annotations


class StartFault(Exception):
    """A clause and the command that would help. `key` is the setting it is about, if it is about one; `is_setting` when
    only another value of it, or another state of the machine that an operator must bring about, can help: starting
    again is of no use."""

    def __init__(self, text: str, hint: str, key: str = "", is_setting: bool = False) -> None:
        super().__init__(text)
        self.hint = hint
        self.key = key
        self.is_setting = is_setting
