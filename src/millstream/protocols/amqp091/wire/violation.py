"""The one exception a decoder or a machine raises when the peer breaks the protocol."""

from __future__ import annotations


class Violation(Exception):
    """The peer's fault; `code` is the reply code of the close, and the ids name the method that caused it (0: none).

    is_hard: it ends the connection; otherwise only the channel.
    """

    def __init__(
        self, code: int, text: str, class_id: int = 0, method_id: int = 0, is_hard: bool = True
    ) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.class_id = class_id
        self.method_id = method_id
        self.is_hard = is_hard
