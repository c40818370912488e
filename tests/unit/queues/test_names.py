"""Names of queues inside topics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from queue_world import QueueBroker, QueueWorld

from millstream.model.errors import Reason
from millstream.model.routing_key import topic_of_publish
from millstream.model.topic import find_topic_fault
from millstream.queues.names import queue_prefix, quote_name, split_queue_topic, unquote_name

NAMES = st.text(
    st.characters(min_codepoint=32, exclude_characters="\x7f", exclude_categories=["Cs"]),
    min_size=1,
    max_size=60,
).filter(lambda name: not name.startswith("$"))


@given(NAMES, st.booleans())
def test_every_name_is_one_legal_level_and_comes_back(name: str, is_dead_letter: bool) -> None:
    level = quote_name(name)
    assert not {b"/", b"+", b"#"} & {level[at : at + 1] for at in range(len(level))}
    assert unquote_name(level) == name
    full = "$dlq/" + name if is_dead_letter else name
    topic = queue_prefix(full)
    assert split_queue_topic(topic) == (full, b"")
    assert split_queue_topic(topic + b"/a/b") == (full, b"a/b")
    fault = find_topic_fault(topic, 65_535, 128)
    assert fault is None or "non-character" in fault or "control" in fault.lower()


@given(NAMES)
def test_a_key_of_the_default_exchange_names_the_same_queue(name: str) -> None:
    assert split_queue_topic(topic_of_publish(b"", name.encode())) == (name, b"")


@pytest.mark.parametrize(
    ("level", "name"),
    [
        (b"plain", "plain"),
        (b"a%2Fb", "a/b"),
        (b"a%2fb", "a/b"),
        (b"%25", "%"),
        (b"%252F", "%2F"),
        (b"100%", "100%"),
        (b"%zz%4", "%zz%4"),
        (b"%%41", "%A"),
        (b"%C3%A9", "é"),
        (b"\xff", "\ufffd"),
    ],
)
def test_a_percent_sign_that_quotes_nothing_stands_for_itself(level: bytes, name: str) -> None:
    assert unquote_name(level) == name


def test_a_queue_whose_name_has_levels_is_reached_through_a_topic() -> None:
    world = QueueBroker()
    queue = world.declare("tasks/eu+1 #%")
    session, _ = world.connect("c")
    world.consume(session, queue_prefix(queue.name))
    assert world.put(b"x", topic=queue_prefix(queue.name) + b"/key") == [Reason.SUCCESS]
    assert queue.counters.appended == 1
    assert world.queue("tasks/eu+1 #%").unsettled() == 1


def test_its_dead_letters_and_restart_keep_the_name() -> None:
    world = QueueWorld()
    queue = world.declare("a/b")
    world.fill(queue, 1)
    assert world.queue("a/b").delivery_topic(b"t") == b"$queue/a%2Fb/t"
    world.restart()
    assert world.join(world.queue("a/b")).payloads() == [b"0"]
