"""A family of processes is found from its head, and ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crash.processes import command_of, find_descendants, kill_all, open_files_of

# The grandchild says itself who it is: to its parent it exists a moment before the kernel shows its command line.
GRANDCHILD = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"
FAMILY = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {GRANDCHILD!r}, "grandchild"], stdin=subprocess.PIPE)
child.wait()
"""


@pytest.fixture
def family() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process and the number of its child, both ended behind the test, whatever it found."""
    command = [sys.executable, "-c", FAMILY, "child"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as head:
        assert head.stdout is not None
        grandchild = int(head.stdout.readline())
        yield head, grandchild
        head.kill()  # its child reads the end of its input then, and ends too


def test_children_of_children_are_found_and_killed(family: tuple[subprocess.Popen[bytes], int]) -> None:
    head, grandchild = family
    assert find_descendants(head.pid) == [grandchild]
    assert command_of(grandchild).split()[-1] == "grandchild"
    kill_all([grandchild, grandchild])
    assert head.wait(60) == 0  # it waited for the one that was killed
    assert command_of(grandchild) == ""


def test_the_files_a_process_has_open_are_seen_until_it_ends(tmp_path: Path) -> None:
    file = tmp_path / "written"
    assert str(file) not in open_files_of(os.getpid())
    with file.open("wb"):
        assert str(file) in open_files_of(os.getpid())
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    assert open_files_of(ended.pid) == []
