"""Protobuf descriptors for tests, made in code: no compiler is needed."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

KINDS = {name.removeprefix("TYPE_").lower(): number for name, number in FieldDescriptorProto.Type.items()}


class ProtobufFile:
    """One file; fields are given as `"int32"`, `"repeated string"`, `"optional double"` or `".package.Message"`."""

    def __init__(self, package: str = "plant", syntax: str = "proto3", imports: tuple[str, ...] = ()) -> None:
        self.file = FileDescriptorProto(
            name=f"{package}.proto", package=package, syntax=syntax, dependency=imports
        )

    def message(self, name: str, fields: Mapping[str, str]) -> Any:
        message = self.file.message_type.add(name=name)
        for number, (field, text) in enumerate(fields.items(), 1):
            self._add(message, field, number, text)
        return message

    def enum(self, name: str, *names: str) -> None:
        enum = self.file.enum_type.add(name=name)
        for number, value in enumerate(names):
            enum.value.add(name=value, number=number)

    def text(self) -> str:
        """What the option payloadDescriptor takes."""
        return base64.b64encode(self.content()).decode("ascii")

    def content(self) -> bytes:
        content = FileDescriptorSet(file=[self.file]).SerializeToString()
        assert isinstance(content, bytes)
        return content

    def _add(self, message: Any, name: str, number: int, text: str) -> None:
        *words, kind = text.split()
        label = FieldDescriptorProto.LABEL_OPTIONAL
        if "repeated" in words:
            label = FieldDescriptorProto.LABEL_REPEATED
        elif "required" in words:
            label = FieldDescriptorProto.LABEL_REQUIRED
        field = message.field.add(name=name, number=number, label=label)
        if kind.startswith("."):
            field.type_name = kind
            field.type = KINDS["enum" if "enum" in words else "message"]
        else:
            field.type = KINDS[kind]
        if "optional" in words:
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")
