"""Which bytes of the file of a table each of its entries needs: those of itself, and of the way to it.

Of a whole file, as its library lays it out (storage/table/pages.py). With all of them as they were, an entry can be read, whatever was
done to the rest: this says so without the code that a repair reads with.
"""

from __future__ import annotations

import struct
from typing import Final

from millstream.storage.table.pages import HEAD_SIZE, LEAF, META_PAGES, NODE_HEAD_SIZE

Range = tuple[int, int]

BIG_VALUE: Final = 0x01
CHECKSUM_SIZE: Final = 4  # behind every value
META_SIZE: Final = HEAD_SIZE + 24 + 2 * 48 + 16
PAGE_SIZE_AT: Final = HEAD_SIZE + 24
ROOT_AT: Final = HEAD_SIZE + 24 + 48 + 40
TRANSACTION_AT: Final = HEAD_SIZE + 24 + 2 * 48 + 8


class TableLayout:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._page_size = struct.unpack_from("<I", data, PAGE_SIZE_AT)[0]
        self.values: dict[bytes, bytes] = {}
        self.needs: dict[bytes, list[Range]] = {}  # the heads of the table first, the entry itself last
        metas = [number * self._page_size for number in range(META_PAGES)]
        newest = max(metas, key=lambda at: struct.unpack_from("<Q", data, at + TRANSACTION_AT)[0])
        root = struct.unpack_from("<Q", data, newest + ROOT_AT)[0]
        if root != (1 << 64) - 1:
            self._walk(root, [(at, at + META_SIZE) for at in metas])

    def find_readable(self, harmed: bytes) -> dict[bytes, bytes]:
        """The entries that a harmed file still gives."""
        good = {
            (start, end): harmed[start:end] == self._data[start:end]
            for needs in self.needs.values()
            for start, end in needs
        }
        return {
            key: self.values[key] for key, needs in self.needs.items() if all(good[need] for need in needs)
        }

    def _walk(self, number: int, needs: list[Range]) -> None:
        data, page = self._data, number * self._page_size
        _, _, flags, lower, _ = struct.unpack_from("<QHHHH", data, page)
        head = [*needs, (page, page + HEAD_SIZE)]
        for slot in range(page + HEAD_SIZE, page + lower, 2):
            node = page + struct.unpack_from("<H", data, slot)[0]
            first, second, third, key_size = struct.unpack_from("<HHHH", data, node)
            key_end = node + NODE_HEAD_SIZE + key_size
            way = [*head, (slot, slot + 2), (node, key_end)]
            if not flags & LEAF:
                self._walk(first | second << 16 | third << 32, way)
                continue
            at, size = key_end, first | second << 16
            if third & BIG_VALUE:
                way.append((key_end, key_end + 8))
                big = struct.unpack_from("<Q", data, key_end)[0] * self._page_size
                way.append((big, big + HEAD_SIZE))
                at = big + HEAD_SIZE
            key = data[node + NODE_HEAD_SIZE : key_end]
            self.values[key] = data[at : at + size - CHECKSUM_SIZE]
            self.needs[key] = [*way, (at, at + size)]
