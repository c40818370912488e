"""What stands in the files a configuration names: users, access rules, certificates, keys of tokens.

They are read once before anything is opened, so that a broken one stops the start with its file and line, and
again by the broker whenever they change.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from millstream.config.bounded_file import read_bounded
from millstream.config.documents import read_document
from millstream.config.faults import ConfigFault, Fault, Origin
from millstream.config.keys import KeyPath
from millstream.config.schema import Config, Jwt
from millstream.security.acl import AclFault, parse_acl
from millstream.security.rules import Acl
from millstream.security.tokens import TokenKeyFault, TokenVerifier
from millstream.security.users import UserFileFault, UserTable, parse_users

USER_FILE_SIZE_MAX: Final = 256 * 1024 * 1024
KEY_FILE_SIZE_MAX: Final = 64 * 1024

_STEP: Final = re.compile(r"[^.\[\]]+")


def read_users(path: Path) -> UserTable:
    """The users of a password file; ConfigFault with file and line if it cannot be used."""
    raw = _read_named(path, USER_FILE_SIZE_MAX)
    try:
        return parse_users(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise _fault(path, None, "the file is not UTF-8") from None
    except UserFileFault as fault:
        raise _fault(path, fault.line or None, fault.text) from None


def read_acl(path: Path) -> Acl:
    """The access list of a file; ConfigFault with file and line if it cannot be used."""
    document = read_document(path)
    try:
        return parse_acl(document.values or None)
    except AclFault as fault:
        steps = tuple(_STEP.findall(fault.path))
        line = next(
            (document.lines[steps[:n]] for n in range(len(steps), 0, -1) if steps[:n] in document.lines), None
        )
        text = f"{fault.path}: {fault.text}" if fault.path else fault.text
        raise _fault(path, line, text) from None


def make_token_verifier(jwt: Jwt) -> TokenVerifier | None:
    """The verifier `auth.jwt` asks for, None if it asks for none; TokenKeyFault if its key cannot be used."""
    key_file = jwt.secret_file if jwt.algorithm == "HS256" else jwt.public_key_file
    if jwt.algorithm is None or key_file is None:
        return None
    key = _read_named(key_file, KEY_FILE_SIZE_MAX)
    if jwt.algorithm == "HS256":
        key = key.rstrip(b"\r\n")  # an editor's last line end is not part of the secret
    return TokenVerifier(jwt.algorithm, key, jwt.issuer or "", jwt.audience or "")


def find_content_faults(config: Config) -> Iterator[tuple[KeyPath, str]]:
    """(key, end of a sentence that begins with the key) for every file that does not hold what it should."""
    auth = config.auth
    if auth.password_file is not None:
        try:
            read_users(auth.password_file)
        except ConfigFault as fault:
            yield ("auth", "password_file"), f"cannot be used: {_without_dot(fault)}"
    if auth.acl_file is not None:
        try:
            read_acl(auth.acl_file)
        except ConfigFault as fault:
            yield ("auth", "acl_file"), f"cannot be used: {_without_dot(fault)}"
    try:
        make_token_verifier(auth.jwt)
    except TokenKeyFault as fault:
        yield ("auth", "jwt", "algorithm"), f"cannot be used: {fault.text}"
    except ConfigFault as fault:
        yield ("auth", "jwt", "algorithm"), f"cannot be used: {_without_dot(fault)}"
    files = config.reader.tls
    if files.cert_file is not None and files.key_file is not None:
        text = _find_certificate_fault(files.cert_file, files.key_file)
        if text is not None:
            yield ("reader", "tls", "cert_file"), text
    sections = (("mqtt", config.mqtt.tls), ("websocket", config.websocket.tls), ("amqp", config.amqp.tls))
    for section, tls in sections:
        if tls.cert_file is not None and tls.key_file is not None:
            text = _find_certificate_fault(tls.cert_file, tls.key_file)
            if text is not None:
                yield (section, "tls", "cert_file"), text
        if tls.ca_file is not None:
            text = _find_authority_fault(tls.ca_file)
            if text is not None:
                yield (section, "tls", "ca_file"), text


def _find_certificate_fault(cert_file: Path, key_file: Path) -> str | None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert_file, key_file, password=_no_password)
    except ssl.SSLError as error:
        reason = (error.reason or "not PEM").lower().replace("_", " ")
        return f"and {key_file} are not a certificate and its key in PEM form ({reason})"
    except (OSError, ValueError):
        return f"and {key_file} cannot be read"
    return None


def _find_authority_fault(ca_file: Path) -> str | None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(ca_file)
    except (ssl.SSLError, OSError, ValueError):
        return "holds no certificate in PEM form"
    return None


def _no_password() -> str:
    raise ValueError("the key is encrypted")  # instead of a question on the terminal


def _read_named(path: Path, size_max: int) -> bytes:
    try:
        return read_bounded(path, size_max)
    except OSError as error:
        raise _fault(path, None, f"the file cannot be read: {error.strerror}") from None


def _fault(path: Path, line: int | None, text: str) -> ConfigFault:
    origin = Origin(str(path) if line is None else f"{path}:{line}", str(path), line)
    return ConfigFault([Fault(origin, "", None, text)])


def _without_dot(fault: ConfigFault) -> str:
    return "; ".join(entry.sentence().rstrip(".") for entry in fault.faults)
