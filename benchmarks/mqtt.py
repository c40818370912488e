"""`./dev bench mqtt`: Millstream, mosquitto and NATS through the same MQTT scenarios; see docs/benchmarks.md."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the project, so that `benchmarks` is a package

from benchmarks.mqtt_suite.runner import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
