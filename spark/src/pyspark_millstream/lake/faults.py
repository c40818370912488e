"""What the lake refuses: one sentence a user can act on."""

from __future__ import annotations

from pyspark_millstream.errors import MillstreamSparkError


class LakeError(MillstreamSparkError, ValueError):
    """A table, an option or a row type that cannot be; nothing was written."""


class TableDamagedError(MillstreamSparkError):
    """What the journal promises is not on the disk."""
