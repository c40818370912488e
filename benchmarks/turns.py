"""`./dev bench turns`: the longest turn of the loop that one client inside the limits can cause, input by input."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the project, so that `benchmarks` is a package

from benchmarks.turns_suite.command import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
