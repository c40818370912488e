from __future__ import annotations

import os
from pathlib import Path

from millstream.runtime.file_watch import FileWatch


def test_a_change_is_told_once(tmp_path: Path) -> None:
    file = tmp_path / "rules"
    file.write_text("one")
    watch = FileWatch(file)
    assert not watch.has_changed()
    file.write_text("other")
    assert watch.has_changed()
    assert not watch.has_changed()


def test_a_file_put_in_its_place_is_a_change_even_with_equal_size_and_time(tmp_path: Path) -> None:
    file = tmp_path / "rules"
    file.write_text("one")
    times = file.stat()
    watch = FileWatch(file)
    new = tmp_path / "new"
    new.write_text("two")
    os.utime(new, ns=(times.st_atime_ns, times.st_mtime_ns))
    new.replace(file)
    assert watch.has_changed()
    assert not watch.has_changed()


def test_a_file_that_goes_and_comes_back_is_two_changes(tmp_path: Path) -> None:
    file = tmp_path / "rules"
    file.write_text("one")
    watch = FileWatch(file)
    file.unlink()
    assert watch.has_changed()
    assert not watch.has_changed()
    file.write_text("one")
    assert watch.has_changed()
