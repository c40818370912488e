from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.config import values
from millstream.model.limits import NEVER_EXPIRES


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (65536, 65536),
        ("65536", 65536),
        ("64 KiB", 65536),
        ("64KiB", 65536),
        ("64k", 65536),
        ("64KB", 64_000),
        ("1 MiB", 1_048_576),
        ("1.5 MiB", 1_572_864),
        ("2 gib", 2 * 1024**3),
        ("10 MB", 10_000_000),
        ("0", 0),
    ],
)
def test_a_size_is_a_number_of_bytes_or_a_text_with_a_unit(text: object, size: int) -> None:
    assert values.parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "MiB", "-1", "1 parsec", "0.3", "1.0000001 KiB", "1e6", "٣", True, 1.5, None, []]
)
def test_what_is_not_a_size_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="size in bytes"):
        values.parse_size(text)


@given(st.integers(min_value=0, max_value=10**15))
def test_a_size_is_never_rounded(size: int) -> None:
    assert values.parse_size(str(size)) == size
    assert values.parse_size(f"{size} KiB") == size * 1024


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(30, 30), ("30", 30), ("30s", 30), ("5m", 300), ("1.5h", 5400), ("7d", 604_800), ("2000ms", 2)],
)
def test_seconds_take_a_number_or_a_text_with_a_unit(text: object, seconds: int) -> None:
    assert values.parse_seconds(text) == seconds


def test_never_is_the_value_of_mqtt_5() -> None:
    assert values.parse_seconds("Never") == NEVER_EXPIRES


@pytest.mark.parametrize("text", ["1500ms", 0.5])
def test_part_of_a_second_is_refused_where_only_whole_ones_mean_something(text: object) -> None:
    with pytest.raises(ValueError, match="whole number of seconds"):
        values.parse_seconds(text)


@pytest.mark.parametrize(("text", "seconds"), [(10, 10.0), (0.25, 0.25), ("250ms", 0.25), ("1m", 60.0)])
def test_a_time_out_may_be_part_of_a_second(text: object, seconds: float) -> None:
    assert values.parse_fractional_seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["soon", "-1s", True, None, float("nan"), float("inf"), 10**400, "1 fortnight"]
)
def test_what_is_not_a_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        values.parse_fractional_seconds(text)


def test_a_bare_number_has_the_unit_of_its_key() -> None:
    assert values.parse_milliseconds(100) == 100
    assert values.parse_milliseconds("2s") == 2000


@pytest.mark.parametrize("text", [True, False, 1.0, "1.0", "one", None, "", "0x10"])
def test_a_whole_number_is_not_a_switch_and_not_a_fraction(text: object) -> None:
    with pytest.raises(ValueError, match="whole number"):
        values.parse_whole(text)


@pytest.mark.parametrize(
    ("text", "is_on"), [("on", True), ("No", False), ("1", True), (False, False), ("TRUE", True)]
)
def test_a_switch_takes_the_usual_words(text: object, is_on: bool) -> None:
    assert values.parse_switch(text) is is_on


@pytest.mark.parametrize("text", [1, 0, "2", "maybe", None, ""])
def test_a_switch_takes_nothing_else(text: object) -> None:
    with pytest.raises(ValueError, match="true or false"):
        values.parse_switch(text)


@pytest.mark.parametrize(
    ("text", "word"), [(0, "backpressure"), ("0", "backpressure"), (1, "pending"), ("Pending", "pending")]
)
def test_overflow_takes_the_numbers_of_fluxmq_and_our_words(text: object, word: str) -> None:
    assert values.parse_overflow(text) == word


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), "nan", "many", True, None, 10**400])
def test_a_rate_is_a_finite_number(rate: object) -> None:
    with pytest.raises(ValueError, match="number per second"):
        values.parse_rate(rate)


def test_a_text_holds_no_control_characters_and_is_bounded() -> None:
    with pytest.raises(ValueError, match="control"):
        values.parse_text("a\nb")
    with pytest.raises(ValueError, match="longer"):
        values.parse_text("a" * (values.TEXT_LENGTH_MAX + 1))


def test_an_empty_path_is_not_the_same_as_none() -> None:
    with pytest.raises(ValueError, match="not be empty"):
        values.parse_path("")
    assert values.parse_path("a") == Path("a")
