"""`./dev bench builds --old FOLDER`: what a message costs in this build and in an older one, measured in turn."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the project, so that `benchmarks` is a package

from benchmarks.builds_suite.command import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
