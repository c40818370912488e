"""A power cut takes the end of a log that is synced now and then; clients remember it. No later message may suffer for that."""

from __future__ import annotations

import pytest
from cut_world import Client, CutWorld

from millstream.model.limits import Limits
from millstream.protocols.mqtt.wire.packets import Packet, PubComp, Publish, PubRec, PubRel
from millstream.queues.definition import WORK, Definition


@pytest.fixture
def os_world() -> CutWorld:
    return CutWorld()


def make_receiver(cut_world: CutWorld, qos: int = 2, version: int = 5) -> Client:
    receiver = Client(cut_world, "receiver", version)
    receiver.connect()
    receiver.subscribe(b"t", qos)
    cut_world.sync()
    return receiver


def publish(cut_world: CutWorld, *payloads: bytes, guarantee: int = 2) -> None:
    for payload in payloads:
        cut_world.world.publish(b"t", payload, guarantee)


def take_and_forget(cut_world: CutWorld, receiver: Client, *payloads: bytes) -> None:
    """The receiver takes these, answers nothing, and the power cut takes all that the broker knows of them."""
    publish(cut_world, *payloads)
    for packet in receiver.receive():
        assert isinstance(packet, Publish)
        receiver.take(packet)
    cut_world.cut()


def releases_in(packets: list[Packet]) -> list[int]:
    return [packet.packet_id for packet in packets if isinstance(packet, PubRel)]


def answers_in(packets: list[Packet]) -> list[tuple[type[Packet], int]]:
    return [(type(packet), packet.reason) for packet in packets if isinstance(packet, PubRec | PubComp)]


# ------------------------------------------------------------------ receivers


@pytest.mark.parametrize("version", [4, 5])
def test_a_receiver_that_holds_forgotten_ids_gets_every_later_message_once(version: int) -> None:
    os_world = CutWorld()
    receiver = make_receiver(os_world, version=version)
    take_and_forget(os_world, receiver, b"1", b"2", b"3")
    assert list(receiver.taken_ids) == [1, 2, 3]
    receiver.taken_ids[600] = None  # beyond what the window needs
    receiver.connect()
    later = [b"later %d" % number for number in range(700)]
    for payload in later:
        publish(os_world, payload)
    receiver.read()
    assert receiver.messages == [b"1", b"2", b"3", *later]
    assert list(receiver.taken_ids) == [600]


def test_what_waited_for_the_receiver_comes_once_its_ids_are_free(os_world: CutWorld) -> None:
    receiver = make_receiver(os_world)
    take_and_forget(os_world, receiver, b"1")
    publish(os_world, b"queued")
    receiver.connect()
    assert not [packet for packet in receiver.receive() if isinstance(packet, Publish)]
    receiver.connect()
    receiver.read()
    assert receiver.messages == [b"1", b"queued"]


def test_releases_that_a_lost_connection_took_with_it_are_sent_again(os_world: CutWorld) -> None:
    receiver = make_receiver(os_world)
    take_and_forget(os_world, receiver, b"1", b"2")
    receiver.connect()
    publish(os_world, b"3")
    receiver.lose()
    receiver.connect()
    receiver.read()
    assert receiver.messages == [b"1", b"2", b"3"]


def test_ids_are_released_once_and_not_with_every_connection(os_world: CutWorld) -> None:
    receiver = make_receiver(os_world)
    take_and_forget(os_world, receiver, b"1")
    receiver.connect()
    assert len(releases_in(receiver.read())) == 512  # twice the window
    receiver.lose()
    receiver.connect()
    publish(os_world, b"2")
    assert releases_in(receiver.read()) == [1]  # of the message itself


def test_a_delivery_that_the_log_still_has_is_not_released_before_its_time(os_world: CutWorld) -> None:
    receiver = make_receiver(os_world)
    publish(os_world, b"1")
    (packet,) = receiver.receive()
    assert isinstance(packet, Publish)
    receiver.take(packet)
    os_world.sync()
    take_and_forget(os_world, receiver, b"2")
    receiver.connect()
    publish(os_world, b"3")
    receiver.read()
    assert receiver.messages == [b"1", b"2", b"3"]
    assert not receiver.taken_ids


def test_an_id_that_stood_for_less_before_is_released_too(os_world: CutWorld) -> None:
    receiver = make_receiver(os_world)
    publish(os_world, b"at least once", guarantee=1)
    (packet,) = receiver.receive()
    assert isinstance(packet, Publish)
    assert packet.qos == 1
    os_world.cut()  # the log knows nothing of it
    receiver.connect()
    receiver.read()
    os_world.sync()
    publish(os_world, b"open", guarantee=1)
    os_world.sync()
    os_world.cut()  # the log has it: under an id that the receiver took for another one meanwhile
    taken_id = 1
    receiver.taken_ids[taken_id] = None
    receiver.connect()
    publish(os_world, b"next")
    receiver.read()
    assert receiver.is_connected()  # its answers to releases are no answers to that delivery
    assert receiver.messages[-2:] == [b"open", b"next"]
    assert not receiver.taken_ids


def test_a_receiver_that_answers_no_unknown_release_is_not_kept_waiting(os_world: CutWorld) -> None:
    receiver = make_receiver(os_world)
    take_and_forget(os_world, receiver, b"1")
    receiver.ignores_unknown = True
    receiver.connect()
    publish(os_world, b"2")
    receiver.read()
    assert receiver.messages == [b"1"]
    os_world.world.move(5)
    receiver.read()
    assert receiver.messages == [b"1", b"2"]
    assert receiver.ids[-1] > 32_768
    assert not receiver.taken_ids
    receiver.lose()
    receiver.connect()
    os_world.world.move(5)
    receiver.lose()
    receiver.connect()
    publish(os_world, b"3")  # twice in vain is enough
    receiver.read()
    assert receiver.messages == [b"1", b"2", b"3"]


def test_a_receiver_that_answers_no_release_gets_retained_messages_too(os_world: CutWorld) -> None:
    receiver = make_receiver(os_world)
    os_world.world.publish(b"r", b"retained", 2, True)
    os_world.sync()
    os_world.cut()
    receiver.ignores_unknown = True
    receiver.connect()
    receiver.subscribe(b"r", 2)
    assert receiver.messages == []
    os_world.world.move(5)
    receiver.read()
    assert receiver.messages == [b"retained"]


def test_a_late_answer_to_a_release_ends_no_connection(os_world: CutWorld) -> None:
    receiver = make_receiver(os_world)
    take_and_forget(os_world, receiver, b"1")
    receiver.connect()
    released = releases_in(receiver.receive())
    os_world.world.move(5)
    publish(os_world, b"2")
    receiver.send(*[PubComp(packet_id) for packet_id in released])
    receiver.read()
    assert receiver.is_connected()
    assert receiver.messages == [b"1", b"2"]


def test_a_receiver_is_waited_for_as_long_as_it_answers(os_world: CutWorld) -> None:
    receiver = make_receiver(os_world)
    take_and_forget(os_world, receiver, b"1")
    receiver.connect()
    publish(os_world, b"2")
    for packet_id in releases_in(receiver.receive()):
        os_world.world.move(0.1)
        receiver.send(PubComp(packet_id))
    assert not [packet for packet in receiver.receive() if isinstance(packet, Publish)]


def test_a_receiver_that_takes_nothing_exactly_once_is_sent_no_release(os_world: CutWorld) -> None:
    receiver = make_receiver(os_world, qos=1)
    publish(os_world, b"1")
    os_world.cut()
    receiver.connect()
    publish(os_world, b"2")
    receiver.read()
    assert receiver.messages == [b"2"]
    assert not releases_in(receiver.seen)


def test_ids_are_released_when_such_a_receiver_subscribes_to_exactly_once(os_world: CutWorld) -> None:
    receiver = make_receiver(os_world, qos=1)
    os_world.cut()
    receiver.taken_ids = {1: None, 2: None}  # of a subscription that is gone
    receiver.connect()
    receiver.subscribe(b"t", 2)
    publish(os_world, b"1", b"2")
    receiver.read()
    assert receiver.messages == [b"1", b"2"]


def test_a_larger_window_has_more_ids_released() -> None:
    os_world = CutWorld(limits=Limits(inflight_max=1000))
    receiver = make_receiver(os_world)
    take_and_forget(os_world, receiver, b"1")
    receiver.connect()
    assert len(releases_in(receiver.receive())) == 256  # at a time
    receiver.connect()
    assert sorted(releases_in(receiver.read())) == list(range(1, 2001))
    publish(os_world, b"2")
    receiver.read()
    assert receiver.messages == [b"1", b"2"]


def test_nothing_of_this_happens_where_every_batch_is_synced() -> None:
    synced_world = CutWorld(with_sync=True)
    receiver = make_receiver(synced_world)
    take_and_forget(synced_world, receiver, b"1")
    receiver.connect()
    publish(synced_world, b"2")
    receiver.read()
    assert receiver.messages == [b"1", b"2"]
    assert releases_in(receiver.seen) == [1, 2]  # of the messages


# ----------------------------------------------------------------- publishers


def make_pair(cut_world: CutWorld) -> tuple[Client, Client]:
    """A receiver that is done with a message, and its publisher, whose id 7 stands for it: all that is in the log."""
    receiver = make_receiver(cut_world)
    publisher = Client(cut_world, "publisher")
    publisher.connect()
    publisher.publish(7, b"first")
    assert answers_in(publisher.receive()) == [(PubRec, 0)]
    receiver.read()
    cut_world.sync()
    return receiver, publisher


def release_and_forget(cut_world: CutWorld, publisher: Client) -> None:
    """The publisher is done with id 7, and the power cut takes all that the broker knows of it."""
    publisher.send(PubRel(7))
    assert answers_in(publisher.receive()) == [(PubComp, 0)]
    cut_world.cut()
    publisher.connect()


def read_after(receiver: Client) -> list[bytes]:
    receiver.connect()
    receiver.read()
    return receiver.messages


@pytest.mark.parametrize("payload", [b"second", b"first"])
def test_a_new_message_under_an_id_whose_release_was_forgotten_is_taken(
    os_world: CutWorld, payload: bytes
) -> None:
    receiver, publisher = make_pair(os_world)
    release_and_forget(os_world, publisher)
    publisher.publish(7, payload)
    publisher.send(PubRel(7))
    assert answers_in(publisher.receive()) == [(PubRec, 0), (PubComp, 0)]
    assert read_after(receiver) == [b"first", payload]


@pytest.mark.parametrize("is_folded", [False, True])
def test_another_message_that_is_sent_again_under_such_an_id_is_taken(
    os_world: CutWorld, is_folded: bool
) -> None:
    receiver, publisher = make_pair(os_world)
    if is_folded:
        os_world.fold()
    release_and_forget(os_world, publisher)
    publisher.publish(7, b"second", dup=True)  # its first attempt was before the cut
    assert answers_in(publisher.receive()) == [(PubRec, 0)]
    assert read_after(receiver) == [b"first", b"second"]


@pytest.mark.parametrize("is_folded", [False, True])
def test_the_same_message_that_is_sent_again_is_a_repeat(os_world: CutWorld, is_folded: bool) -> None:
    receiver, publisher = make_pair(os_world)
    if is_folded:
        os_world.fold()
    for other in (b"1", b"2"):  # after the first cut the log is to say the same
        os_world.cut()
        publish(os_world, other)
        publisher.connect()
        publisher.publish(7, b"first", dup=True)
        assert answers_in(publisher.receive()) == [(PubRec, 0)]
        publisher.lose()
        publisher.connect()
        publisher.publish(7, b"first", dup=True)
        assert answers_in(publisher.receive()) == [(PubRec, 0)]
        os_world.sync()
    publisher.send(PubRel(7))
    assert answers_in(publisher.receive()) == [(PubComp, 0)]
    os_world.sync()
    os_world.cut()
    publisher.connect()
    publisher.send(PubRel(7))
    assert answers_in(publisher.receive()) == [(PubComp, 0x92)]  # the release was kept
    assert read_after(receiver) == [b"first", b"1", b"2"]


def test_a_message_to_a_queue_is_known_again_as_well(os_world: CutWorld) -> None:
    catalog = os_world.world.account.queues.catalog
    catalog.declare("jobs", Definition(WORK))
    publisher = Client(os_world, "publisher")
    publisher.connect()
    publisher.publish(7, b"first", topic=b"$queue/jobs/a")
    publisher.publish(8, b"same", topic=b"$queue/jobs/b")
    os_world.sync()
    os_world.cut()
    publisher.connect()
    publisher.publish(7, b"first", True, b"$queue/jobs/a")
    publisher.publish(8, b"same", True, b"$queue/jobs/c")
    os_world.work()
    queue = os_world.world.account.queues.catalog.find("jobs")
    assert queue is not None
    assert queue.next == 3


def test_the_release_of_an_id_in_doubt_is_an_ordinary_one(os_world: CutWorld) -> None:
    _, publisher = make_pair(os_world)
    os_world.cut()
    publisher.connect()
    publisher.send(PubRel(7), PubRel(7))
    assert answers_in(publisher.receive()) == [(PubComp, 0), (PubComp, 0x92)]


def test_ids_that_a_publisher_is_done_with_take_no_room_from_it() -> None:
    cut_world = CutWorld(limits=Limits(receive_maximum=2))
    _, publisher = make_pair(cut_world)
    release_and_forget(cut_world, publisher)
    publisher.publish(8, b"second")
    publisher.publish(9, b"third")
    assert answers_in(publisher.receive()) == [(PubRec, 0), (PubRec, 0)]
    assert publisher.is_connected()
    publisher.publish(7, b"fourth")
    publisher.receive()
    assert not publisher.is_connected()


def test_where_every_batch_is_synced_an_id_means_what_it_did() -> None:
    synced_world = CutWorld(with_sync=True)
    receiver, publisher = make_pair(synced_world)
    synced_world.cut()
    publisher.connect()
    publisher.publish(7, b"unmarked")  # [MQTT-4.3.3-10]: until its release it is the same message
    assert answers_in(publisher.receive()) == [(PubRec, 0)]
    assert read_after(receiver) == [b"first"]
