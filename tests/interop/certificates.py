"""A certificate authority, with what it issued in files."""

from __future__ import annotations

from pathlib import Path

import trustme
from foreign_client import Certificate


class Authority:
    def __init__(self, folder: Path) -> None:
        self._authority = trustme.CA()
        self._folder = folder
        self.ca_file = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(str(self.ca_file))
        self.server = self._write("server", self._authority.issue_cert("127.0.0.1", "localhost"))

    def issue(self, user: str) -> Certificate:
        return self._write(user, self._authority.issue_cert(f"{user}.example", common_name=user))

    def _write(self, name: str, issued: trustme.LeafCert) -> Certificate:
        files = Certificate(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        issued.cert_chain_pems[0].write_to_path(str(files.cert_file))
        issued.private_key_pem.write_to_path(str(files.key_file))
        files.key_file.chmod(0o600)
        return files

    def settings(self, section: str) -> list[str]:
        return [
            f"{section}.tls.port=0",
            f"{section}.tls.cert_file={self.server.cert_file}",
            f"{section}.tls.key_file={self.server.key_file}",
        ]

    def mutual_settings(self, section: str) -> list[str]:
        return [
            *self.settings(section),
            f"{section}.tls.ca_file={self.ca_file}",
            f"{section}.tls.require_client_certificate=true",
        ]
