"""The broker without root's right to pass by permissions: `python -m crash.unprivileged serve`.

So that a test run as root can meet a folder that may not be written to. Anybody else needs nothing of the kind.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Final

DROP_CAPABILITY: Final = 24  # prctl: from the set that any later program may have
DAC_OVERRIDE: Final = 1
DAC_READ_SEARCH: Final = 2
FOWNER: Final = 3


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER):
        if os.geteuid() == 0 and libc.prctl(DROP_CAPABILITY, capability, 0, 0, 0) != 0:
            sys.exit(f"a capability cannot be dropped: {os.strerror(ctypes.get_errno())}")
    os.execv(sys.executable, [sys.executable, "-m", "millstream", *sys.argv[1:]])


if __name__ == "__main__":
    main()
