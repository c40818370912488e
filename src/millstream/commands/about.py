"""What `--version` says; apart, so that it needs nothing else."""

from __future__ import annotations

from millstream.build_kind import build_name
from millstream.version import VERSION


def version_line() -> str:
    return f"millstream {VERSION} ({build_name()})"
