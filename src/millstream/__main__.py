"""`python -m millstream` is the `millstream` command."""

from __future__ import annotations

from millstream.cli import main

if __name__ == "__main__":
    main()
