"""The command line: `millstream serve | status | pub | sub | bench | config | user | acl | queue | exchange | definitions | storage | completion`.

The commands themselves stand in `commands`; they import what they need when they run, so that `--help` and
`--version` are quick.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point of the `millstream` command."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from millstream.commands.about import version_line

        print(version_line())
        return
    from millstream.commands.tree import app

    app(prog_name="millstream")
