"""Reading how much memory there is: /proc and control groups, on copies of their files and on this machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from millstream.runtime.memory.meter import MemoryGroup, ProcessMemory, machine_bytes

MIB = 1024 * 1024


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


GROWING = f"""
from millstream.runtime.memory.meter import ProcessMemory

meter = ProcessMemory()
before = meter.resident_bytes()
block = bytearray(b"x") * {64 * MIB}
print(before, meter.resident_bytes())
"""


def test_the_resident_size_of_this_process_is_read() -> None:
    """In a process of its own: this one frees and allocates for other tests."""
    ended = subprocess.run([sys.executable, "-c", GROWING], capture_output=True, text=True, check=True)
    before, after = map(int, ended.stdout.split())
    assert before > MIB
    assert after - before > 48 * MIB


def test_a_closed_meter_reads_nothing() -> None:
    meter = ProcessMemory()
    meter.close()
    assert meter.resident_bytes() == 0


def test_without_proc_the_size_is_unknown(tmp_path: Path) -> None:
    assert ProcessMemory(str(tmp_path / "none")).resident_bytes() == 0


def test_a_limit_of_version_1_is_found(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "4:memory:/a/b\n1:cpu:/\n0::/\n")
    write(tmp_path / "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n")
    write(tmp_path / "sys/fs/cgroup/memory/a/memory.limit_in_bytes", f"{512 * MIB}\n")
    write(tmp_path / "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    write(tmp_path / "sys/fs/cgroup/memory/a/memory.stat", f"cache 7\ntotal_rss {400 * MIB}\ntotal_shmem 5\n")
    group = MemoryGroup(tmp_path)
    assert group.limit == 512 * MIB
    assert group.unreclaimable_bytes() == 400 * MIB + 5


def test_the_smallest_limit_of_version_2_on_the_way_up_holds(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "0::/system.slice/millstream.service\n")
    write(tmp_path / "sys/fs/cgroup/system.slice/millstream.service/memory.max", f"{900 * MIB}\n")
    write(tmp_path / "sys/fs/cgroup/system.slice/memory.max", f"{700 * MIB}\n")
    write(
        tmp_path / "sys/fs/cgroup/system.slice/memory.stat",
        f"anon {MIB}\nfile 99\nsock {2 * MIB}\nkernel 3\n",
    )
    group = MemoryGroup(tmp_path)
    assert group.limit == 700 * MIB
    assert group.unreclaimable_bytes() == 3 * MIB + 3


def test_in_a_container_the_path_may_begin_elsewhere(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "0::/docker/0123\n")
    write(tmp_path / "sys/fs/cgroup/memory.max", f"{300 * MIB}\n")
    assert MemoryGroup(tmp_path).limit == 300 * MIB


@pytest.mark.parametrize("text", ["", "nonsense", "0::/\n"])
def test_without_a_group_there_is_no_limit(tmp_path: Path, text: str) -> None:
    write(tmp_path / "proc/self/cgroup", text)
    group = MemoryGroup(tmp_path)
    assert (group.limit, group.unreclaimable_bytes(), group.pressure_bytes(70, 90)) == (0, 0, 0)


@pytest.mark.parametrize(("rss", "expected"), [(890, 0), (900, 700), (935, 800), (970, 900), (999, 900)])
def test_a_full_group_counts_on_the_scale_of_our_own_marks(tmp_path: Path, rss: int, expected: int) -> None:
    write(tmp_path / "proc/self/cgroup", "4:memory:/\n")
    write(tmp_path / "sys/fs/cgroup/memory/memory.limit_in_bytes", f"{1000 * MIB}\n")
    write(tmp_path / "sys/fs/cgroup/memory/memory.stat", f"total_rss {rss * MIB}\n")
    assert MemoryGroup(tmp_path).pressure_bytes(700, 900) == expected


def test_the_memory_of_the_machine_is_known(tmp_path: Path) -> None:
    write(tmp_path / "meminfo", "MemTotal:        2048 kB\nMemFree: 1 kB\n")
    assert machine_bytes(tmp_path / "meminfo") == 2 * MIB
    assert machine_bytes(tmp_path / "none") > 64 * MIB
