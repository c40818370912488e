"""`./dev bench flood`: publishers at full speed, beside newcomers and consumers; see docs/operations.md."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the project, so that `benchmarks` is a package

from benchmarks.flood_suite.command import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
