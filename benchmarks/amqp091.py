"""`./dev bench amqp091`: Millstream and RabbitMQ through the same AMQP 0.9.1 scenarios; see docs/benchmarks-amqp091.md."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the project, so that `benchmarks` is a package

from benchmarks.amqp_suite.runner import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
