"""One walk through many names in order, a page at a time: the control channel's long lists.

Invariants
- However many names there are, no page takes long: they are sorted in parts, with turns for others between.
- A walk shows what was there when it began; each name is looked at once.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Final

from millstream.admin.context import read_text, read_whole
from millstream.runtime.control.server import Conversation, Fields

PAGE_MAX: Final = 1000
SORTED_AT_ONCE: Final = 4000
HELD: Final = "walk"


class NameWalk:
    def __init__(self, subject: object, parts: list[list[str]], after: str) -> None:
        self.subject = subject  # what it is a walk through
        self.after = after  # where the next page begins
        self._names: Iterator[str] = heapq.merge(*parts)
        self._next: str | None = None
        self._step()

    def _step(self) -> None:
        self._next = next(self._names, None)

    def take(self, count: int) -> tuple[list[str], bool]:
        """(the next names, whether there are more)."""
        found: list[str] = []
        if self._next is not None:
            found = [self._next, *islice(self._names, count - 1)]
            self._step()
            self.after = found[-1]
        return found, self._next is not None


async def page_of(
    names: Collection[str], fields: Fields, conversation: Conversation, subject: object
) -> tuple[list[str], bool]:
    """(names of this page, whether there are more). A page that follows the one before goes on with its walk."""
    after = read_text(fields, "after", "")
    limit = read_whole(fields, "limit", PAGE_MAX, 1, PAGE_MAX)
    walk = conversation.held.get(HELD)
    if not isinstance(walk, NameWalk) or walk.subject != subject or walk.after != after or not after:
        walk = NameWalk(subject, await sort_in_parts(list(names), after), after)
        conversation.held[HELD] = walk
    found, is_more = walk.take(limit)
    if not is_more:
        conversation.held.pop(HELD, None)
    return found, is_more


async def sort_in_parts(names: list[str], after: str) -> list[list[str]]:
    parts: list[list[str]] = []
    for start in range(0, len(names), SORTED_AT_ONCE):
        if start:
            await asyncio.sleep(0)
        parts.append(sorted([name for name in names[start : start + SORTED_AT_ONCE] if name > after]))
    return parts
