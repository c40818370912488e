"""The certificate a client showed in its TLS handshake."""

from __future__ import annotations

import asyncio


def find_certificate_name(transport: asyncio.Transport) -> str | None:
    """The common name of a verified client certificate."""
    certificate = transport.get_extra_info("peercert")
    if not certificate:
        return None
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return None
