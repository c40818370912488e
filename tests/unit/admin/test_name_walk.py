"""Long lists by pages: one walk through the names, with turns for others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from control_world import ListenedTo

from millstream.admin.name_walk import SORTED_AT_ONCE, page_of


class Names(dict[str, None]):
    """Counts how often somebody goes through all of them."""

    walks = 0

    def __iter__(self) -> Iterator[str]:
        self.walks += 1
        return super().__iter__()


def make_names(count: int) -> Names:
    return Names({f"q{number * 7919 % count:05d}": None for number in range(count)})


async def walk(names: Names, limit: int) -> list[str]:
    conversation = ListenedTo()
    found: list[str] = []
    after, is_more = "", True
    while is_more:
        page, is_more = await page_of(names, {"after": after, "limit": limit}, conversation, "all")
        assert len(page) == limit or not is_more
        found += page
        after = page[-1]
    return found


async def test_all_pages_of_a_list_are_one_walk_through_its_names() -> None:
    names = make_names(10_000)
    assert await walk(names, 100) == sorted(names.keys())
    assert names.walks == 1


async def test_a_page_may_begin_anywhere() -> None:
    names = make_names(500)
    conversation = ListenedTo()
    for after, first in (("", 0), ("q00099", 100), ("q00099", 100), ("q00010x", 11), ("", 0)):
        page, is_more = await page_of(names, {"after": after, "limit": 50}, conversation, "all")
        assert (page[0], page[-1], is_more) == (f"q{first:05d}", f"q{first + 49:05d}", True)
    assert await page_of(names, {"after": "q00499"}, conversation, "all") == ([], False)


async def test_another_list_does_not_go_on_where_the_first_stopped() -> None:
    conversation = ListenedTo()
    await page_of(make_names(50), {"limit": 10}, conversation, "these")
    page, _ = await page_of(Names(dict.fromkeys(["x", "y"])), {"after": "q00009"}, conversation, "those")
    assert page == ["x", "y"]


async def test_others_have_turns_while_very_many_names_are_sorted() -> None:
    names = make_names(5 * SORTED_AT_ONCE)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count_turns())
    await page_of(names, {}, ListenedTo(), "all")
    other.cancel()
    assert turns >= 4
