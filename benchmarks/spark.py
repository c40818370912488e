"""`./dev bench spark`: streams read and written by Spark, against Spark's own sources and sinks; see docs/benchmarks-spark.md."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the project, so that `benchmarks` is a package

from benchmarks.spark_suite.runner import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
