"""Files named on the command line: whoever reads one refuses it with the same sentence."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from millstream.commands import access, connection, definition_file, payload
from millstream.commands.connection import MqttVersion, find_target
from millstream.commands.definition_file import read_definitions
from millstream.commands.input_file import read_input
from millstream.commands.outcome import CommandFailed, ExitCode
from millstream.commands.output import Output
from millstream.commands.payload import read_payload

Read = Callable[[Path], object]


def read_password(file: Path) -> object:
    return find_target("mqtt://127.0.0.1", "u", file, MqttVersion.FIVE, None, None, None).password


def import_rules(file: Path) -> object:
    access.import_acl(file, Output.JSON)
    return None


READERS: dict[str, tuple[Read, int, ExitCode]] = {
    "payload": (read_payload, payload.FILE_SIZE_MAX, ExitCode.USAGE),
    "definitions": (read_definitions, definition_file.FILE_SIZE_MAX, ExitCode.USAGE),
    "password": (read_password, connection.PASSWORD_SIZE_MAX, ExitCode.USAGE),
    "rules": (import_rules, access.IMPORT_SIZE_MAX, ExitCode.FAILED),
}
EVERY_READER = pytest.mark.parametrize("reader", READERS)


def refusal(read: Read, file: Path) -> CommandFailed:
    with pytest.raises(CommandFailed) as caught:
        read(file)
    return caught.value


@EVERY_READER
def test_a_file_that_is_not_there_is_named(tmp_path: Path, reader: str) -> None:
    read, _, code = READERS[reader]
    refused = refusal(read, tmp_path / "nothing")
    assert refused.sentence == f"{tmp_path / 'nothing'} cannot be read: No such file or directory."
    assert refused.code is code


@pytest.mark.parametrize("reader", ["password", "rules"])  # the others take hundreds of megabytes
def test_a_file_that_is_too_large_is_refused_with_its_bound(tmp_path: Path, reader: str) -> None:
    read, size_max, code = READERS[reader]
    file = tmp_path / "large"
    with file.open("wb") as target:
        target.truncate(size_max + 1)  # takes no room
    refused = refusal(read, file)
    assert refused.sentence == f"{file} cannot be read: it has more than {size_max} bytes."
    assert refused.code is code


def test_a_directory_is_refused_in_a_sentence(tmp_path: Path) -> None:
    refused = refusal(partial(read_input, size_max=1), tmp_path)
    assert refused.sentence == f"{tmp_path} cannot be read: Is a directory."


def test_a_password_is_all_of_its_file_but_the_end_of_the_line(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b" se\ncret \r\n")
    assert read_password(file) == b" se\ncret "
