"""Reads the file of the table page by page, as its library lays it out, and says whether that library may be let at it.

LMDB maps its file into memory and trusts every number in it: a page that is not there or points nowhere ends the process
by a signal. So before it is opened each page that can be reached is looked at here, by ordinary reads.

    page    number, flags, bounds of its free room; then nodes: branches name pages, leaves hold keys and values
    meta    pages 0 and 1: the roots of two trees (free pages, entries) as of the last two commits; the later one counts

What is checked: both meta pages; every page is inside the file, says its own number, and is reached once; nodes lie inside their
page; depth, entries and pages are as many as the meta page says; every page is either in use or free. Whether an entry
is what was put there is not: entries carry checksums of their own (runtime/disk/lmdb_table.py).

`entries` are all that could be found, whatever was found wrong: a repair keeps those whose checksum is right. One that leads
nowhere costs nothing behind it: a leaf that is neither reached nor free must be one that a damaged page had led to.
"""

from __future__ import annotations

import struct
from typing import Final, final

from millstream.storage.disk import DiskFile

MAGIC: Final = 0xBEEFC0DE
VERSION: Final = 1
META_PAGES: Final = 2
HEAD_SIZE: Final = 16
NODE_HEAD_SIZE: Final = 8
DEPTH_MAX: Final = 32
PAGE_SIZES: Final = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
BRANCH: Final = 0x01
LEAF: Final = 0x02
OVERFLOW: Final = 0x04
META: Final = 0x08
BIG_VALUE: Final = 0x01
INTEGER_KEYS: Final = 0x08
NO_PAGE: Final = 0xFFFF_FFFF_FFFF_FFFF

_HEAD: Final = struct.Struct("<QHHHH")
_META: Final = struct.Struct("<IIQQ")
_TREE: Final = struct.Struct("<IHHQQQQQ")  # pad, flags, depth, branch, leaf and overflow pages, entries, root
_LAST: Final = struct.Struct("<QQ")
_COUNT: Final = struct.Struct("<I")
_NODE: Final = struct.Struct("<HHHH")
_OFFSET: Final = struct.Struct("<H")
_NUMBER: Final = struct.Struct("<Q")


@final
class _Tree:
    def __init__(self, flags: int, depth: int, pages: int, entries: int, root: int) -> None:
        self.flags = flags
        self.depth = depth
        self.pages = pages  # of all kinds
        self.entries = entries
        self.root = root


@final
class _Meta:
    def __init__(self, page_size: int, free: _Tree, main: _Tree, last_page: int, transaction: int) -> None:
        self.page_size = page_size
        self.free = free
        self.main = main
        self.last_page = last_page
        self.transaction = transaction


@final
class TablePages:
    """`fault` is empty where the library may open the file."""

    def __init__(self, file: DiskFile, keeps_entries: bool = False) -> None:
        self._file = file
        self._keeps_entries = keeps_entries
        self._size = int(file.size())
        self._page_size = 4096
        self._last_page = 0
        self._used: dict[int, None] = {}
        self._free: dict[int, None] = {}
        self._spare: dict[int, None] = {}  # behind large values that became shorter within one commit
        self._is_free_tree = False
        self._pages = 0  # of the tree that is walked
        self._count = 0  # entries of it
        self.fault = ""
        self._faults = 0
        self.is_newest = False  # what was read is of the last commit for certain
        self.entries: list[tuple[bytes, bytes]] = []  # a key that is damaged may look like another
        self._check()

    # ------------------------------------------------------------------ meta pages

    def _check(self) -> None:
        if self._size == 0:
            self._blame("it is empty")
            return
        metas = [
            meta for meta in [self._read_meta(number) for number in range(META_PAGES)] if meta is not None
        ]
        if not metas:
            return
        meta = metas[0]
        self.is_newest = len(metas) == META_PAGES
        if self.is_newest:
            if metas[0].page_size != metas[1].page_size:
                self._blame("its first two pages differ in the size of a page")
            if metas[1].transaction > meta.transaction:
                meta = metas[1]
            if abs(metas[0].transaction - metas[1].transaction) > 1:
                self._blame("its first two pages are not of two commits in a row")
        self._page_size = meta.page_size
        self._last_page = meta.last_page
        if (meta.last_page + 1) * meta.page_size > 1 << 46:
            self._blame("it says that it is larger than a table can be")
            return
        faults = self._faults
        self._walk_tree(meta.free, True)
        are_free_known = self._faults == faults
        self._walk_tree(meta.main, False)
        if self._keeps_entries and are_free_known:
            self._read_lost_leaves()
        known = len(self._used) + len(self._free) + len(self._spare) + META_PAGES
        if not self.fault and known != meta.last_page + 1:
            self._blame(f"{meta.last_page + 1} pages are given out, and {known} are in use or free")

    def _read_meta(self, number: int) -> _Meta | None:
        """The second one lies where the first says."""
        size = HEAD_SIZE + _META.size + 2 * _TREE.size + _LAST.size
        data = self._file.read_at(number * self._page_size, size)
        if len(data) < size:
            self._blame(f"it ends in page {number}")
            return None
        found, _, flags, _, _ = _HEAD.unpack_from(data)
        magic, version, _, _ = _META.unpack_from(data, HEAD_SIZE)
        if found != number or not flags & META or magic != MAGIC:
            self._blame(f"page {number} is not the head of a table")
            return None
        if version != VERSION:
            self._blame(f"it has format {version} of its library; this release reads {VERSION}")
            return None
        at = HEAD_SIZE + _META.size
        page_size = _TREE.unpack_from(data, at)[0]
        last_page, transaction = _LAST.unpack_from(data, at + 2 * _TREE.size)
        if page_size not in PAGE_SIZES:
            self._blame(f"page {number} says that a page has {page_size} bytes")
            return None
        if number == 0:
            self._page_size = page_size
        return _Meta(
            page_size,
            _decode_tree(data, at),
            _decode_tree(data, at + _TREE.size),
            last_page,
            transaction,
        )

    # ----------------------------------------------------------------------- trees

    def _walk_tree(self, tree: _Tree, is_free_tree: bool) -> None:
        self._is_free_tree = is_free_tree
        self._pages = self._count = 0
        what = "free pages" if is_free_tree else "entries"
        if tree.flags != (INTEGER_KEYS if is_free_tree else 0):
            self._blame(f"the tree of {what} has flags {tree.flags:#x}")
        if tree.root == NO_PAGE:
            if tree.entries or tree.depth or tree.pages:
                self._blame(f"the tree of {what} has no root")
            return
        if not 1 <= tree.depth <= DEPTH_MAX:
            self._blame(f"the tree of {what} has depth {tree.depth}")
            return
        self._walk(tree.root, tree.depth, b"", b"")
        if not self.fault and self._count != tree.entries:
            self._blame(f"{self._count} {what} are there and {tree.entries} should be")
        if not self.fault and self._pages != tree.pages:
            self._blame(f"the tree of {what} has {self._pages} pages and should have {tree.pages}")

    def _walk(self, number: int, depth: int, low: bytes, high: bytes) -> None:
        """A page and all below it. Keys from `low` on, below `high`; empty: no bound."""
        data = self._take(number, 1)
        if not data:
            return
        found, _, flags, lower, upper = _HEAD.unpack_from(data)
        if found != number:
            self._blame(f"page {number} says that it is page {found}")
        if flags != (LEAF if depth == 1 else BRANCH):
            self._blame(f"page {number} is no {'leaf' if depth == 1 else 'branch'}")
            return
        if not HEAD_SIZE <= lower <= upper <= self._page_size or lower & 1:
            self._blame(f"the bounds in page {number} make no sense")
            return
        count = (lower - HEAD_SIZE) // 2
        if count < 1 or (depth > 1 and count < 2):
            self._blame(f"page {number} holds too little")
        if depth == 1:
            self._walk_leaf(number, data, count, low, high)
        else:
            self._walk_branch(number, data, count, depth, low, high)

    def _walk_branch(self, number: int, data: bytes, count: int, depth: int, low: bytes, high: bytes) -> None:
        children: list[int] = []
        keys: list[bytes] = []
        for at in range(count):
            node = self._node_at(number, data, at)
            if node < 0:
                continue
            first, second, third, key_size = _NODE.unpack_from(data, node)
            start = node + NODE_HEAD_SIZE
            if start + key_size > len(data):
                self._blame(f"a key leaves page {number}")
                continue
            children.append(first | second << 16 | third << 32)
            keys.append(b"" if at == 0 else data[start : start + key_size])
        for at in range(len(children)):
            below = low if at == 0 else keys[at]
            above = high if at + 1 == len(children) else keys[at + 1]
            if not self._is_free_tree and at + 1 < len(children) and above <= below:
                self._blame(f"the keys in page {number} are out of order")
            self._walk(children[at], depth - 1, below, above)

    def _walk_leaf(self, number: int, data: bytes, count: int, low: bytes, high: bytes) -> None:
        last = b""
        for at in range(count):
            node = self._node_at(number, data, at)
            if node < 0:
                continue
            first, second, flags, key_size = _NODE.unpack_from(data, node)
            size = first | second << 16
            start = node + NODE_HEAD_SIZE
            value_at = start + key_size
            stored = _NUMBER.size if flags == BIG_VALUE else size
            if flags not in (0, BIG_VALUE) or key_size == 0 or value_at + stored > len(data):
                self._blame(f"an entry leaves page {number}")
                continue
            key = data[start:value_at]
            if not self._is_free_tree and (key < low or (high and key >= high)):
                self._blame(f"an entry of page {number} belongs into another")
            if not self._is_free_tree and key <= last:  # whoever looks for one would not find it
                self._blame(f"the keys in page {number} are out of order")
            last = key
            self._count += 1
            if flags == BIG_VALUE:
                value = self._read_big(_NUMBER.unpack_from(data, value_at)[0], size)
            else:
                value = data[value_at : value_at + size]
            if self._is_free_tree:
                self._note_free(value)
            elif self._keeps_entries:
                self.entries.append((key, value))

    def _read_lost_leaves(self) -> None:
        """Those that no page leads to any more. What lies in a large value is none, whatever it looks like."""
        number = META_PAGES
        while number <= self._last_page:
            if number in self._used or number in self._free or number in self._spare:
                number += 1
                continue
            head = self._file.read_at(number * self._page_size, HEAD_SIZE)
            if len(head) < HEAD_SIZE:
                return
            found, _, flags, _, _ = _HEAD.unpack_from(head)
            if found == number and flags == LEAF:
                self._walk(number, 1, b"", b"")
            is_large = found == number and flags == OVERFLOW
            number += max(1, _COUNT.unpack_from(head, HEAD_SIZE - 4)[0]) if is_large else 1

    def _read_big(self, number: int, size: int) -> bytes:
        pages = (HEAD_SIZE + size + self._page_size - 1) // self._page_size
        data = self._take(number, pages)
        if not data:
            return b""
        found, _, flags, _, _ = _HEAD.unpack_from(data)
        count: int = _COUNT.unpack_from(data, HEAD_SIZE - 4)[0]
        if found != number or flags != OVERFLOW or count < pages:
            self._blame(f"page {number} is not the beginning of a large value")
        else:
            self._note_spare(number + pages, count - pages)
        if not self._is_free_tree and not self._keeps_entries:
            return b""
        if pages > 1:
            data = self._file.read_at(number * self._page_size, pages * self._page_size)
        return data[HEAD_SIZE : HEAD_SIZE + size]

    def _note_spare(self, first: int, count: int) -> None:
        """The pages a value keeps beyond those it needs. Where they cannot be its own, they are left to whoever has them."""
        if first + count > self._last_page + 1 or (first + count) * self._page_size > self._size:
            self._blame(f"the large value before page {first} has {count} more pages than there are")
            return
        spare = range(first, first + count)
        for page in spare:
            if page in self._used or page in self._free or page in self._spare:
                self._blame(f"page {page} is in use twice")
                return
        self._spare.update(dict.fromkeys(spare))
        self._pages += count

    def _note_free(self, value: bytes) -> None:
        count = _NUMBER.unpack_from(value)[0] if len(value) >= _NUMBER.size else 0
        if (count + 1) * _NUMBER.size > len(value):
            self._blame("a list of free pages is cut short")
            return
        above = self._last_page + 1
        for at in range(count):
            number = _NUMBER.unpack_from(value, (at + 1) * _NUMBER.size)[0]
            is_taken = number in self._free or number in self._used or number in self._spare
            if not META_PAGES <= number < above or is_taken:
                self._blame(f"page {number} is said to be free, and cannot be")
                return
            above = number
            self._free[number] = None

    def _node_at(self, number: int, data: bytes, at: int) -> int:
        """-1: it is outside of its page."""
        node: int = _OFFSET.unpack_from(data, HEAD_SIZE + 2 * at)[0]
        upper: int = _HEAD.unpack_from(data)[4]
        if node < upper or node & 1 or node + NODE_HEAD_SIZE > len(data):
            self._blame(f"a place in page {number} makes no sense")
            return -1
        return node

    def _take(self, number: int, pages: int) -> bytes:
        """The first of some pages, which nobody else has; nothing if they cannot be had."""
        if number < META_PAGES or number + pages > self._last_page + 1:
            self._blame(f"page {number} is not among those given out")
            return b""
        if (number + pages) * self._page_size > self._size:
            self._blame(f"page {number} is missing: the file ends at byte {self._size}")
            if not self._keeps_entries:
                return b""
        for page in range(number, number + pages):
            if page in self._used or page in self._free:
                self._blame(f"page {page} is in use twice")
                return b""
            if page in self._spare:  # the number of pages of that value may be what is damaged
                self._blame(f"page {page} is in use twice")
                del self._spare[page]
            self._used[page] = None
        self._pages += pages
        data = self._file.read_at(number * self._page_size, self._page_size)
        if len(data) < self._page_size:
            self._blame(f"page {number} cannot be read")
            return data.ljust(self._page_size, b"\0") if self._keeps_entries and data else b""
        return data

    def _blame(self, text: str) -> None:
        self._faults += 1
        if not self.fault:
            self.fault = text


def _decode_tree(data: bytes, at: int) -> _Tree:
    _, flags, depth, branches, leaves, overflows, entries, root = _TREE.unpack_from(data, at)
    return _Tree(flags, depth, branches + leaves + overflows, entries, root)
