"""What every section with a TLS listener shares."""

from __future__ import annotations

from typing import Final

from millstream.config.section import Section, setting
from millstream.config.values import OptionalPath, Switch

LOOPBACK: Final = "127.0.0.1"
PORT_TEXT: Final = "0 lets the system choose a free port, which is printed at start."


class Tls(Section):
    cert_file: OptionalPath = setting(
        None,
        "Certificate chain of the server in PEM form. With it and `key_file` the TLS listener opens.",
        is_input_file=True,
    )
    key_file: OptionalPath = setting(
        None,
        "Private key of the certificate in PEM form, not encrypted and not readable by everyone.",
        needs_private=True,
    )
    ca_file: OptionalPath = setting(
        None, "Authorities in PEM form whose client certificates are accepted.", is_input_file=True
    )
    require_client_certificate: Switch = setting(
        default=False, text="Refuse clients that show no certificate signed by `ca_file` (mutual TLS)."
    )

    @property
    def is_enabled(self) -> bool:
        return self.cert_file is not None
