"""The connector's HTTP client against a reader that is busy, breaks off, hangs up or is not there."""

from __future__ import annotations

import io
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import trustme
from fake_reader import FakeReader

from pyspark_millstream.client import AnswerBody, ReaderClient, RecordsRequest
from pyspark_millstream.errors import MillstreamSparkError, ReaderRefused, ReaderUnreachable
from pyspark_millstream.options import Endpoint, endpoint_from
from pyspark_millstream.rows import last_offset

REQUEST = RecordsRequest("readings", 0, 1000, ("payload",), rows=100)


class Clock:
    """Time that passes only in pauses."""

    def __init__(self) -> None:
        self.now = 0.0

    def read(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def reader() -> Iterator[FakeReader]:
    with FakeReader() as reader:
        reader.add("readings", 0, 1000)
        yield reader


def client_of(endpoint: Endpoint | FakeReader) -> tuple[ReaderClient, Clock]:
    clock = Clock()
    if isinstance(endpoint, FakeReader):
        endpoint = endpoint_from({"uri": endpoint.uri})
    return ReaderClient(endpoint, clock.read, clock.pause), clock


def offsets_of(client: ReaderClient, request: RecordsRequest) -> list[int]:
    return [
        value
        for batch in client.batches(request)
        for value in batch.column(batch.schema.get_field_index("offset")).to_pylist()
    ]


def test_a_connection_is_used_again(reader: FakeReader) -> None:
    client, _ = client_of(reader)
    for _ in range(5):
        assert client.queue("readings", is_fresh=True).end == 1000
        assert offsets_of(client, REQUEST) == list(range(1000))
    assert reader.connections == 1


def test_a_name_with_slashes_and_spaces_reaches_its_queue(reader: FakeReader) -> None:
    reader.add("$dlq/a b?", 3, 9)
    client, _ = client_of(reader)
    assert client.queue("$dlq/a b?", is_fresh=False).first == 3


def test_a_busy_reader_is_asked_again(reader: FakeReader) -> None:
    reader.busy_left = 4
    client, clock = client_of(reader)
    assert client.queue("readings", is_fresh=False).end == 1000
    assert clock.now > 0


def test_a_reader_that_hangs_up_is_asked_again(reader: FakeReader) -> None:
    reader.hang_ups_left = 3
    client, _ = client_of(reader)
    assert client.queue("readings", is_fresh=False).end == 1000


def test_patience_ends(reader: FakeReader) -> None:
    reader.busy_left = 10_000
    client, clock = client_of(reader)
    with pytest.raises(ReaderUnreachable, match="the broker is away"):
        client.queue("readings", is_fresh=False)
    assert 60 <= clock.now <= 61
    clock.now = 0.0
    with pytest.raises(ReaderUnreachable):
        client.queue("readings", is_fresh=False, patience_s=5)
    assert 5 <= clock.now <= 6


@pytest.mark.parametrize("is_cut_cleanly", [False, True], ids=["in a batch", "between batches"])
def test_a_stream_that_breaks_off_goes_on_behind_its_last_row(
    reader: FakeReader, is_cut_cleanly: bool
) -> None:
    reader.breaks_left = 5
    reader.is_cut_cleanly = is_cut_cleanly
    client, _ = client_of(reader)
    assert offsets_of(client, REQUEST) == list(range(1000))
    firsts = [path for path in reader.requests if "/records" in path]
    assert len(firsts) == 6
    assert "first=500" in firsts[-1]


def test_a_stream_that_never_gets_on_is_given_up(reader: FakeReader) -> None:
    reader.breaks_left = 10_000
    reader.batches_before_break = 0
    client, _ = client_of(reader)
    with pytest.raises(ReaderUnreachable, match="breaks off"):
        offsets_of(client, REQUEST)


def test_offsets_come_with_every_batch_whether_asked_for_or_not(reader: FakeReader) -> None:
    client, _ = client_of(reader)
    batch = next(client.batches(REQUEST))
    assert last_offset(batch) == 99
    assert batch.schema.names == ["offset", "payload"]


def test_a_stream_left_in_the_middle_leaves_no_connection_behind(reader: FakeReader) -> None:
    client, _ = client_of(reader)
    stream = client.batches(REQUEST)
    next(stream)
    stream.close()
    assert offsets_of(client, REQUEST) == list(range(1000))


def test_nobody_there_is_said_in_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    client, _ = client_of(Endpoint("127.0.0.1", port))
    with pytest.raises(ReaderUnreachable) as caught:
        client.queues(is_fresh=False)
    text = str(caught.value)
    assert text.startswith(f"no reader answers at http://127.0.0.1:{port}: the connection is refused. Start")
    assert "\n" not in text


def test_something_else_at_that_port_is_said_in_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        client, _ = client_of(Endpoint("127.0.0.1", other.getsockname()[1], retry_s=0))

        def answer() -> None:
            connection, _ = other.accept()
            connection.recv(65536)
            connection.sendall(b"\x20\x02\x00\x00 hello\r\n\r\n")
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(MillstreamSparkError, match="is not a reader of millstream"):
            client.queues(is_fresh=False)
        thread.join()


def test_wrong_credentials_are_said_with_the_user_and_without_the_password(reader: FakeReader) -> None:
    reader.password = "ann:right"
    endpoint = endpoint_from({"uri": reader.uri})
    client, _ = client_of(replace(endpoint, user="ann", password="wrong-one"))
    with pytest.raises(ReaderRefused) as caught:
        client.queues(is_fresh=False)
    assert 'does not let the user "ann" in: user or password is wrong' in str(caught.value)
    assert "wrong-one" not in str(caught.value)
    good, _ = client_of(replace(endpoint, user="ann", password="right"))
    assert [state.name for state in good.queues(is_fresh=False)] == ["readings"]


def test_a_missing_queue_is_said_with_what_to_type(reader: FakeReader) -> None:
    client, clock = client_of(reader)
    with pytest.raises(ReaderRefused) as caught:
        client.queue("nowhere", is_fresh=False)
    assert caught.value.status == 404
    assert 'there is no queue "nowhere"' in str(caught.value)
    assert "millstream queue create nowhere --kind stream" in str(caught.value)
    assert clock.now == 0


def test_trimmed_records_are_refused_with_the_lowest_that_is_there(reader: FakeReader) -> None:
    reader.queues["readings"].first = 400
    client, _ = client_of(reader)
    with pytest.raises(ReaderRefused) as caught:
        offsets_of(client, REQUEST)
    assert (caught.value.status, caught.value.facts) == (410, {"first": 400})
    assert offsets_of(client, replace(REQUEST, is_gap_skipped=True)) == list(range(400, 1000))


def test_tls_is_spoken_to_a_reader_whose_certificate_is_trusted_and_to_no_other(tmp_path: Path) -> None:
    authority, other = trustme.CA(), trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    for name, signer in (("good.pem", authority), ("bad.pem", other)):
        signer.cert_pem.write_to_path(str(tmp_path / name))
    with FakeReader(context) as reader:
        reader.add("readings", 0, 1000)
        good, _ = client_of(endpoint_from({"uri": reader.uri, "caFile": str(tmp_path / "good.pem")}))
        assert offsets_of(good, REQUEST) == list(range(1000))
        bad, _ = client_of(endpoint_from({"uri": reader.uri, "caFile": str(tmp_path / "bad.pem")}))
        with pytest.raises(MillstreamSparkError, match=r"is not trusted.*caFile"):
            bad.queues(is_fresh=False)


def test_a_missing_file_of_certificates_is_said_in_one_sentence() -> None:
    client, _ = client_of(Endpoint("127.0.0.1", 1, is_tls=True, ca_file="nowhere.pem"))
    with pytest.raises(MillstreamSparkError, match=r"nowhere\.pem holds no certificates"):
        client.queues(is_fresh=False)


def test_bytes_for_a_batch_are_received_in_memory_of_arrow_and_end_where_the_answer_ends() -> None:
    body = AnswerBody(io.BytesIO(b"0123456789"))
    kept_before = pa.total_allocated_bytes()
    first, rest = body.read_buffer(6), body.read_buffer(6)
    assert (first.to_pybytes(), rest.to_pybytes()) == (b"012345", b"6789")
    assert pa.total_allocated_bytes() - kept_before >= 12


def test_no_memory_is_taken_for_a_batch_only_because_it_says_it_is_large() -> None:
    assert AnswerBody(io.BytesIO(b"012")).read_buffer(1 << 50).to_pybytes() == b"012"
