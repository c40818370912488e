"""Protobuf payloads to columns."""

from __future__ import annotations

import base64
import pickle
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from decode_batches import decoded, decoder_for, values_of
from hypothesis import given
from hypothesis import strategies as st
from protobuf_files import ProtobufFile

from pyspark_millstream.decode import Decoder
from pyspark_millstream.decode.faults import DecodeOptionError
from pyspark_millstream.decode.protobuf_schema import find_message

TIMES = "google/protobuf/timestamp.proto"


def reading_file() -> ProtobufFile:
    file = ProtobufFile(imports=(TIMES,))
    file.enum("State", "OFF", "ON")
    file.message("Place", {"x": "double", "floor": "optional int32"})
    reading = file.message(
        "Reading",
        {
            "i": "int32",
            "j": "sint64",
            "u": "uint32",
            "v": "uint64",
            "d": "double",
            "f": "float",
            "b": "bool",
            "s": "string",
            "raw": "bytes",
            "maybe": "optional int64",
            "state": "enum .plant.State",
            "place": ".plant.Place",
            "places": "repeated .plant.Place",
            "tags": "repeated string",
            "states": "repeated enum .plant.State",
            "at": ".google.protobuf.Timestamp",
            "counts": "repeated .plant.Reading.CountsEntry",
        },
    )
    entry = reading.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    for number, (name, kind) in enumerate({"key": 9, "value": 3}.items(), 1):
        entry.field.add(name=name, number=number, type=kind, label=1)
    return file


def protobuf_decoder(file: ProtobufFile, message: str = "plant.Reading") -> Decoder:
    return decoder_for(payloadFormat="protobuf", payloadDescriptor=file.text(), payloadMessage=message)


def message_class(file: ProtobufFile, message: str = "plant.Reading") -> Any:
    return find_message(file.content(), message)


def test_every_kind_of_field_is_read() -> None:
    file = reading_file()
    message = message_class(file)(
        i=-5,
        j=-(2**62),
        u=2**32 - 1,
        v=2**64 - 1,
        d=1.5,
        f=0.5,
        b=True,
        s="grün",
        raw=b"\xff",
        maybe=0,
        state=1,
        place={"x": 2.5},
        places=[{"x": 1, "floor": 3}, {}],
        tags=["a", ""],
        states=[1, 0, 7],
        counts={"n": 4},
    )
    message.at.FromDatetime(datetime(2026, 11, 15, 10, 0, 0, 123456, tzinfo=UTC))
    assert values_of(protobuf_decoder(file), [message.SerializeToString()] * 3)[2] == {
        "i": -5,
        "j": -(2**62),
        "u": 2**32 - 1,
        "v": Decimal(2**64 - 1),
        "d": 1.5,
        "f": 0.5,
        "b": True,
        "s": "grün",
        "raw": b"\xff",
        "maybe": 0,
        "state": "ON",
        "place": {"x": 2.5, "floor": None},
        "places": [{"x": 1.0, "floor": 3}, {"x": 0.0, "floor": None}],
        "tags": ["a", ""],
        "states": ["ON", "OFF", "7"],
        "at": datetime(2026, 11, 15, 10, 0, 0, 123456, tzinfo=UTC),
        "counts": [("n", 4)],
    }


def test_what_was_not_sent_has_its_default_or_is_null_where_it_has_presence() -> None:
    value = values_of(protobuf_decoder(reading_file()), [b""])[0]
    assert (value["i"], value["s"], value["state"], value["tags"], value["counts"]) == (0, "", "OFF", [], [])
    assert (value["maybe"], value["place"], value["at"]) == (None, None, None)


def test_bad_rows_are_null_with_the_reason_and_the_rest_is_read() -> None:
    file = reading_file()
    good = message_class(file)(i=1).SerializeToString()
    found = decoded(protobuf_decoder(file), [good, b"\xff", good + b"\x0f", None, b"{}", good])
    assert [value is not None for value, _ in found] == [True, False, False, True, False, True]
    assert found[1][1] == "not a Protobuf message of this type"


def test_a_required_field_that_is_missing_is_named() -> None:
    file = ProtobufFile(syntax="proto2")
    file.message("Old", {"a": "required int32", "b": "string"})
    found = decoded(protobuf_decoder(file, "plant.Old"), [b"\x08\x01", b""])
    assert found[0][0] == {"a": 1, "b": None}
    assert found[1][1] == "not a Protobuf message of this type: required fields are missing: a"


def test_a_text_that_is_not_utf_8_costs_its_own_row() -> None:
    file = ProtobufFile(syntax="proto2")
    file.message("Old", {"s": "string", "l": "repeated string"})
    found = decoded(
        protobuf_decoder(file, "plant.Old"), [b"\x0a\x01a", b"\x0a\x01\xff", b"\x12\x01\xff", b"\x12\x01b"]
    )
    assert [error for _, error in found] == [
        None,
        "a string field is not UTF-8",
        "a string field is not UTF-8",
        None,
    ]


def test_a_time_no_calendar_has_costs_its_own_row() -> None:
    file = reading_file()
    messages = [message_class(file)(at={"seconds": seconds}) for seconds in (0, 2**62, 10**13, 1)]
    found = decoded(protobuf_decoder(file), [message.SerializeToString() for message in messages])
    assert [error is None for _, error in found] == [True, False, False, True]


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_any_bytes_are_a_row_or_an_error_of_it(payloads: list[bytes]) -> None:
    assert len(decoded(protobuf_decoder(reading_file()), payloads)) == len(payloads)


def test_the_descriptor_may_be_a_file_that_only_the_driver_has(tmp_path: Path) -> None:
    path = tmp_path / "readings.desc"
    path.write_bytes(reading_file().content())
    decoder = decoder_for(
        payloadFormat="protobuf", payloadDescriptor=str(path), payloadMessage=".plant.Place"
    )
    travelling = pickle.dumps(decoder)
    path.unlink()
    assert values_of(pickle.loads(travelling), [b""]) == [{"x": 0.0, "floor": None}]


def refusal(descriptor: str, message: str = "plant.Reading") -> str:
    with pytest.raises(DecodeOptionError) as caught:
        decoder_for(payloadFormat="protobuf", payloadDescriptor=descriptor, payloadMessage=message)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_message_that_is_not_in_the_descriptor_is_refused_with_those_that_are() -> None:
    assert refusal(reading_file().text(), "plant.Nope") == (
        'payloadDescriptor has no message "plant.Nope". It has plant.Place, plant.Reading.'
    )


def test_a_descriptor_that_is_none_is_refused() -> None:
    assert "neither a file nor base64" in refusal("no such file!")
    assert "is no FileDescriptorSet" in refusal(base64.b64encode(b"garbage").decode())
    assert "without files" in refusal(base64.b64encode(b"\x12\x00").decode())


def test_a_descriptor_without_what_it_imports_is_refused_with_the_command_that_makes_a_whole_one() -> None:
    file = ProtobufFile(imports=("other.proto",))
    file.message("Reading", {"n": "int32"})
    assert 'lacks the file "other.proto"' in refusal(file.text())
    assert "--include_imports" in refusal(file.text())


def test_a_message_inside_itself_and_one_without_fields_are_refused() -> None:
    file = ProtobufFile()
    file.message("Reading", {"child": ".plant.Reading"})
    file.message("Empty", {})
    assert '"child" of the Protobuf message holds plant.Reading inside itself' in refusal(file.text())
    assert "has no fields" in refusal(file.text(), "plant.Empty")
