"""Packet ids: free ones only, counted up, found again."""

from __future__ import annotations

from fakes import make_message

from millstream.broker.window import PACKET_ID_MAX, Window
from millstream.model.delivery import SENT, Delivery


def make_delivery(sequence: int = 0, packet_id: int = 0) -> Delivery:
    delivery = Delivery(make_message(b"t"), 1, False, (), b"")
    delivery.sequence = sequence
    delivery.packet_id = packet_id
    return delivery


def test_ids_count_up_from_one_and_an_id_is_not_used_again_at_once() -> None:
    window = Window(10)
    first = make_delivery()
    window.add(first)
    window.remove(first)
    second = make_delivery()
    window.add(second)
    assert (first.packet_id, second.packet_id) == (1, 2)


def test_ids_wrap_behind_the_last_and_pass_over_those_in_use() -> None:
    window = Window(10)
    kept = make_delivery()
    window.add(kept)
    seen = []
    for _ in range(PACKET_ID_MAX + 20):
        delivery = make_delivery()
        window.add(delivery)
        seen.append(int(delivery.packet_id))
        window.remove(delivery)
    assert max(seen) == PACKET_ID_MAX
    assert 0 not in seen
    assert 1 not in seen
    assert min(seen[-10:]) < seen[0] + PACKET_ID_MAX // 2  # it has begun anew
    assert window.find(1) is kept


def test_every_open_delivery_is_found_by_its_id_and_no_other_is() -> None:
    window = Window(1000)
    deliveries = [make_delivery(number) for number in range(500)]
    for delivery in deliveries:
        window.add(delivery)
    assert window.count == 500
    assert len({int(delivery.packet_id) for delivery in deliveries}) == 500
    for delivery in deliveries:
        assert window.find(delivery.packet_id) is delivery
    assert window.find(501) is None
    for delivery in deliveries[::2]:
        window.remove(delivery)
    assert window.in_order() == deliveries[1::2]
    assert window.find(deliveries[0].packet_id) is None


def test_order_is_that_of_the_session_not_that_of_the_ids() -> None:
    window = Window(10)
    late, early = make_delivery(7, 3), make_delivery(2, 9)
    window.put_back(late)
    window.put_back(early)
    assert window.in_order() == [early, late]


def test_restored_ids_stay_what_they_were_even_where_slots_collide() -> None:
    window = Window(100)
    ids = [1, 17, 33, 65_535, 49, 16]
    for sequence, packet_id in enumerate(ids):
        delivery = make_delivery(sequence, packet_id)
        delivery.phase = SENT
        window.put_back(delivery)
    for packet_id in ids:
        found = window.find(packet_id)
        assert found is not None
        assert found.packet_id == packet_id
    fresh = make_delivery(9)
    window.add(fresh)
    assert fresh.packet_id not in ids


def test_an_empty_window_gives_its_memory_back_but_not_its_count_of_ids() -> None:
    window = Window(10)
    delivery = make_delivery()
    window.add(delivery)
    window.shrink()
    assert window.find(1) is delivery
    window.remove(delivery)
    window.shrink()
    assert window._slots == []
    again = make_delivery()
    window.add(again)
    assert again.packet_id == 2
