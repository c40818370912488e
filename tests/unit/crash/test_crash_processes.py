"""A family of processes is found from its head, and ended."""

from __future__ import annotations

import subprocess
import sys

from crash.processes import command_of, find_descendants, kill_all

FAMILY = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()", "grandchild"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
child.wait()
"""


def test_children_of_children_are_found_and_killed() -> None:
    command = [sys.executable, "-c", FAMILY, "child"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as head:
        assert head.stdout is not None
        grandchild = int(head.stdout.readline())
        assert find_descendants(head.pid) == [grandchild]
        assert command_of(grandchild).split()[-1] == "grandchild"
        kill_all([grandchild, grandchild])
        assert head.wait() == 0  # it waited for the one that was killed
    assert command_of(grandchild) == ""
