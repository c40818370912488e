"""`./dev bench attack`: attackers in processes of their own, the broker in one gibibyte, and what others feel."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the project, so that `benchmarks` is a package

from benchmarks.attack_suite.command import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
