"""A foreign load: uses so much of a processor and no more, until its standard input ends.

python -m benchmarks.spark_suite.burner CORES
"""

from __future__ import annotations

import select
import sys
import time
from typing import Final

NAP_S: Final = 0.001
SPIN: Final = 20_000
LOOK_EVERY_S: Final = 0.05


def burn(share: float) -> None:
    """Owed time is made up for as soon as the machine lets it, as a batch job's work is."""
    started = time.monotonic()
    looked = started
    while True:
        now = time.monotonic()
        if now - looked > LOOK_EVERY_S:
            looked = now
            if select.select([sys.stdin], [], [], 0)[0]:
                return
        if time.process_time() < share * (now - started):
            for _ in range(SPIN):
                pass
        else:
            time.sleep(NAP_S)


if __name__ == "__main__":
    burn(float(sys.argv[1]))
