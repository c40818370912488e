"""Protobuf descriptors to message classes."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from pyspark_millstream.decode.faults import DecodeOptionError, shorten

HINT: Final = "Make one: protoc --include_imports --descriptor_set_out=readings.desc readings.proto"
_WELL_KNOWN: Final = "google/protobuf/"


def find_message(descriptor_set: bytes, name: str) -> Any:
    """The class of a message of that full name."""
    files = _read_set(descriptor_set)
    pool = descriptor_pool.DescriptorPool()
    for file in files.values():
        _add_file(file, files, pool, set())
    try:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError:
        pass
    known = sorted(_message_names(files))
    shown = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
    raise DecodeOptionError(
        f'payloadDescriptor has no message "{shorten(name)}"', f"It has {shown or 'no message at all'}."
    )


def _read_set(content: bytes) -> dict[str, Any]:
    try:
        found = descriptor_pb2.FileDescriptorSet.FromString(content)
    except DecodeError:
        raise DecodeOptionError("payloadDescriptor is no FileDescriptorSet", HINT) from None
    if not found.file:
        raise DecodeOptionError("payloadDescriptor is a FileDescriptorSet without files", HINT)
    return {file.name: file for file in found.file}


def _add_file(file: Any, files: dict[str, Any], pool: Any, added: set[str]) -> None:
    """What a file imports comes first."""
    if file.name in added or _is_in(pool, file.name):
        return
    added.add(file.name)
    for name in file.dependency:
        needed = files.get(name) or _well_known(name)
        if needed is None:
            raise DecodeOptionError(
                f'payloadDescriptor lacks the file "{name}" that "{file.name}" imports', HINT
            )
        _add_file(needed, files, pool, added)
    try:
        pool.Add(file)
    except (TypeError, ValueError) as fault:
        raise DecodeOptionError(f"payloadDescriptor is not sound: {shorten(str(fault), 160)}", HINT) from None


def _is_in(pool: Any, name: str) -> bool:
    try:
        pool.FindFileByName(name)
    except KeyError:
        return False
    return True


def _well_known(name: str) -> Any:
    """The files that come with Protobuf itself."""
    if not name.startswith(_WELL_KNOWN):
        return None
    module = name.removeprefix(_WELL_KNOWN).removesuffix(".proto")
    if module not in ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers"):
        return None
    found = getattr(__import__(f"google.protobuf.{module}_pb2", fromlist=["DESCRIPTOR"]), "DESCRIPTOR")  # noqa: B009
    file = descriptor_pb2.FileDescriptorProto()
    found.CopyToProto(file)
    return file


def _message_names(files: dict[str, Any]) -> list[str]:
    names: list[str] = []
    for file in files.values():
        prefix = f"{file.package}." if file.package else ""
        names += [prefix + message.name for message in file.message_type]
    return names
