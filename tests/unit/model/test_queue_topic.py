"""Names of queues inside topics."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from queue_world import QueueBroker, QueueWorld

from millstream.model.errors import Reason
from millstream.model.queue_topic import (
    find_spelling_fault,
    make_canonical,
    queue_prefix,
    quote_name,
    split_queue_topic,
    unquote_name,
)
from millstream.model.routing_key import topic_of_publish
from millstream.model.topic import find_topic_fault

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


# ------------------------------------------------------------------ spellings


@given(NAMES, st.booleans(), st.sampled_from([b"", b"/a", b"/#", b"/$ack", b"//"]))
def test_a_topic_made_of_a_name_is_the_one_spelling(name: str, is_dead_letter: bool, rest: bytes) -> None:
    topic = queue_prefix("$dlq/" + name if is_dead_letter else name) + rest
    assert find_spelling_fault(topic) is None
    assert make_canonical(topic) == topic


@pytest.mark.parametrize(
    ("topic", "canonical"),
    [
        (b"$queue/secre%74", b"$queue/secret"),
        (b"$queue/a%2fb/key", b"$queue/a%2Fb/key"),
        (b"$queue/a%252fb%2f", b"$queue/a%252fb%2F"),
        (b"$queue/100%", b"$queue/100%25"),
        (b"$queue/%C3%A9", "$queue/é".encode()),
        (b"$queue/$dlq/x/$ack", b"$dlq/x/$ack"),
        (b"$dlq/%78", b"$dlq/x"),
        (b"$queue/%24dlq/x", b"$queue/$dlq/x"),
        (b"$queue/$dlq%2Fx", b"$dlq/x"),
        (b"$queue/%24dlq%2fx/$ack", b"$dlq/x/$ack"),
    ],
)
def test_any_other_spelling_is_a_fault_that_names_the_right_one(topic: bytes, canonical: bytes) -> None:
    fault = find_spelling_fault(topic)
    assert fault is not None
    assert canonical.decode() in fault


@pytest.mark.parametrize(
    "topic", [b"a%2fb", b"$SYS/%41", b"queue/a%41", b"$queue", b"$queue/+/x", b"$queue/#", b"$dlq/a%2Fb"]
)
def test_only_topics_of_queues_are_spelled(topic: bytes) -> None:
    assert find_spelling_fault(topic) is None
    assert make_canonical(topic) == topic


@example("$dlq%2Fx", "$queue/")
@given(st.text(st.sampled_from("a%4162fF$é"), min_size=1, max_size=9), st.sampled_from(["$queue/", "$dlq/"]))
def test_two_topics_without_a_fault_never_name_one_queue(level: str, prefix: str) -> None:
    topic = (prefix + level).encode()
    place = split_queue_topic(topic)
    assert place is not None
    if find_spelling_fault(topic) is None:
        assert queue_prefix(place[0]) == topic
