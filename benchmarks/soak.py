"""`./dev bench soak`: a mixed load with churn for an hour, and whether the broker stays as it was."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the project, so that `benchmarks` is a package

from benchmarks.soak_suite.command import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
