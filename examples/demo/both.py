"""The pipelines of the demo: rollup and alert in one Spark session, put together as any copied pipeline can be.

Run it with: millstream pipeline run examples/demo/both.py --set queues=readings
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark_millstream.pipelines import alert, rollup
from pyspark_millstream.pipelines.setting import Setting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NAME = "both"
SUMMARY = "rollup and alert of the demo"
SETTINGS: dict[str, Setting] = {
    "uri": rollup.SETTINGS["uri"],
    "queues": rollup.SETTINGS["queues"],
    "checkpoint": rollup.SETTINGS["checkpoint"],
    "window": Setting("5 seconds", rollup.SETTINGS["window"].help),
    "watermark": Setting("1 second", rollup.SETTINGS["watermark"].help),
    "trigger": Setting("1 second", rollup.SETTINGS["trigger"].help),
    "rules": Setting("plant/#: value > 80", alert.SETTINGS["rules"].help),
    "threshold": Setting("6", alert.SETTINGS["threshold"].help),
}


def build(spark: SparkSession, settings: Mapping[str, str]) -> list[StreamingQuery]:
    queries = []
    for pipeline in (rollup, alert):
        defaults = {name: setting.default for name, setting in pipeline.SETTINGS.items()}
        own = {**defaults, **settings, "checkpoint": f"{settings['checkpoint']}/{pipeline.NAME}"}
        queries += pipeline.build(spark, own)
    return queries
