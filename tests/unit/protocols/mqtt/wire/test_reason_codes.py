"""The tables of reason codes agree with each other."""

from __future__ import annotations

from millstream.protocols.mqtt.wire import kinds, reason_codes
from millstream.protocols.mqtt.wire.reason_codes import ALLOWED_REASONS, REASON_NAMES, get_reason_name


def test_every_code_has_a_name_and_every_allowed_code_is_known() -> None:
    constants = {
        value for name, value in vars(reason_codes).items() if name.isupper() and isinstance(value, int)
    }
    assert constants - {3, 5} == set(REASON_NAMES)  # 3 and 5 are return codes before MQTT 5 only
    for allowed in ALLOWED_REASONS.values():
        assert allowed <= set(REASON_NAMES)


def test_packets_without_reasons_have_no_row() -> None:
    without = {
        kinds.CONNECT,
        kinds.PUBLISH,
        kinds.SUBSCRIBE,
        kinds.UNSUBSCRIBE,
        kinds.PINGREQ,
        kinds.PINGRESP,
    }
    assert set(ALLOWED_REASONS) == set(range(1, 16)) - without


def test_a_code_is_named_in_the_words_of_its_version() -> None:
    assert get_reason_name(0x87) == "not authorized"
    assert get_reason_name(5, 4) == "not authorized"
    assert get_reason_name(2, 4) == "identifier rejected"
    assert get_reason_name(2, 5) == "granted QoS 2"
    assert get_reason_name(0x55) == "reason 0x55"
