"""Chance and the clock's wall side, for a core that has neither."""

from __future__ import annotations

import secrets

from millstream.protocols.endpoint import Entropy


class SystemEntropy(Entropy):
    def make_client_id(self) -> str:
        return f"auto-{secrets.token_hex(10)}"

    def make_nonce(self) -> str:
        return secrets.token_urlsafe(24)

    def make_name(self) -> str:
        return secrets.token_urlsafe(16)
