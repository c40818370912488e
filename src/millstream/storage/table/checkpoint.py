"""Checkpoints: sealed files of the log folded into a table of small state, so that the log can be cut.

Every entry holds the body of the fact that made it, so that loading is applying. Nothing here looks at the running
broker: a checkpoint reads files that will not change and writes a table nobody reads meanwhile, and can be done by
another process.

    m <message>            uses, body           s <session>              body
    u <session> <filter>   body                 d <session> <sequence>   body
    i <session> <id>       body, digest         w <session>              body
    r <account> 0 <topic>  body                 q <queue>                state
    x <queue>              its segments are to be removed
    b <account> 0 <query>  how far its batches are published
    g <queue> <first>      a segment that must be there (segments/inventory.py)
    e <account> 0 <name>   body of an exchange  k <binding>              body
    0 meta                 last sequence, file  0 gap <queue> <first>    last offset of what no record has (offset_gaps.py)
    0 lost ...             lost_offsets.py
    0 identity             of the directory     0 manifest               generation of the manifest at that time
    0 segments             every segment is named here
    0 listed               meta when that was last so

Records of queues go to their segments instead, which are made safe before the table is.

Names longer than a key may be are replaced by their digest; the body holds them whole.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final, final

from millstream.storage.disk import DiskFault
from millstream.storage.log.format import Record
from millstream.storage.lost_offsets import LostOffsets
from millstream.storage.offset_gaps import forget_gaps, load_all_gaps, remove_gaps
from millstream.storage.records import batch_records, exchange_records, queue_records, session_records
from millstream.storage.records.batch_records import StageFold
from millstream.storage.records.exchange_records import ExchangeFold
from millstream.storage.records.fold import PLACEHOLDER, Fold
from millstream.storage.records.received_message import LastMessage
from millstream.storage.records.stored_queue import QueueFold, StoredQueue, decode_state, encode_state
from millstream.storage.segments.inventory import LISTED, load_list, remove_list
from millstream.storage.segments.writer import SegmentWriter
from millstream.storage.table.pending import PendingTable
from millstream.storage.table.port import Table

_KEY: Final = struct.Struct(">Q")
_PAIR: Final = struct.Struct(">QQ")
_USES: Final = struct.Struct("<I")
_META: Final = struct.Struct("<QQ")
META: Final = b"\0meta"
_SESSION_KINDS: Final = (
    session_records.SESSION_SAVED,
    session_records.SESSION_REMOVED,
    session_records.SUBSCRIPTION_SAVED,
    session_records.SUBSCRIPTION_REMOVED,
    session_records.ID_RECEIVED,
    session_records.ID_RELEASED,
)
LAST_QUEUE: Final = b"\0queue"
IDENTITY: Final = b"\0identity"
GENERATION: Final = b"\0manifest"  # of the manifest that was in force when the table was last written
LISTED_AT: Final = (
    b"\0listed"  # another meta than that of the table: a release that names no segments has written it since
)
KEY_SIZE_MAX: Final = 400  # of the part that comes from outside; tables have a bound near 500


@final
class Checkpoint:
    """`counts_lost`: where facts are missing in the log, offsets may be missing with them; a repair counts those by itself."""

    def __init__(self, table: Table, segments: SegmentWriter, counts_lost: bool = True) -> None:
        self._table = PendingTable(table)
        self._segments = segments
        self.orphans = 0
        self._queues = QueueFold()
        self._appended: list[bytes] = []
        load_queues(table, self._queues)
        segments.resume({number: queue.next for number, queue in self._queues.queues.items()})
        # uses of messages as of now, where the table does not say it yet; 0: nobody has named it
        self._uses: dict[int, int] = {}
        self._known: dict[int, None] = {}  # sessions that are there, as far as they were asked for
        self._last_message = LastMessage()
        self.last_sequence, self.file = read_meta(table)
        self._is_listed = are_segments_listed(table)
        self._counts_lost = counts_lost
        self._lost = LostOffsets(self._queues)
        self._lost.load(table)

    def apply(self, record: Record) -> None:
        if record.sequence <= self.last_sequence:
            return  # folded before
        if record.sequence > self.last_sequence + 1:
            self.pass_lost(int(record.sequence) - 1)
        self.last_sequence = int(record.sequence)
        kind = int(record.kind)
        body = record.body
        if kind == session_records.MESSAGE:
            self._last_message.note(kind, body)
            self._uses[self.last_sequence] = 0
            self._table.add(b"m" + _KEY.pack(self.last_sequence), _USES.pack(0) + body)
        elif queue_records.FIRST_KIND <= kind <= queue_records.LAST_KIND:
            self._queues.apply(kind, body)
            if kind == queue_records.RECORD_APPENDED:
                self._last_message.note(kind, body)
                self._appended.append(body)
        elif batch_records.FIRST_KIND <= kind <= batch_records.LAST_KIND:
            self._apply_stage(kind, body)
        elif exchange_records.FIRST_KIND <= kind <= exchange_records.LAST_KIND:
            self._apply_exchange(kind, body)
        elif kind in (
            session_records.DELIVERY_ADDED,
            session_records.DELIVERY_ADVANCED,
            session_records.DELIVERY_REMOVED,
        ):
            self._apply_delivery(kind, body)
        elif kind in (session_records.RETAINED_SAVED, session_records.RETAINED_REMOVED):
            self._apply_retained(kind, body)
        elif kind in (session_records.WILL_SAVED, session_records.WILL_REMOVED):
            self._apply_will(kind, body)
        else:
            self._apply_session(kind, body)

    def pass_lost(self, last_sequence: int) -> None:
        """Nothing more comes of the facts up to this one."""
        if self._counts_lost:
            self._lost.on_gap(self.last_sequence + 1, last_sequence)
        self.last_sequence = last_sequence

    def note_manifest(self, generation: int) -> None:
        """Goes with the next commit: an older manifest is found by it."""
        self._table.put(GENERATION, _KEY.pack(generation))

    def finish(self, file: int) -> None:
        """Everything up to `file` is in the table: make it so."""
        self._write_uses()
        self._queues.pass_gaps()
        self._write_segments()
        for number in self._queues.removed:
            self._table.delete(b"q" + _KEY.pack(number))
            self._table.put(b"x" + _KEY.pack(number), b"")
            remove_gaps(self._table, number)
            remove_list(self._table, number)
        lists = {number: load_list(self._table, number) for number in self._queues.changed}
        for number in self._queues.changed:
            queue = self._queues.queues[number]
            self._table.put(b"q" + _KEY.pack(number), encode_state(queue))
            self._segments.list_kept(self._table, number, queue.low_mark(), lists[number])
            if queue.gaps.count:
                forget_gaps(self._table, number, queue.low_mark())
        self._lost.store(self._table, self.last_sequence)
        self._table.put(LAST_QUEUE, _KEY.pack(self._queues.last_number))
        self._table.put(META, _META.pack(self.last_sequence, file))
        if self._is_listed:
            note_listed(self._table)
        self._table.commit()
        self.file = file

    def _knows(self, session: int) -> bool:
        """Facts about a session that is not there can only come behind damage: its number may be another's later."""
        if session in self._known:
            return True
        if self._table.get(b"s" + _KEY.pack(session)) is None:
            self.orphans += 1
            return False
        self._known[session] = None
        return True

    def drop_segments(self) -> None:
        """Remove what nobody needs any more; only after `finish` has made that so."""
        removed = self._table.items(b"x")
        for key, _ in removed:
            self._segments.remove(_KEY.unpack(key[1:])[0])
            self._table.delete(key)
        if removed:
            self._table.commit()  # the next checkpoint is another object and would find them again; removing twice does no harm
        for number in self._queues.changed:
            self._segments.drop_below(number, self._queues.queues[number].low_mark())
        self._queues.removed.clear()
        self._queues.changed.clear()

    def _write_segments(self) -> None:
        """Only what is still needed: most records of a busy queue are settled before they get here."""
        low: dict[int, int] = {
            number: self._queues.queues[number].low_mark() for number in self._queues.changed
        }
        for number in low:
            self._segments.open(number)  # what a checkpoint that died left behind its last commit goes
        for body in self._appended:
            number, offset = queue_records.record_place(body)
            if number in low and offset >= low[number]:
                self._segments.append(number, body)
        self._appended.clear()
        self._segments.finish()

    def _apply_stage(self, kind: int, body: bytes) -> None:
        key = query_entry(*batch_records.query_key(kind, body))
        stored = self._table.get(key)
        before = None if stored is None else batch_records.decode_query(stored)
        query = batch_records.apply_fact(before, kind, body)
        if query is not None:
            self._table.put(key, batch_records.encode_query(query))
        elif stored is not None:
            self._table.delete(key)
        else:
            self.orphans += 1

    def _apply_exchange(self, kind: int, body: bytes) -> None:
        if kind == exchange_records.BINDING_OWNED:
            self._add_owner(body)
            return
        is_binding = kind in (exchange_records.BINDING_SAVED, exchange_records.BINDING_REMOVED)
        key = binding_entry(body) if is_binding else exchange_entry(body)
        if is_binding and self._table.get(owners_entry(body)) is not None:
            self._table.delete(owners_entry(body))
        if kind in (exchange_records.EXCHANGE_SAVED, exchange_records.BINDING_SAVED):
            self._table.put(key, body)
        elif self._table.get(key) is not None:
            self._table.delete(key)
        else:
            self.orphans += 1

    def _add_owner(self, body: bytes) -> None:
        added, binding = exchange_records.decode_owners(body)
        key = owners_entry(binding)
        before = self._table.get(key)
        owners = [] if before is None else exchange_records.decode_owners(before)[0]
        for owner in added:
            exchange_records.add_owner(owners, owner)
        self._table.put(binding_entry(binding), binding)
        self._table.put(key, exchange_records.encode_owners(owners, binding))

    def _apply_session(self, kind: int, body: bytes) -> None:
        if kind not in _SESSION_KINDS:
            raise session_records.FactFault(f"this release knows no facts of kind {kind}")
        number = session_records.decode_number(body)
        key = _KEY.pack(number)
        if kind == session_records.SESSION_SAVED:
            self._table.put(b"s" + key, body)
        elif not self._knows(number):
            return
        elif kind == session_records.SESSION_REMOVED:
            self._remove_session(key)
        elif kind == session_records.SUBSCRIPTION_SAVED:
            self._table.put(b"u" + key + to_key(session_records.decode_subscription(body)[1].name), body)
        elif kind == session_records.SUBSCRIPTION_REMOVED:
            self._table.delete(b"u" + key + to_key(session_records.decode_named(body)[1]))
        elif kind == session_records.ID_RECEIVED:
            marked = session_records.with_digest(body, self._last_message.digest())
            self._table.put(b"i" + _PAIR.pack(*session_records.decode_id(body)), marked)
        else:
            self._table.delete(b"i" + _PAIR.pack(*session_records.decode_id(body)))

    def _apply_delivery(self, kind: int, body: bytes) -> None:
        if kind == session_records.DELIVERY_ADDED:
            number, sequence, message = session_records.delivery_place(body)
            if not self._knows(number) or not self._has_message(message):
                self.orphans += 1
                return
            self._table.put(b"d" + _PAIR.pack(number, sequence), body)
            self._change_uses(message, 1)
            return
        if kind == session_records.DELIVERY_ADVANCED:
            number, sequence, phase, packet_id = session_records.decode_advance(body)
        else:
            number, sequence = session_records.decode_pair(body)
            phase, packet_id = 0, 0
        key = b"d" + _PAIR.pack(number, sequence)
        old = self._table.get(key)
        if old is None:
            return
        if kind == session_records.DELIVERY_ADVANCED:
            fact = session_records.decode_delivery(old, PLACEHOLDER)
            fact.delivery.phase = phase
            fact.delivery.packet_id = packet_id
            self._table.put(key, session_records.encode_delivery(fact.session, fact.message, fact.delivery))
        else:
            self._table.delete(key)
            self._change_uses(session_records.delivery_place(old)[2], -1)

    def _apply_retained(self, kind: int, body: bytes) -> None:
        if kind == session_records.RETAINED_SAVED:
            account, message = session_records.decode_retained(body)
            stored = self._table.get(b"m" + _KEY.pack(message))
            if stored is None:
                return
            topic = session_records.decode_message(stored[_USES.size :], 0).topic
        else:
            account, topic = session_records.decode_topic(body)
            message = 0
        key = b"r" + to_key(account.encode() + b"\0" + topic)
        old = self._table.get(key)
        if message:
            self._change_uses(message, 1)
            self._table.put(key, body)
        elif old is not None:
            self._table.delete(key)
        if old is not None:
            self._change_uses(session_records.decode_retained(old)[1], -1)

    def _apply_will(self, kind: int, body: bytes) -> None:
        if not self._knows(session_records.decode_number(body)):
            return
        key = b"w" + _KEY.pack(session_records.decode_number(body))
        old = self._table.get(key)
        if kind == session_records.WILL_SAVED:
            message = session_records.decode_will(body).message
            if self._table.get(b"m" + _KEY.pack(message)) is None:
                self.orphans += 1  # as for a fold: the one before stays
                return
            self._change_uses(message, 1)
            self._table.put(key, body)
        elif old is not None:
            self._table.delete(key)
        if old is not None:
            self._change_uses(session_records.decode_will(old).message, -1)

    def _remove_session(self, key: bytes) -> None:
        table = self._table
        will = table.get(b"w" + key)
        if will is not None:
            table.delete(b"w" + key)
            self._change_uses(session_records.decode_will(will).message, -1)
        for name, body in table.items(b"d" + key):
            table.delete(name)
            self._change_uses(session_records.delivery_place(body)[2], -1)
        for prefix in (b"u", b"i"):
            for name, _ in table.items(prefix + key):
                table.delete(name)
        table.delete(b"s" + key)
        self._known.clear()

    def _has_message(self, message: int) -> bool:
        return message in self._uses or self._table.get(b"m" + _KEY.pack(message)) is not None

    def _change_uses(self, message: int, change: int) -> None:
        uses = self._uses.get(message)
        if uses is None:
            stored = self._table.get(b"m" + _KEY.pack(message))
            if stored is None:
                return
            before: int = _USES.unpack_from(stored)[0]
            uses = before
        uses += change
        if uses > 0:
            self._uses[message] = uses
        else:
            self._uses.pop(message, None)
            self._table.delete(b"m" + _KEY.pack(message))

    def _write_uses(self) -> None:
        """Most messages are settled before this: only what is left is written once more."""
        for message, uses in self._uses.items():
            key = b"m" + _KEY.pack(message)
            stored = self._table.get(key)
            if stored is not None and uses:
                self._table.put(key, _USES.pack(uses) + stored[_USES.size :])
            else:
                self._table.delete(key)
        self._uses.clear()
        self._known.clear()


def to_key(name: bytes) -> bytes:
    return name if len(name) <= KEY_SIZE_MAX else b"\xff" + hashlib.sha256(name).digest()


def query_entry(account: str, query: str) -> bytes:
    return b"b" + to_key(account.encode() + b"\0" + query.encode())


def exchange_entry(body: bytes) -> bytes:
    account, name = exchange_records.decode_exchange_name(body)
    return b"e" + to_key(account.encode() + b"\0" + name.encode())


def binding_entry(body: bytes) -> bytes:
    return b"k" + to_key(body)


def owners_entry(binding: bytes) -> bytes:
    return b"o" + to_key(binding)


def read_meta(table: Table) -> tuple[int, int]:
    """(last sequence, last file) folded into the table."""
    meta = table.get(META)
    return (0, 0) if meta is None else decode_meta(meta)


def decode_meta(meta: bytes) -> tuple[int, int]:
    last, file = _META.unpack(meta)
    return last, file


def put_meta(table: Table, last_sequence: int, file: int) -> None:
    table.put(META, _META.pack(last_sequence, file))


def are_segments_listed(table: Table) -> bool:
    """Whether every segment is named, as of the last commit."""
    return table.get(LISTED) is not None and table.get(LISTED_AT) in (None, table.get(META) or b"")


def note_listed(table: Table) -> None:
    """The names are those of this commit, whose meta has been put."""
    table.put(LISTED_AT, table.get(META) or b"")


def put_queue(table: Table, queue: StoredQueue) -> None:
    table.put(b"q" + _KEY.pack(queue.number), encode_state(queue))


def put_last_queue(table: Table, number: int) -> None:
    table.put(LAST_QUEUE, _KEY.pack(number))


def read_generation(table: Table) -> int:
    stored = table.get(GENERATION)
    if stored is None or len(stored) != _KEY.size:
        return 0
    generation: int = _KEY.unpack(stored)[0]
    return generation


def load_table(table: Table, fold: Fold) -> None:
    """Put the state of the last checkpoint into a fold that is to go on with the log."""
    fault = table.find_fault()
    if fault:
        raise DiskFault(f"state: {fault}; `millstream storage repair` begins anew with what can be trusted")
    for key, stored in table.items(b"m"):
        fold.apply(Record(_KEY.unpack(key[1:])[0], session_records.MESSAGE, stored[_USES.size :]))
    for prefix, kind in (
        (b"s", session_records.SESSION_SAVED),
        (b"u", session_records.SUBSCRIPTION_SAVED),
        (b"i", session_records.ID_RECEIVED),
        (b"d", session_records.DELIVERY_ADDED),
        (b"w", session_records.WILL_SAVED),
        (b"r", session_records.RETAINED_SAVED),
    ):
        for _, body in table.items(prefix):
            fold.apply(Record(0, kind, body))
    load_queues(table, fold.queues)
    load_stages(table, fold.stages)
    load_exchanges(table, fold.exchanges)
    fold.last_sequence = read_meta(table)[0]


def load_queues(table: Table, queues: QueueFold) -> None:
    last_number = table.get(LAST_QUEUE)
    queues.last_number = 0 if last_number is None else _KEY.unpack(last_number)[0]
    for key, state in table.items(b"q"):
        number = _KEY.unpack(key[1:])[0]
        queues.queues[number] = decode_state(number, state)
    for number, first, last in load_all_gaps(table):
        if number in queues.queues:
            queues.queues[number].gaps.add(first, last)


def find_queue(table: Table, number: int) -> StoredQueue | None:
    state = table.get(b"q" + _KEY.pack(number))
    return None if state is None else decode_state(number, state)


def list_queues(table: Table) -> list[int]:
    """Their numbers, in order."""
    return [_KEY.unpack(key[1:])[0] for key, _ in table.items(b"q")]


def find_removed(table: Table) -> list[int]:
    """Queues whose files are to go."""
    return [_KEY.unpack(key[1:])[0] for key, _ in table.items(b"x")]


def load_stages(table: Table, stages: StageFold) -> None:
    for _, body in table.items(b"b"):
        query = batch_records.decode_query(body)
        stages.queries[query.key()] = query


def load_exchanges(table: Table, exchanges: ExchangeFold) -> None:
    for _, body in table.items(b"e"):
        exchanges.apply(exchange_records.EXCHANGE_SAVED, body)
    for _, body in table.items(b"k"):
        exchanges.apply(exchange_records.BINDING_SAVED, body)
    for _, body in table.items(b"o"):
        exchanges.apply(exchange_records.BINDING_OWNED, body)
