"""Clients of the crash harness keep across connections what MQTT asks a client to keep."""

from __future__ import annotations

from crash.client import Client
from crash.consumer import Reader, Worker
from crash.journal import DELIVERED, QOS1, QOS2, SETTLED, STREAM, WORK, Journal
from crash.label import encode_label
from crash.publisher import WINDOW, Publisher
from crash.subscriber import Subscriber
from millstream.protocols.mqtt.wire.packets import ConnAck, Packet, PubAck, PubComp, Publish, PubRec, PubRel
from millstream.protocols.mqtt.wire.properties import Properties


class Sent:
    """What a client sends, without a broker."""

    def __init__(self, client: Client) -> None:
        self.packets: list[Packet] = []
        client.send = self.send  # type: ignore[method-assign]

    def send(self, *packets: Packet) -> None:
        self.packets += packets

    def take(self) -> list[Packet]:
        packets, self.packets = self.packets, []
        return packets


def welcome(client: Client, is_present: bool = False) -> None:
    client.on_packet(ConnAck(is_present, 0))


def deliver(label: tuple[str, str, int], packet_id: int, qos: int, offset: int | None = None) -> Publish:
    properties = Properties()
    if offset is not None:
        properties.user_properties = [
            (b"message-id", b"q:%d" % offset),
            (b"group-id", b"group"),
            (b"offset", b"%d" % offset),
        ]
    return Publish(b"t", encode_label(label), qos, packet_id=packet_id, properties=properties)


def test_a_publisher_repeats_in_order_what_was_not_confirmed() -> None:
    journal = Journal(QOS1, QOS1, ())
    publisher = Publisher(journal, "p", ["a", "b"], 1)
    sent = Sent(publisher)
    publisher.left = 4
    welcome(publisher)
    first = [packet.payload for packet in sent.take() if isinstance(packet, Publish)]
    publisher.on_packet(PubAck(2))
    publisher.leave()
    welcome(publisher, True)
    again = [packet for packet in sent.take() if isinstance(packet, Publish)]
    assert [packet.payload for packet in again] == [first[0], first[2], first[3]]
    assert all(packet.dup for packet in again)
    assert list(journal.confirmed) == [("p", "b", 1)]
    assert journal.sent == {("p", "a", 1): 2, ("p", "b", 1): 1, ("p", "a", 2): 2, ("p", "b", 2): 2}


def test_a_publisher_never_has_more_open_than_its_window() -> None:
    publisher = Publisher(Journal(QOS1, QOS1, ()), "p", ["a"], 1)
    sent = Sent(publisher)
    publisher.left = -1
    welcome(publisher)
    assert len(sent.take()) == WINDOW
    publisher.on_packet(PubAck(1))
    assert len(sent.take()) == 1


def test_exactly_once_repeats_the_release_alone_when_the_message_was_received() -> None:
    publisher = Publisher(Journal(QOS2, QOS2, ()), "p", ["a"], 2)
    sent = Sent(publisher)
    publisher.left = 2
    welcome(publisher)
    publisher.on_packet(PubRec(1))
    sent.take()
    publisher.leave()
    welcome(publisher, True)
    release, repeat = sent.take()
    assert release == PubRel(1)
    assert isinstance(repeat, Publish)
    publisher.on_packet(PubComp(1))
    publisher.on_packet(PubRec(2))
    publisher.on_packet(PubComp(2))
    assert publisher.is_finished()


def test_a_subscriber_takes_an_open_id_once() -> None:
    label = ("p", "t", 1)
    journal = Journal(QOS2, QOS2, ("s",))
    journal.note_sent(label)
    subscriber = Subscriber(journal, "s", "#", 2)
    Sent(subscriber)
    welcome(subscriber)
    subscriber.on_packet(deliver(label, 7, 2))
    subscriber.leave()
    welcome(subscriber, True)
    subscriber.on_packet(deliver(label, 7, 2))
    assert len(journal.steps) == 1
    subscriber.on_packet(PubRel(7))
    subscriber.on_packet(deliver(label, 7, 2))
    assert len(journal.steps) == 2


def test_a_session_must_be_there_once_something_was_confirmed() -> None:
    journal = Journal(QOS1, QOS1, ())
    publisher = Publisher(journal, "p", ["a"], 1)
    Sent(publisher)
    publisher.left = 1
    welcome(publisher)
    publisher.leave()
    welcome(publisher)  # nothing was confirmed: it may be there or not
    publisher.on_packet(PubAck(1))
    publisher.leave()
    welcome(publisher, True)
    assert journal.presences == [("p", False, False), ("p", True, True)]


def test_a_settlement_counts_when_the_broker_confirmed_it() -> None:
    label = ("p", "t", 1)
    journal = Journal(WORK, "q", ("group",))
    journal.note_sent(label)
    worker = Worker(journal, "w", "q", "group", 5, True)
    sent = Sent(worker)
    welcome(worker)
    sent.take()
    worker.on_packet(deliver(label, 3, 1, offset=9))
    answer, receipt = sent.take()
    assert isinstance(answer, Publish)
    assert (answer.topic, receipt) == (b"$queue/q/$ack", PubAck(3))
    assert journal.steps == [(DELIVERED, "group", label, 9)]
    worker.on_packet(PubAck(answer.packet_id))
    assert journal.steps[1:] == [(SETTLED, "group", label, 9)]
    worker.on_packet(deliver(label, 4, 1, offset=9))
    worker.leave()
    worker.on_packet(PubAck(answer.packet_id + 1))
    assert len(journal.steps) == 3  # its confirm was lost with the connection


def test_a_reader_commits_now_and_then() -> None:
    journal = Journal(STREAM, "q", ("group",))
    reader = Reader(journal, "r", "q", "group", True)
    sent = Sent(reader)
    welcome(reader)
    for number in range(20):
        journal.note_sent(("p", "t", number))
        reader.on_packet(deliver(("p", "t", number), number + 1, 1, offset=number))
    commits = [packet for packet in sent.take() if isinstance(packet, Publish)]
    assert [packet.topic for packet in commits] == [b"$queue/q/$commit"]
    reader.on_packet(PubAck(commits[0].packet_id))
    assert journal.steps[-1] == ("committed", "group", None, 19)
