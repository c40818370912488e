"""`python -m millstream.runtime.processes.table_check_process DIR`: look at every entry of the table, and write down what is bad.

A process of its own: the library maps the file into memory and trusts it, and a damaged one may end the process.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from millstream.runtime.disk.lmdb_table import LmdbTable, is_of_system
from millstream.storage.disk import DiskFault
from millstream.storage.table.check import BadEntry, CheckedTable, check_table

# how a process ends by what it reads; another signal says nothing about the table
_DEATHS: Final = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)


def check_in_process(folder: Path) -> CheckedTable | str:
    """What was found in the table of a data directory, or why nothing in it can be read. DiskFault where it could not be looked
    at: that is no damage, and nothing must be replaced because of it."""
    command = [sys.executable, "-m", "millstream.runtime.processes.table_check_process", str(folder)]
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 our own module
    if -done.returncode in _DEATHS:
        return "reading it ends the process that reads"
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        raise DiskFault(f"state: the process that reads it was ended by {name}")
    try:
        fields = json.loads(done.stdout)
    except ValueError:
        return done.stderr.decode(errors="replace").strip().rpartition("\n")[2] or "it cannot be read"
    if "refused" in fields:
        raise DiskFault(str(fields["refused"]))
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
        sys.stdout.write(json.dumps({"refused" if is_of_system(fault) else "fault": fault.text}))
        return 1
    except MemoryError:
        sys.stdout.write(json.dumps({"refused": "state: there is not enough memory to read it"}))
        return 1
    if checked.fault:
        sys.stdout.write(json.dumps({"fault": checked.fault}))
        return 1
    bad = [[entry.key.hex(), entry.text] for entry in checked.bad]
    sys.stdout.write(json.dumps({"entries": checked.entries, "bad": bad}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
