"""What is published, as a person names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.commands.outcome import CommandFailed, ExitCode
from millstream.commands.payload import parse_properties, read_payload


def test_a_payload_is_the_very_bytes_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "picture"
    file.write_bytes(b"\x00\r\n\xff")
    assert read_payload(file) == b"\x00\r\n\xff"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="nothing cannot be read: No such file") as caught:
        read_payload(tmp_path / "nothing")
    assert caught.value.code is ExitCode.USAGE


def test_properties_keep_their_order_and_all_behind_the_first_equals_sign() -> None:
    assert parse_properties(["b=1", "a=x=y", "b=", "=v"]) == [("b", "1"), ("a", "x=y"), ("b", ""), ("", "v")]


def test_a_property_without_an_equals_sign_is_refused() -> None:
    with pytest.raises(CommandFailed, match="--property trace: write NAME=VALUE"):
        parse_properties(["a=1", "trace"])
