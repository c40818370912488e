"""A file is read whole or not at all, and never beyond its bound."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from millstream.config.bounded_file import read_bounded


def test_a_file_as_large_as_it_may_be_is_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"\x00\r\n\xff")
    assert read_bounded(file, 4) == b"\x00\r\n\xff"


def test_a_byte_more_is_a_fault_that_says_the_bound(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    with pytest.raises(OSError, match="more than 4 bytes") as caught:
        read_bounded(file, 4)
    assert caught.value.strerror == "it has more than 4 bytes"
    assert caught.value.filename == str(file)


def test_what_has_no_end_is_not_read_beyond_the_bound() -> None:
    with pytest.raises(OSError, match="more than 1000 bytes"):
        read_bounded(Path("/dev/zero"), 1000)


def test_what_comes_in_pieces_is_read_to_its_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def write() -> None:
        with pipe.open("wb", buffering=0) as target:
            for piece in (b"one ", b"two ", b"three"):
                target.write(piece)

    thread = threading.Thread(target=write)
    thread.start()
    assert read_bounded(pipe, 100) == b"one two three"
    thread.join()


def test_what_is_not_there_or_no_file_keeps_its_own_fault(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_bounded(tmp_path / "nothing", 4)
    with pytest.raises(IsADirectoryError):
        read_bounded(tmp_path, 4)
