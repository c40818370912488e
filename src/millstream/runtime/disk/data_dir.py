"""Whether `data_dir` can be used, before anything else is done: made if it is missing, writable with all its parts."""

from __future__ import annotations

import errno
import os
import pwd
import re
import shlex
import stat
from pathlib import Path
from typing import Final

from millstream.runtime.disk.checkpoint_lock import CHECKPOINT_LOCK
from millstream.runtime.start_fault import StartFault

KEY: Final = "data_dir"
OTHER: Final = "millstream serve --set data_dir=OTHER_DIR"
FOLDERS: Final = ("log", "state", "queues", "quarantine")
LOST_AND_FOUND: Final = "lost+found"  # a file system of its own has it, whoever uses it
OWN_NAMES: Final = {"log": re.compile(r"\d{12}\.log|next\.part"), "state": re.compile(r"(data|lock)\.mdb")}
SHOWN_MAX: Final = 100  # characters of a file's name in a sentence
FILES: Final = ("lock", CHECKPOINT_LOCK, "state/data.mdb", "state/lock.mdb")
NOT_A_FILE: Final = (errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENOTEMPTY, errno.EEXIST)
NO_ACCESS: Final = (errno.EACCES, errno.EPERM)
NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


def prepare_data_dir(data_dir: Path) -> None:
    """StartFault when a broker cannot work there, with what to type."""
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise StartFault(f"{data_dir} is not a directory", OTHER, KEY, is_setting=True) from None
    except OSError as error:
        raise describe(data_dir, error, "cannot be made") from None
    _check_writable(data_dir, os.W_OK | os.X_OK)
    _check_own(data_dir)
    check_parts(data_dir)


def check_parts(data_dir: Path) -> None:
    """StartFault where a part is not a folder or a file, or is not ours to write to: whatever opened it might wait for ever, read
    without end, or take it for one that is missing."""
    for name in ("", *FOLDERS):
        _check_kind(data_dir / name, stat.S_IFDIR, "a directory")
        _check_writable(data_dir / name, os.W_OK | os.X_OK)
    for name in FILES:
        _check_kind(data_dir / name, stat.S_IFREG, "a file")
        _check_writable(data_dir / name, os.R_OK | os.W_OK)


def _check_kind(path: Path, kind: int, word: str) -> None:
    try:
        found = stat.S_IFMT(path.stat().st_mode)
    except FileNotFoundError:
        if not path.is_symlink():
            return
        text = f"{path} is a link to {os.readlink(path)[:SHOWN_MAX]}, which is not there"
        raise StartFault(text, look_command(path), KEY, is_setting=True) from None
    except OSError as error:
        raise describe(path, error, "cannot be looked at") from None
    if found != kind:
        raise StartFault(f"{path} is not {word}", look_command(path), KEY, is_setting=True)


def look_command(path: Path) -> str:
    return f"ls -ld {shlex.quote(str(path))}"


def _check_own(data_dir: Path) -> None:
    """Where no broker has been, folders of these names belong to somebody else: nothing is written into them. Whoever has
    begun to work in a directory has locked it before."""
    if (data_dir / "lock").exists():
        return
    for folder, pattern in OWN_NAMES.items():
        try:
            names = sorted(os.listdir(data_dir / folder))
        except OSError:
            continue  # there is none, or it cannot be looked at: the next check says so
        for name in names:
            if pattern.fullmatch(name) is None and name != LOST_AND_FOUND:
                text = f"{data_dir} is not a data directory of a broker: it holds {folder}/{name[:SHOWN_MAX]}"
                raise StartFault(text, OTHER, KEY, is_setting=True)


def _check_writable(path: Path, mode: int) -> None:
    try:
        is_there = path.exists()
    except OSError as error:
        raise describe(path, error, "cannot be looked at") from None
    if is_there and not os.access(path, mode):
        reason = errno.EROFS if is_read_only(path) else errno.EACCES
        raise describe(path, OSError(reason, os.strerror(reason)), "cannot be written to")


def is_read_only(path: Path) -> bool:
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def describe(path: Path, error: OSError, what: str) -> StartFault:
    """An error of the system about a path below `data_dir`, with what would help against this one."""
    text = f"{path} {what}: {error.strerror or error}"
    lasts = True
    hint = OTHER
    if error.errno in NO_ACCESS:
        text += f" (the broker runs as {user_name()})"
        hint = f"sudo install -d -o {user_name()} -m 700 {shlex.quote(str(path))}"
        if os.path.lexists(path):
            hint = f"sudo chown -R {user_name()} {shlex.quote(str(path))}"
    elif error.errno == errno.EROFS:
        hint = f"sudo mount -o remount,rw {shlex.quote(str(mount_of(path)))}"
    elif error.errno in NOT_A_FILE and os.path.lexists(path):
        hint = look_command(path)
    elif error.errno in NO_ROOM:
        hint = f"df -h {shlex.quote(str(path.parent))}"
        lasts = False
    elif error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO):
        hint = "dmesg | tail" if error.errno == errno.EIO else "ulimit -n"
        lasts = False
    return StartFault(text, hint, KEY, is_setting=lasts)


def advise(data_dir: Path, fault: Exception, otherwise: str) -> str:
    """What to type after the disk has refused something below `data_dir`: what would help against that, if it is known."""
    # compiled code keeps no cause: there it is what was being handled when the fault was raised
    error = fault if isinstance(fault, OSError) else fault.__cause__ or fault.__context__
    known = (*NOT_A_FILE, *NO_ACCESS, *NO_ROOM, errno.EROFS, errno.EIO)
    if not isinstance(error, OSError) or error.errno not in known:
        return otherwise
    place = error.filename2 or error.filename or data_dir  # of two it is the one that should be replaced
    return describe(Path(os.fsdecode(place)), error, "").hint


def user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def mount_of(path: Path) -> Path:
    place = path.absolute()
    while not os.path.ismount(place) and place != place.parent:
        place = place.parent
    return place
