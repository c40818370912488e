"""The version of this distribution; it moves with the broker's."""

from typing import Final

VERSION: Final = "0.1.0"
