"""Two folders change places in one step of the file system, so that no reader ever sees half of it.

Linux has this as renameat2 with RENAME_EXCHANGE; Python has no call for it.
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Final

from pyspark_millstream.lake.faults import LakeError

_AT_CWD: Final = -100
_EXCHANGE: Final = 2
_UNABLE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.EOPNOTSUPP, errno.EPERM})


def exchange(first: Path, second: Path) -> None:
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        raise _unable(first)
    if call(_AT_CWD, os.fsencode(first), _AT_CWD, os.fsencode(second), _EXCHANGE) != 0:
        number = ctypes.get_errno()
        if number in _UNABLE:
            raise _unable(first)
        raise OSError(number, os.strerror(number), str(first))


def _unable(folder: Path) -> LakeError:
    return LakeError(
        f"the file system of {folder} cannot exchange two folders in one step, so plain Parquet stays as it is there",
        "Use tableFormat=delta or iceberg for a table that shall be compacted.",
    )
