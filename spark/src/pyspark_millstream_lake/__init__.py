"""Spark finds `format("millstream_lake")` here: it looks into every top-level package called pyspark_…"""

from pyspark_millstream.lake.source import LakeSource as DefaultSource

__all__ = ["DefaultSource"]
