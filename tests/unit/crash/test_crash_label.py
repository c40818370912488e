"""A payload of the crash harness says who sent it, and shows when a single byte of it is wrong."""

from __future__ import annotations

from crash.label import encode_label, find_label


def test_a_label_comes_back_from_its_payload() -> None:
    for number in range(1, 50):
        label = ("publisher-1", "$queue/work-1/a", number)
        assert find_label(encode_label(label)) == label


def test_payloads_are_of_many_lengths() -> None:
    assert len({len(encode_label(("p", "t", number))) for number in range(100)}) > 50


def test_a_changed_cut_or_foreign_payload_is_nobodys() -> None:
    payload = encode_label(("p", "t", 17))
    for at in range(len(payload)):
        changed = payload[:at] + bytes([payload[at] ^ 1]) + payload[at + 1 :]
        assert find_label(changed) != ("p", "t", 17)
    assert find_label(payload[:-1]) is None
    assert find_label(payload + b".") is None
    assert find_label(b"") is None
