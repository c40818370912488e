"""The outgoing half of an endpoint: what sessions deliver becomes packets, in this client's version and limits."""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from millstream.broker.session import Session
from millstream.model.delivery import Delivery
from millstream.model.errors import Reason
from millstream.model.memory_budget import SESSION_OVERHEAD, SUBSCRIPTION_OVERHEAD
from millstream.model.message import Message
from millstream.model.outbox import Outbox
from millstream.model.outlet import Run, Target
from millstream.protocols.endpoint import Endpoint, Link
from millstream.protocols.mqtt.context import MqttContext
from millstream.protocols.mqtt.machine.connection import PINGRESP, Connection
from millstream.protocols.mqtt.machine.outbound import DUP, RETAIN
from millstream.protocols.mqtt.replay import Replay, Replays
from millstream.protocols.mqtt.wire.frames import FrameRun
from millstream.protocols.mqtt.wire.packets import Packet

PUBACK: Final[i64] = 4
PUBREC: Final[i64] = 5
PUBREL: Final[i64] = 6
PUBCOMP: Final[i64] = 7
CONFIRMS_MAX: Final = 4096  # that may wait for the store; then the client is not read


@final
class Confirm:
    """Answers that wait for what they confirm to be safe, and what follows them. Those of one read wait as one: what
    they rest on goes to the disk as one."""

    def __init__(self, position: i64, data: bytes, replays: list[Replay], now_ns: i64) -> None:
        self.position: i64 = position
        self.parts: list[bytes] = [data]
        self.count: i64 = 0  # of the answers in them
        self.replays = replays
        self.now_ns: i64 = now_ns


class Outgoing(Endpoint):
    def __init__(self, context: MqttContext, link: Link, now_ns: i64) -> None:
        super().__init__()
        self._context = context
        self.link = link
        self.outbox = Outbox(context.pool, self)
        self.machine = Connection(context.terms, self.outbox, now_ns)
        self.session: Session | None = None
        self._replays: Replays | None = None
        self._confirms: deque[Confirm] | None = None
        self._waiting: i64 = 0  # answers in them
        self._waits_for_store = False

    # --------------------------------------------------------------- confirms

    def answer(self, kind: i64, packet_id: i64, reason: i64) -> None:
        """Answer a publish or a release once everything it caused is durable."""
        store = self._context.broker.store
        # a refusal rests on nothing; but answers keep the order of their publishes [MQTT-4.6.0-2]
        if self._confirms is None and (reason >= 0x80 or store.durable() >= store.position()):
            self._send_answer(kind, packet_id, reason)
        else:
            self._wait(self._encode_answer(kind, packet_id, reason), [])

    def answer_all(self, answers: bytes, count: i64) -> None:
        """The same for publishes that were stored as one."""
        store = self._context.broker.store
        if self._confirms is None and store.durable() >= store.position():
            self.machine.outbound.send_bytes(answers)
        else:
            self._wait(answers, [], count)

    def confirm(self, packet: Packet, replays: list[Replay], is_stored: bool) -> None:
        """The same for any other packet; retained messages follow it. `is_stored`: it promises to last."""
        store = self._context.broker.store
        data = self.machine.outbound.encode(packet)
        if self._confirms is None and (not is_stored or store.durable() >= store.position()):
            self._send_confirm(Confirm(0, data, replays, 0))
        else:
            self._wait(data, replays)

    def answer_ping(self) -> None:
        """In order with everything else, so that it means what a client takes it for; but not behind a disk that
        takes nothing."""
        store = self._context.broker.store
        is_safe = self._confirms is None and store.durable() >= store.position()
        if is_safe or store.refusal() is not Reason.SUCCESS:
            self.machine.outbound.send_bytes(PINGRESP)
        else:
            self._wait(PINGRESP, [])

    def on_durable(self) -> None:
        confirms = self._confirms
        if confirms is None:
            return
        durable = self._context.broker.store.durable()
        while confirms and confirms[0].position <= durable:
            confirm = confirms.popleft()
            self._waiting -= confirm.count
            self._send_confirm(confirm)
        if self._waits_for_store and self._waiting < CONFIRMS_MAX // 2:
            self._waits_for_store = False
            self.link.wait_for_store(False)
        if confirms:
            self._context.broker.wait_durable(self)
        else:
            self._confirms = None

    def drop_confirms(self) -> None:
        """The connection is gone: nobody waits for them any more."""
        self._confirms = None
        self._waiting = 0

    def _wait(self, data: bytes, replays: list[Replay], count: i64 = 1) -> None:
        broker = self._context.broker
        confirms = self._confirms
        if confirms is None:
            confirms = self._confirms = deque()
            broker.wait_durable(self)
        self._waiting += count
        now_ns = broker.clock.now_ns
        last = confirms[-1] if confirms else None
        if last is not None and last.now_ns == now_ns and not last.replays:
            last.position = broker.store.position()
            last.parts.append(data)
            last.replays = replays
        else:
            last = Confirm(broker.store.position(), data, replays, now_ns)
            confirms.append(last)
        last.count += count
        if self._waiting >= CONFIRMS_MAX and not self._waits_for_store:
            self._waits_for_store = True
            self.link.wait_for_store(True)

    def _send_confirm(self, confirm: Confirm) -> None:
        parts = confirm.parts
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        if data:
            self.machine.outbound.send_bytes(data)
        for replay in confirm.replays:
            self.replay(replay)

    def _encode_answer(self, kind: i64, packet_id: i64, reason: i64) -> bytes:
        first: i64 = kind << 4
        if kind == PUBREL:
            first |= 2
        if reason == 0 or self.machine.version < 5:
            return int((first << 24) | 0x020000 | packet_id).to_bytes(4, "big")
        number = int(packet_id).to_bytes(2, "big")
        return bytes([int(first), 3]) + number + bytes([int(reason)])

    def _send_answer(self, kind: i64, packet_id: i64, reason: i64) -> None:
        outbound = self.machine.outbound
        first: i64 = kind << 4
        if kind == PUBREL:
            first |= 2
        if reason == 0 or self.machine.version < 5:
            outbound.send_word((first << 24) | 0x020000 | packet_id)
            return
        outbound.send_bytes(self._encode_answer(kind, packet_id, reason))

    def on_lagging(self) -> None:
        self.is_lagging = True
        if self.session is not None:
            self.session.on_lagging()

    def on_caught_up(self) -> None:
        self.is_lagging = False
        self.is_blocked = False
        if self.session is not None:
            self.session.on_caught_up()
            if self._replays is not None:
                self._pump_replays()

    def transmit_run(self, run: Run, target: Target) -> None:
        session = self.session
        assert session is not None
        machine = self.machine
        if isinstance(run, FrameRun) and not target.identifiers and machine.outbound.can_take_runs():
            session.account.counters.messages_sent += run.count
            machine.outbound.send_frames(run.frames(machine.version))
            return
        for message in run.messages():
            self.transmit_plain(message, False, target.identifiers)

    def transmit_plain(self, message: Message, retain: bool, identifiers: tuple[int, ...]) -> None:
        session = self.session
        assert session is not None
        machine = self.machine
        now_ns = self._context.broker.clock.now_ns
        if machine.outbound.send_publish(message, 0, 0, RETAIN if retain else 0, identifiers, now_ns):
            session.account.counters.messages_sent += 1
        else:
            session.account.counters.dropped_too_large += 1

    def transmit(self, delivery: Delivery, is_repeat: bool) -> bool:
        session = self.session
        assert session is not None
        machine = self.machine
        flags: i64 = 0
        if is_repeat:
            flags = DUP  # [MQTT-3.3.1-1]
        if delivery.retain:
            flags |= RETAIN
        session.account.counters.messages_sent += 1
        if machine.outbound.send_publish(
            delivery.message,
            delivery.guarantee,
            delivery.packet_id,
            flags,
            delivery.identifiers,
            self._context.broker.clock.now_ns,
        ):
            return True
        if self._replays is not None:
            self._context.broker.tasks.add(self._replays)  # no answer will come for it
        return False

    def transmit_release(self, packet_id: i64) -> None:
        self._send_answer(PUBREL, packet_id, 0)

    def on_flush_failed(self, error: Exception) -> None:
        self.link.on_fault(error)

    def left_bytes(self) -> i64:
        return self.handed_bytes - self.link.unsent_bytes()

    def charge(self, spent_ns: i64) -> None:
        self.link.charge(spent_ns)

    def touch(self, now_ns: i64) -> None:
        self.machine.touch(now_ns)

    def held_bytes(self) -> i64:
        return self.machine.kept_bytes()

    def owned_bytes(self) -> i64:
        session = self.session
        if session is None or session.expiry_s:
            return 0
        return SESSION_OVERHEAD + SUBSCRIPTION_OVERHEAD * session.subscriptions.count()

    def describe(self) -> str:
        return self.link.address if self.session is None else self.session.key.client_id

    def unsent_bytes(self) -> i64:
        return self.link.unsent_bytes() + self.outbox.size_bytes()

    # --------------------------------------------------------------- retained

    def replay(self, replay: Replay) -> None:
        """Send retained messages bit by bit, as fast as the connection takes them."""
        session = self.session
        if session is None or self.machine.is_closed():
            return
        if self._replays is None:
            self._replays = Replays(self, session)
        self._replays.add(replay)
        self._pump_replays()

    def _pump_replays(self) -> None:
        replays = self._replays
        if replays is not None:
            replays.pump()
            if replays.is_empty():
                self._replays = None

    def drop_replay(self, filter: bytes) -> None:
        if self._replays is not None:
            self._replays.remove(filter)
            if self._replays.is_empty():
                self.drop_replays()

    def drop_replays(self) -> None:
        if self._replays is not None:
            self._replays.close()
            self._replays = None
