"""Methods against their vectors: every one there is, and what is none."""

from __future__ import annotations

import pytest
from vectors.amqp091_methods import BAD, GOOD, KEYS, METHOD_VECTORS, ODD
from vectors.amqp091_vector import PRECONDITION, MethodVector

from millstream.protocols.amqp091.wire import codes
from millstream.protocols.amqp091.wire.methods import (
    METHODS,
    BasicAck,
    BasicPublish,
    BasicReject,
    ChannelFlow,
    ChannelFlowOk,
    ConnectionSecureOk,
    ConnectionStartOk,
    ConnectionUpdateSecret,
    Method,
    QueueDeclare,
    decode_method,
    encode_method,
    find_method_name,
    name_of_method,
)
from millstream.protocols.amqp091.wire.violation import Violation


def name_of(vector: MethodVector) -> str:
    return vector.name


def test_the_table_has_every_method_once() -> None:
    assert [type(vector.method) for vector in GOOD] == list(METHODS)
    assert len({vector.name for vector in METHOD_VECTORS}) == len(METHOD_VECTORS) >= 100


@pytest.mark.parametrize("vector", GOOD + KEYS + ODD, ids=name_of)
def test_a_good_method_is_decoded_wherever_it_stands_in_the_buffer(vector: MethodVector) -> None:
    buffer = b"\x55\xaa\x55" + vector.data + b"\xce"
    assert decode_method(buffer, 3, len(buffer) - 1) == vector.method


@pytest.mark.parametrize("vector", GOOD + KEYS + ODD, ids=name_of)
def test_a_method_is_encoded_in_the_bytes_of_its_vector(vector: MethodVector) -> None:
    assert vector.method is not None
    written = encode_method(vector.method)
    assert (written == vector.data) == vector.canonical


@pytest.mark.parametrize("vector", BAD, ids=name_of)
def test_a_bad_method_is_refused_with_its_code(vector: MethodVector) -> None:
    with pytest.raises(Violation) as caught:
        decode_method(vector.data, 0, len(vector.data))
    assert caught.value.code == vector.violation
    assert str(caught.value) == caught.value.text
    assert caught.value.is_hard == (vector.violation != PRECONDITION)


@pytest.mark.parametrize("vector", BAD, ids=name_of)
def test_a_refusal_names_the_method(vector: MethodVector) -> None:
    with pytest.raises(Violation) as caught:
        decode_method(vector.data, 0, len(vector.data))
    ids = caught.value.class_id.to_bytes(2, "big") + caught.value.method_id.to_bytes(2, "big")
    assert ids == (vector.data[:4] if len(vector.data) >= 4 else b"\x00" * 4)


@pytest.mark.parametrize("vector", GOOD, ids=name_of)
def test_a_method_cut_anywhere_is_refused(vector: MethodVector) -> None:
    for length in range(len(vector.data)):
        with pytest.raises(Violation):
            decode_method(vector.data, 0, length)


@pytest.mark.parametrize("vector", GOOD, ids=name_of)
def test_a_byte_behind_a_method_is_refused(vector: MethodVector) -> None:
    with pytest.raises(Violation) as caught:
        decode_method(vector.data + b"\x00", 0, len(vector.data) + 1)
    assert caught.value.code == codes.SYNTAX_ERROR


def test_ids_and_names_are_known_by_instance_and_class() -> None:
    method: Method = QueueDeclare(b"q", False, False, False, False, False, {})
    assert (method.class_id, method.method_id) == (50, 10)
    assert (QueueDeclare.class_id, QueueDeclare.method_id) == (50, 10)
    assert name_of_method(method) == "queue.declare"
    assert find_method_name(10, 71) == "connection.update-secret-ok"
    assert find_method_name(60, 100) == "basic.recover-async"
    assert find_method_name(60, 72) == "basic.get-empty"
    assert find_method_name(1, 1) is None


def test_a_secret_is_not_shown() -> None:
    methods = [
        ConnectionStartOk({}, b"PLAIN", b"hidden", b""),
        ConnectionSecureOk(b"hidden"),
        ConnectionUpdateSecret(b"hidden", b"old"),
    ]
    assert "hidden" not in repr(methods)
    assert "PLAIN" in repr(methods)


def test_methods_are_equal_by_kind_and_content() -> None:
    assert ChannelFlow(True) == ChannelFlow(True)
    assert ChannelFlow(True) != ChannelFlow(False)
    assert ChannelFlow(True) != ChannelFlowOk(True)
    assert repr(BasicAck(1, True)) == "BasicAck(1, True)"


@pytest.mark.parametrize(
    "method",
    [
        BasicReject(-1, True),
        BasicReject(1 << 64, True),
        BasicPublish(b"e" * 256, b"", False, False),
        QueueDeclare(b"q", False, False, False, False, False, {b"k": object()}),
    ],
)
def test_what_cannot_be_carried_is_the_callers_error(method: Method) -> None:
    with pytest.raises(ValueError):
        encode_method(method)


def test_codes_have_the_names_of_the_specification() -> None:
    assert codes.name_of(codes.NOT_FOUND) == "NOT_FOUND"
    assert codes.name_of(541) == "INTERNAL_ERROR"
    assert codes.name_of(999) == "REPLY_CODE_999"
    numbers = {name: value for name, value in vars(codes).items() if isinstance(value, int) and value >= 206}
    numbers.pop("FRAME_END", None)
    assert {value: name for name, value in numbers.items()}.items() <= codes.NAMES.items()
