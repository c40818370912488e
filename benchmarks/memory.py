"""`./dev bench memory`: what clients may do to a broker's memory, in a control group of 1 GiB."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the project, so that `benchmarks` is a package

from benchmarks.memory_suite.command import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
