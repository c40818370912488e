"""Segments whose names in the table are damaged stay where they fit, however many there are."""

from __future__ import annotations

from counting_disk import CountingDisk
from folded_stream import QUEUE, Stream

from millstream.storage.directory import check_queues
from millstream.storage.segments.format import segment_name
from millstream.storage.segments.inventory import LISTED, entry_key, load_lists
from millstream.storage.table.salvage import keep_unlisted


def make_unlisted() -> Stream:
    stream = Stream()
    stream.table.put(LISTED, b"\1")
    for first in stream.firsts():
        stream.table.delete(entry_key(QUEUE, first))
    assert len(stream.firsts()) > 3
    return stream


def test_whole_segments_stay_and_their_folder_is_listed_once_for_all_of_them() -> None:
    stream = make_unlisted()
    inventory = check_queues(stream.disk, stream.table)
    assert [found.first for found in inventory.faults] == stream.firsts()
    disk = CountingDisk(stream.disk)
    keep_unlisted(disk, inventory, load_lists(stream.table))
    assert inventory.faults == []
    assert disk.listed == 1


def test_one_whose_records_reach_into_the_next_does_not() -> None:
    stream = make_unlisted()
    first, second = stream.firsts()[:2]
    stream.disk.replace(segment_name(QUEUE, second - 1), stream.disk.content(segment_name(QUEUE, first)))
    inventory = check_queues(stream.disk, stream.table)
    keep_unlisted(stream.disk, inventory, load_lists(stream.table))
    assert [found.first for found in inventory.faults] == [first, second - 1]
