"""The version of this source tree. The package metadata is made from it, so it stands here only."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
