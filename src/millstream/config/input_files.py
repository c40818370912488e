"""The files a configuration names: they must be there, be readable, and private ones must be private."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from millstream.config.keys import Key

HEAD_SIZE: Final = 64 * 1024


def find_file_fault(key: Key, path: Path) -> str | None:
    """Why the file cannot be used, as the end of a sentence that begins with the key; None if it can."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return f"names a file that does not exist{_remedy(key, path)}"
    except (OSError, ValueError):
        return "names a file that cannot be reached"
    if not stat.S_ISREG(status.st_mode):
        return "must name a file, not a directory or a device"
    if not os.access(path, os.R_OK):
        return "names a file that this user may not read"
    if key.facts.get("needs_private") and status.st_mode & stat.S_IRWXO:
        return f"names a file that everyone may read; type `chmod 600 {path}`"
    if status.st_mode & stat.S_IWOTH:
        return f"names a file that everyone may change; type `chmod o-w {path}`"
    if key.path[-1] == "key_file" and _is_encrypted(path):
        return (
            "names an encrypted private key; write a plain one with "
            f"`openssl pkey -in {path} -out plain.pem` and `chmod 600 plain.pem`"
        )
    return None


def _remedy(key: Key, path: Path) -> str:
    if key.path[-1] == "password_file":
        return f"; make it with `millstream user add NAME --password-file {path}`"
    return ""


def _is_encrypted(path: Path) -> bool:
    with path.open("rb") as file:
        return b"ENCRYPTED" in file.read(HEAD_SIZE)
