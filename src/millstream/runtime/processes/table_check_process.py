"""`python -m millstream.runtime.processes.table_check_process DIR`: look at every entry of the table, and write down what is bad.

A process of its own: the library maps the file into memory and trusts it, and a damaged one may end the process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from millstream.runtime.disk.lmdb_table import LmdbTable
from millstream.storage.disk import DiskFault
from millstream.storage.table.check import BadEntry, CheckedTable, check_table


def check_in_process(folder: Path) -> CheckedTable | str:
    """What was found in the table of a data directory, or why nothing in it can be read."""
    command = [sys.executable, "-m", "millstream.runtime.processes.table_check_process", str(folder)]
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 our own module
    if done.returncode < 0:
        return "reading it ends the process that reads"
    try:
        fields = json.loads(done.stdout)
    except ValueError:
        return done.stderr.decode(errors="replace").strip().rpartition("\n")[2] or "it cannot be read"
    if "fault" in fields:
        return str(fields["fault"])
    checked = CheckedTable()
    checked.entries = fields["entries"]
    checked.bad = [BadEntry(bytes.fromhex(key), text) for key, text in fields["bad"]]
    return checked


def main() -> int:
    folder = Path(sys.argv[1])
    try:
        table = LmdbTable(folder / "state", is_lenient=True)
        try:
            checked = check_table(table)
        finally:
            table.close()
    except DiskFault as fault:
        sys.stdout.write(json.dumps({"fault": fault.text}))
        return 1
    if checked.fault:
        sys.stdout.write(json.dumps({"fault": checked.fault}))
        return 1
    bad = [[entry.key.hex(), entry.text] for entry in checked.bad]
    sys.stdout.write(json.dumps({"entries": checked.entries, "bad": bad}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
