"""The seam between the source and payload decoding: which columns come, and that a schema is inferred once."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest
from fake_reader import FakeQueue, FakeReader

from pyspark_millstream.batch_reader import BatchReader
from pyspark_millstream.decoding import find_decoding, sample_payloads
from pyspark_millstream.errors import OptionError
from pyspark_millstream.options import read_options


class JsonQueue(FakeQueue):
    """Every payload is a JSON object but number 3."""

    def values(self, name: str, offsets: range) -> list[object]:
        if name != "payload":
            return super().values(name, offsets)
        return [b"no json" if offset == 3 else b'{"n": %d, "t": "x"}' % offset for offset in offsets]


@pytest.fixture
def reader() -> Iterator[FakeReader]:
    with FakeReader() as reader:
        reader.queues["a"] = JsonQueue("a", 0, 10)
        yield reader


def rows(reader: FakeReader, **options: str) -> tuple[list[str], list[dict[str, object]]]:
    checked = read_options({"uri": reader.uri, "queues": "a", "payloadFormat": "json", **options})
    decoding, _ = find_decoding(checked)
    assert decoding is not None
    batch = pickle.loads(pickle.dumps(BatchReader(checked, decoding.schema(), decoding)))
    found = [row for part in batch.partitions() for table in batch.read(part) for row in table.to_pylist()]
    return decoding.schema().fieldNames(), found


def test_decoded_columns_stand_behind_those_of_the_record(reader: FakeReader) -> None:
    names, found = rows(reader, columns="offset,payload", payloadSchema="n INT")
    assert names == ["offset", "payload", "value", "_error"]
    assert found[2] == {"offset": 2, "payload": b'{"n": 2, "t": "x"}', "value": {"n": 2}, "_error": None}
    assert found[3]["value"] is None
    assert found[3]["_error"]
    assert len(found) == 10


@pytest.mark.parametrize(
    "options", [{"columns": "offset"}, {"columns": "offset,payload", "keepPayload": "false"}]
)
def test_a_payload_that_is_not_kept_is_decoded_all_the_same(
    reader: FakeReader, options: dict[str, str]
) -> None:
    names, found = rows(reader, payloadSchema="n INT", **options)
    assert names == ["offset", "value", "_error"]
    assert found[9]["value"] == {"n": 9}


def test_an_inferred_schema_is_settled_and_not_inferred_again(reader: FakeReader) -> None:
    checked = read_options(
        {"uri": reader.uri, "queues": "a", "payloadFormat": "json", "payloadSchema": "infer"}
    )
    first, settled = find_decoding(checked)
    asked = len(reader.requests)
    again, _ = find_decoding(checked, settled)
    assert len(reader.requests) == asked
    assert first is not None
    assert again is not None
    assert first.schema() == again.schema()
    assert "value" in first.schema().fieldNames()


def test_a_sample_has_no_more_than_was_asked_for(reader: FakeReader) -> None:
    reader.add("b", 5, 100)
    checked = read_options({"uri": reader.uri, "queues": "a,b"})
    assert len(list(sample_payloads(checked, 4))) == 4
    assert len(list(sample_payloads(checked, 30))) == 30
    assert len(list(sample_payloads(checked, 1000))) == 105


def test_payloads_stay_as_they_are_unless_told_otherwise(reader: FakeReader) -> None:
    checked = read_options({"uri": reader.uri, "queues": "a"})
    assert find_decoding(checked)[0] is None
    assert reader.requests == []
    assert "payload" not in read_options({"uri": "http://h", "queues": "a", "keepPayload": "false"}).columns


def test_an_option_of_another_format_is_refused(reader: FakeReader) -> None:
    checked = read_options({"uri": reader.uri, "queues": "a", "payloadSchema": "n INT"})
    with pytest.raises(OptionError, match="payloadSchema does nothing with payloadFormat=raw"):
        find_decoding(checked)
