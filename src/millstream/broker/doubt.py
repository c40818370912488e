"""After a start that may lack the end of the log: the client of a session can know more than the broker does.

A receiver keeps the id of what it was given exactly once until that is released. Were the id given to another message
before, it would take that one for a repeat and drop it. So the ids a session is going to use are released first, known or
not: a receiver answers that for any id [MQTT-4.3.3-11], and holds none of them then. Until it has answered it is sent
nothing numbered; from there on the session keeps to these ids. One that does not answer is not waited for long: it gets ids
from far off.

A publisher may be done with ids that the broker holds for received, and use them again. What it sends for the first time
is not marked as a repeat, what it sends again on another connection is [MQTT-3.3.1-1]. That may be a message the broker has
forgotten, under an id it knows from another one: their content tells them apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.broker.window import PACKET_ID_MAX
from millstream.storage.records.received_message import make_digest
from millstream.storage.store import StoredSession

if TYPE_CHECKING:
    from millstream.broker.session import Session

PATIENCE_NS: Final[i64] = 5_000_000_000  # since the last answer
TRIES: Final[i64] = 2  # a connection that died meanwhile says nothing about the receiver
UNANSWERED_MAX: Final = 256  # releases at a time
FREE_MIN: Final[i64] = 16
FAR_OFF: Final[i64] = 32_768


@final
class Doubts:
    """Sessions that wait for the answers of their receivers, and until when."""

    def __init__(self) -> None:
        self._due_ns: dict[Session, int] = {}

    def wait(self, session: Session, due_ns: i64) -> None:
        self._due_ns[session] = int(due_ns)

    def forget(self, session: Session) -> None:
        self._due_ns.pop(session, None)

    def on_tick(self, now_ns: i64) -> None:
        if not self._due_ns:
            return
        due = [session for session, due_ns in self._due_ns.items() if due_ns <= now_ns]
        for session in due:
            del self._due_ns[session]
            if session.doubt is not None:
                session.doubt.give_up(session)


@final
class Doubt:
    def __init__(self, doubts: Doubts, stored: StoredSession) -> None:
        self._doubts = doubts
        digests = stored.received_digests
        # what the publisher may be done with: the digest of what came under an id, 0 where that is not known
        self._received_ids = {packet_id: digests.get(packet_id, 0) for packet_id in stored.received_ids}
        # whether the receiver was given something exactly once, and may have been given more of it
        self._is_exact = any([delivery.guarantee == 2 for delivery in stored.deliveries.values()])
        self._is_waiting = False
        self._tries: i64 = TRIES
        self._limit: i64 = 0  # of the window, once there are ids to use
        self._free: i64 = 0  # the receiver holds none of the ids up to here
        self._released: i64 = 0  # up to here they are on their way
        self._wanted: i64 = 0
        self._unanswered: dict[int, int] = {}

    # --------------------------------------------------------------- receiver

    def on_attached(self, session: Session) -> None:
        """A connection resumes the session: what another one did not answer is asked for again."""
        self._is_waiting = False
        self._clear(session)

    def on_subscribed(self, session: Session) -> None:
        if not self._is_waiting and session.line is not None:
            self._clear(session)

    def on_completed(self, session: Session, packet_id: i64) -> bool:
        """The receiver has let go of an id; False when it was not asked to."""
        if self._unanswered.pop(int(packet_id), -1) == -1:
            return False
        if self._is_waiting:
            self._doubts.wait(session, session.account.clock.now_ns + PATIENCE_NS)
            self._release_more(session)
        return True

    def give_up(self, session: Session) -> None:
        """No answer: it may have let go without a word, or keep ids for ever."""
        line = session.line
        if not self._is_waiting or line is None:
            return
        self._tries -= 1
        session.window.use_ids(PACKET_ID_MAX, FAR_OFF)
        self._open(session)
        for packet_id in self._unanswered:
            line.transmit_release(packet_id)  # the flush goes on with what is retained
            break

    def _clear(self, session: Session) -> None:
        window = session.window
        wanted: i64 = 2 * window.limit
        if wanted < FREE_MIN:
            wanted = FREE_MIN
        elif wanted > PACKET_ID_MAX:
            wanted = PACKET_ID_MAX
        if self._tries == 0 or wanted <= self._free or not self._is_concerned(session):
            return
        self._is_waiting = True
        self._wanted = wanted
        self._released = self._free
        self._unanswered = {}
        self._limit = window.limit
        window.limit = 0
        self._doubts.wait(session, session.account.clock.now_ns + PATIENCE_NS)
        self._release_more(session)

    def _is_concerned(self, session: Session) -> bool:
        """One that takes nothing exactly once is never sent a release: it may not even know them."""
        if not self._is_exact:
            for subscription in session.subscriptions.all():
                if subscription.guarantee == 2:
                    self._is_exact = True
        return self._is_exact

    def _release_more(self, session: Session) -> None:
        line = session.line
        assert line is not None
        while self._released < self._wanted and len(self._unanswered) < UNANSWERED_MAX:
            self._released += 1
            delivery = session.window.find(self._released)
            if delivery is None or delivery.guarantee != 2:  # the others are released when it is their time
                self._unanswered[int(self._released)] = 0
                line.transmit_release(self._released)
        if not self._unanswered:
            self._free = self._wanted
            session.window.use_ids(self._free, 0)
            self._doubts.forget(session)
            self._open(session)

    def _open(self, session: Session) -> None:
        self._is_waiting = False
        session.window.limit = self._limit
        session.drain()

    # -------------------------------------------------------------- publisher

    def take_repeat(self, packet_id: i64, is_marked: bool, topic: bytes, payload: bytes) -> bool:
        """Whether a publish is the one that was received under this id before. In doubt no longer, either way."""
        digest = self._received_ids.pop(int(packet_id), -1)
        if digest == -1 or not is_marked:
            return False
        return digest == 0 or digest == make_digest(topic, payload)

    def forget(self, packet_id: i64) -> bool:
        return self._received_ids.pop(int(packet_id), -1) != -1
