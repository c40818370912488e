"""The options of decoding, checked; and made into values that can travel to tasks on other machines.

Invariants
- An option that would do nothing is refused.
- After `settle_options` no option names a file and no schema is still to be inferred, so `make_decoder` gives the same
  decoder on the driver and in every task.
"""

from __future__ import annotations

import base64
import binascii
import os.path
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark_millstream import option_values
from pyspark_millstream.decode.faults import DecodeOptionError, shorten
from pyspark_millstream.decode.infer import SAMPLE_RECORDS, infer_ddl

FORMATS: Final = ("raw", "json", "avro", "protobuf", "sparkplug")
INFER: Final = "infer"
FILE_BYTES_MAX: Final = 16 << 20
INFER_RECORDS_MAX: Final = 100_000
OPTION_NAMES: Final = (
    "payloadFormat",
    "payloadSchema",
    "payloadDescriptor",
    "payloadMessage",
    "keepPayload",
    "inferRecords",
    "deadLetterQueue",
)
# Which of them mean something for which format.
_USES: Final = {
    "raw": ("keepPayload",),
    "json": ("payloadSchema", "inferRecords", "keepPayload", "deadLetterQueue"),
    "avro": ("payloadSchema", "keepPayload", "deadLetterQueue"),
    "protobuf": ("payloadDescriptor", "payloadMessage", "keepPayload", "deadLetterQueue"),
    "sparkplug": ("keepPayload", "deadLetterQueue"),
}
_NEEDS: Final = {
    "json": {
        "payloadSchema": 'Add .option("payloadSchema", "device string, temperature double"), or "infer".'
    },
    "avro": {"payloadSchema": "Add the schema as JSON text, or the path of a file with it."},
    "protobuf": {
        "payloadDescriptor": "Make one: protoc --include_imports --descriptor_set_out=readings.desc readings.proto",
        "payloadMessage": 'Add the full name: .option("payloadMessage", "plant.Reading").',
    },
}

Sample = Callable[[int], Iterable[bytes | None]]


@dataclass(frozen=True)
class DecodeSettings:
    """How payloads are decoded: values only."""

    format: str
    schema: str = ""
    descriptor: bytes = b""
    message: str = ""
    keeps_payload: bool = True
    dead_letter_queue: str = ""


def settle_options(options: Mapping[str, str], sample: Sample | None = None) -> dict[str, str]:
    """The options with files read and the schema inferred. `sample` gives the payloads of the first so many records."""
    settled = dict(options)
    found = _by_name(options)
    kind = _format(found)
    schema = found.get("payloadSchema", "").strip()
    if kind == "json" and schema.lower() == INFER:
        if sample is None:
            raise DecodeOptionError(
                "payloadSchema=infer needs records to look at, and there are none here",
                'Give the schema: .option("payloadSchema", "device string, temperature double").',
            )
        count = _infer_records(found)
        settled = _with(settled, "payloadSchema", infer_ddl(sample(count)))
        settled = {name: value for name, value in settled.items() if name.lower() != "inferrecords"}
    elif kind == "avro" and schema and schema[0] not in '{["':
        settled = _with(settled, "payloadSchema", _read_text("payloadSchema", schema))
    elif kind == "protobuf" and found.get("payloadDescriptor"):
        descriptor = _read_descriptor(found["payloadDescriptor"].strip())
        settled = _with(settled, "payloadDescriptor", base64.b64encode(descriptor).decode("ascii"))
    return settled


def read_settings(options: Mapping[str, str]) -> DecodeSettings | None:
    """The settings in options that are settled; None when payloads stay as they are."""
    found = _by_name(options)
    kind = _format(found)
    for name in found:
        if name != "payloadFormat" and name not in _USES[kind]:
            raise _useless(name, kind)
    if kind == "raw":
        return None
    for name, hint in _NEEDS.get(kind, {}).items():
        if not found.get(name, "").strip():
            raise DecodeOptionError(f"payloadFormat={kind} needs the option {name}", hint)
    keeps = option_values.boolean("keepPayload", found.get("keepPayload", "true"))
    letters = found.get("deadLetterQueue", "").strip()
    if letters and not keeps:
        raise DecodeOptionError(
            "deadLetterQueue keeps payloads that cannot be decoded, and keepPayload=false drops them",
            "Take one of the two out, and leave payload among the columns.",
        )
    descriptor = found.get("payloadDescriptor", "").strip()
    return DecodeSettings(
        format=kind,
        schema=found.get("payloadSchema", "").strip(),
        descriptor=_read_descriptor(descriptor) if descriptor else b"",
        message=found.get("payloadMessage", "").strip().removeprefix("."),
        keeps_payload=keeps,
        dead_letter_queue=letters,
    )


def _by_name(options: Mapping[str, str]) -> dict[str, str]:
    """Those that are about decoding, by their names as people write them; Spark hands them over in lower case."""
    lowered = {key.lower(): value for key, value in options.items()}
    return {name: lowered[name.lower()] for name in OPTION_NAMES if name.lower() in lowered}


def _with(options: dict[str, str], name: str, value: str) -> dict[str, str]:
    return {key: value if key.lower() == name.lower() else old for key, old in options.items()}


def _format(found: Mapping[str, str]) -> str:
    kind = found.get("payloadFormat", "raw").strip().lower()
    if kind not in FORMATS:
        raise DecodeOptionError(
            f'there is no payloadFormat "{shorten(kind, 40)}"', f"It can be {', '.join(FORMATS)}."
        )
    return kind


def _infer_records(found: Mapping[str, str]) -> int:
    text = found.get("inferRecords", str(SAMPLE_RECORDS))
    return option_values.number("inferRecords", text, 1, INFER_RECORDS_MAX)


def _useless(name: str, kind: str) -> DecodeOptionError:
    users = [other for other, names in _USES.items() if name in names]
    return DecodeOptionError(
        f"the option {name} does nothing with payloadFormat={kind}",
        f"It belongs to payloadFormat={' or '.join(users)}.",
    )


def _read_descriptor(text: str) -> bytes:
    if os.path.isfile(text):  # base64 is often too long for a name: this answers no, where Path raises
        return _read_bytes("payloadDescriptor", text)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise DecodeOptionError(
            f'payloadDescriptor "{shorten(text)}" is neither a file nor base64',
            _NEEDS["protobuf"]["payloadDescriptor"],
        ) from None


def _read_text(name: str, path: str) -> str:
    try:
        return _read_bytes(name, path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DecodeOptionError(f'the file "{shorten(path)}" of {name} is not UTF-8 text') from None


def _read_bytes(name: str, path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) and fault.strerror else str(fault)
        raise DecodeOptionError(
            f'the file "{shorten(path)}" of {name} cannot be read: {reason}',
            "Give a path that the driver can read, or the content itself.",
        ) from None
    if len(content) > FILE_BYTES_MAX:
        raise DecodeOptionError(f'the file "{shorten(path)}" of {name} has more than {FILE_BYTES_MAX} bytes')
    return content
