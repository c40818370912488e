"""Changes to the password file: one at a time, whole or not at all."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from millstream.security.users import UserTable

PRIVATE_MODE: Final = 0o600
NOT_FOR_OTHERS: Final = 0o770


def change_users(path: Path, change: Callable[[UserTable], UserTable]) -> None:
    """Reads the users, applies `change`, and puts the new file in the place of the old one."""
    from millstream.config.contents import read_users
    from millstream.security.users import UserTable, format_users

    target = path.resolve()  # a link keeps pointing at the file it names
    with _locked_directory(target.parent) as directory:
        table = read_users(target) if target.exists() else UserTable({})
        _replace_file(target, format_users(change(table)), directory)


@contextmanager
def _locked_directory(path: Path) -> Iterator[int]:
    """Two commands at once must not lose a user: the second one waits for the first."""
    directory = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield directory
    finally:
        os.close(directory)


def _replace_file(target: Path, text: str, directory: int) -> None:
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_MODE)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            _keep_owner(target, file.fileno())
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    os.fsync(directory)


def _keep_owner(target: Path, descriptor: int) -> None:
    """A file that the broker could read before must stay readable for it, and for nobody else."""
    try:
        status = target.stat()
    except FileNotFoundError:
        return
    if os.geteuid() == 0:
        os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & NOT_FOR_OTHERS | PRIVATE_MODE)
