"""The one exception a decoder or a machine raises when the peer breaks the protocol."""

from __future__ import annotations


class Violation(Exception):
    """The peer's fault; `reason` is the MQTT 5 reason code the connection is closed with, `form` the version whose form
    the answer to a CONNECT of no known version has; 0: any."""

    def __init__(self, reason: int, text: str, form: int = 0) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text
        self.form = form
