"""Fakes of the core's ports, and a small world around one broker whose clock is moved by hand.

They are interpreted subclasses of the ports: the same fakes serve the interpreted and the compiled build.
"""

from __future__ import annotations

from millstream.broker.account import Account
from millstream.broker.account_options import AccountOptions
from millstream.broker.broker import Broker
from millstream.broker.line import Ending, Line
from millstream.broker.observer import Observer
from millstream.broker.session import Session
from millstream.broker.will import Will
from millstream.model.delivery import Delivery
from millstream.model.errors import Reason
from millstream.model.limits import NEVER_EXPIRES, Limits
from millstream.model.memory_budget import MemoryBudget, MemoryMeter
from millstream.model.message import NANOSECONDS, Message
from millstream.model.outbox import OutboxPool, Wakeup
from millstream.model.outlet import Outlet, Run, Target
from millstream.model.topic import split_share
from millstream.protocols.endpoint import Entropy, Link
from millstream.protocols.mqtt.context import MqttContext
from millstream.protocols.mqtt.endpoint import MqttEndpoint
from millstream.protocols.mqtt.wire.decode import decode_frame
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import Connect, Packet
from millstream.routing.subscription import Subscription
from millstream.security.acl import Authorizer
from millstream.security.authentication import Authenticator, Credentials
from millstream.security.principal import Principal
from millstream.security.tokens import TokenVerifier
from millstream.security.users import UserTable
from millstream.storage.memory_store import MemoryStore
from millstream.storage.store import SessionKey, Store, StoredState, StoredSubscription, StoredWill

MEMORY_LIMIT = 1 << 30
START_NS = 1_000 * NANOSECONDS
SIZE_MAX = 1 << 24


def make_message(
    topic: bytes, payload: bytes = b"x", guarantee: int = 0, retain: bool = False, expires_ns: int = 0
) -> Message:
    return Message(topic, payload, guarantee, retain, b"", expires_ns, "")


class ManualWakeup(Wakeup):
    """Counts how often the loop was asked; nobody answers but the test."""

    def __init__(self) -> None:
        self.requests = 0

    def request(self) -> None:
        self.requests += 1


class FakeOutlet(Outlet):
    def __init__(self, name: str = "") -> None:
        self.name = name
        self.present = True
        self.hidden: set[bytes] = set()
        self.messages: list[Message] = []
        self.runs: list[Run] = []

    def deliver(self, message: Message, target: Target) -> None:
        self.messages.append(message)

    def deliver_run(self, run: Run, target: Target) -> None:
        self.runs.append(run)

    def is_present(self) -> bool:
        return self.present

    def may_receive(self, topic: bytes) -> bool:
        return topic not in self.hidden

    def __repr__(self) -> str:
        return f"FakeOutlet({self.name})"


class FakeRun(Run):
    def __init__(self, messages: list[Message]) -> None:
        super().__init__(len(messages), sum(len(message.payload) for message in messages))
        self._messages = messages

    def messages(self) -> list[Message]:
        return list(self._messages)


class FakeLine(Line):
    """A connection that writes down what it is given. `refuse_over`: largest payload it can take."""

    def __init__(self, broker: Broker | None = None) -> None:
        super().__init__()
        self.sent: list[tuple[int, bytes, bool]] = []  # packet id, payload, is it a repeat
        self.deliveries: list[Delivery] = []
        self.plain: list[tuple[bytes, bool, tuple[int, ...]]] = []
        self.runs: list[Run] = []
        self.released: list[int] = []
        self.endings: list[Ending] = []
        self.resumed = 0
        self.durable_calls = 0
        self.unsent = 0
        self.refuse_over = SIZE_MAX
        self.with_will = True
        self.session: Session | None = None
        self._broker = broker

    def flush(self) -> None:
        pass

    def on_flush_failed(self, error: Exception) -> None:
        raise error

    def transmit_run(self, run: Run, target: Target) -> None:
        self.runs.append(run)

    def transmit_plain(self, message: Message, retain: bool, identifiers: tuple[int, ...]) -> None:
        self.plain.append((message.payload, retain, identifiers))

    def transmit(self, delivery: Delivery, is_repeat: bool) -> bool:
        if len(delivery.message.payload) > self.refuse_over:
            return False
        self.sent.append((int(delivery.packet_id), delivery.message.payload, is_repeat))
        self.deliveries.append(delivery)
        return True

    def transmit_release(self, packet_id: int) -> None:
        self.released.append(int(packet_id))

    def unsent_bytes(self) -> int:
        return self.unsent

    def end(self, ending: Ending) -> None:
        self.endings.append(ending)
        if self._broker is not None and self.session is not None:
            self._broker.close_line(self.session, self, self.with_will)

    def resume(self) -> None:
        self.resumed += 1

    def on_durable(self) -> None:
        self.durable_calls += 1

    def payloads(self) -> list[bytes]:
        return [payload for _, payload, _ in self.sent]

    def ids(self) -> list[int]:
        return [packet_id for packet_id, _, _ in self.sent]


class HeldStore(Store):
    """A store that keeps everything in another one, and is safe only as far as `advance` says."""

    def __init__(self, kept: Store | None = None) -> None:
        self.kept: Store = MemoryStore() if kept is None else kept
        self.facts: list[str] = []
        self._durable: int | None = None

    def hold(self) -> None:
        self._durable = int(self.kept.position())

    def advance(self, position: int) -> None:
        self._durable = position

    def release(self) -> None:
        self._durable = None

    def load(self) -> StoredState:
        return self.kept.load()

    def position(self) -> int:
        return self.kept.position()

    def durable(self) -> int:
        return self.kept.durable() if self._durable is None else self._durable

    def session_saved(self, key: SessionKey, principal: str, expiry_s: int, expires_ns: int) -> None:
        self.facts.append("session_saved")
        self.kept.session_saved(key, principal, expiry_s, expires_ns)

    def session_removed(self, key: SessionKey) -> None:
        self.facts.append("session_removed")
        self.kept.session_removed(key)

    def subscription_saved(self, key: SessionKey, subscription: StoredSubscription) -> None:
        self.facts.append("subscription_saved")
        self.kept.subscription_saved(key, subscription)

    def subscription_removed(self, key: SessionKey, name: bytes) -> None:
        self.facts.append("subscription_removed")
        self.kept.subscription_removed(key, name)

    def delivery_added(self, key: SessionKey, delivery: Delivery) -> None:
        self.facts.append("delivery_added")
        self.kept.delivery_added(key, delivery)

    def delivery_advanced(self, key: SessionKey, delivery: Delivery) -> None:
        self.facts.append("delivery_advanced")
        self.kept.delivery_advanced(key, delivery)

    def delivery_removed(self, key: SessionKey, delivery: Delivery) -> None:
        self.facts.append("delivery_removed")
        self.kept.delivery_removed(key, delivery)

    def id_received(self, key: SessionKey, packet_id: int) -> None:
        self.facts.append("id_received")
        self.kept.id_received(key, packet_id)

    def id_released(self, key: SessionKey, packet_id: int) -> None:
        self.facts.append("id_released")
        self.kept.id_released(key, packet_id)

    def will_saved(self, key: SessionKey, will: StoredWill) -> None:
        self.facts.append("will_saved")
        self.kept.will_saved(key, will)

    def will_removed(self, key: SessionKey) -> None:
        self.facts.append("will_removed")
        self.kept.will_removed(key)

    def retained_saved(self, account: str, message: Message) -> None:
        self.facts.append("retained_saved")
        self.kept.retained_saved(account, message)

    def retained_removed(self, account: str, topic: bytes) -> None:
        self.facts.append("retained_removed")
        self.kept.retained_removed(account, topic)

    def on_tick(self, now_ns: int) -> None:
        self.kept.on_tick(now_ns)

    def queue_fact(self, kind: int, body: bytes) -> int:
        self.facts.append("queue_fact")
        return self.kept.queue_fact(kind, body)

    def exchange_fact(self, kind: int, body: bytes) -> int:
        self.facts.append("exchange_fact")
        return self.kept.exchange_fact(kind, body)


class RecordingObserver(Observer):
    def __init__(self) -> None:
        self.lines: list[tuple[str, str, str]] = []  # what, client id, why or where

    def connected(self, client_id: str, user: str, account: str, address: str, protocol: str) -> None:
        self.lines.append(("connected", client_id, protocol))

    def refused(self, client_id: str, user: str, address: str, reason: str, text: str) -> None:
        self.lines.append(("refused", client_id, reason))

    def disconnected(self, client_id: str, address: str, reason: str, text: str) -> None:
        self.lines.append(("disconnected", client_id, reason))

    def denied(self, client_id: str, user: str, action: str, topic: bytes) -> None:
        self.lines.append(("denied", client_id, f"{action} {topic.decode()}"))

    def limited(self, client_id: str, user: str, address: str, text: str) -> None:
        self.lines.append(("limited", client_id, text))

    def busy(self, client_id: str, address: str, text: str) -> None:
        self.lines.append(("busy", address, text))

    def failed(self, client_id: str, address: str, error: BaseException) -> None:
        self.lines.append(("failed", client_id, repr(error)))


class CountingEntropy(Entropy):
    def __init__(self) -> None:
        self.count = 0

    def make_client_id(self) -> str:
        self.count += 1
        return f"made-{self.count}"

    def make_nonce(self) -> str:
        self.count += 1
        return f"nonce{self.count:020d}"

    def make_name(self) -> str:
        self.count += 1
        return f"name{self.count:018d}"


class FakeLink(Link):
    def __init__(self, address: str = "192.0.2.1") -> None:
        super().__init__(address)
        self.data = b""
        self.writes = 0
        self.unsent = 0
        self.is_paused = False
        self.pauses = 0
        self.paused_ns: list[int] = []
        self.is_closed = False
        self.asked: list[Credentials] = []
        self.is_authenticated = False
        self.waits_for_store = False
        self.waits_for_turn = False
        self.expects_faults = False
        self.faults: list[Exception] = []

    def send(self, data: bytes | memoryview) -> None:
        self.writes += 1
        self.data += bytes(data)

    def unsent_bytes(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        self.is_paused = True
        self.pauses += 1

    def resume_reading(self) -> None:
        self.is_paused = False

    def pause_for(self, duration_ns: int) -> None:
        self.paused_ns.append(int(duration_ns))

    def close(self) -> None:
        self.is_closed = True

    def wait_for_store(self, waits: bool) -> None:
        self.waits_for_store = waits

    def wait_for_turn(self, waits: bool) -> None:
        self.waits_for_turn = waits

    def ask(self, credentials: Credentials) -> None:
        self.asked.append(credentials)

    def on_fault(self, fault: Exception) -> None:
        if not self.expects_faults:
            raise fault
        self.faults.append(fault)

    def on_authenticated(self) -> None:
        self.is_authenticated = True


class FakeMeter(MemoryMeter):
    def __init__(self) -> None:
        self.resident = 0

    def resident_bytes(self) -> int:
        return self.resident


class World:
    """A broker in memory with fake lines: sessions without a protocol."""

    def __init__(
        self,
        limits: Limits | None = None,
        store: Store | None = None,
        authorizer: Authorizer | None = None,
        accounts: dict[str, AccountOptions] | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.store: Store = store or MemoryStore()
        self.authorizer = authorizer or Authorizer(None)
        self.meter = FakeMeter()
        memory = MemoryBudget(self.limits, MEMORY_LIMIT, 70, 90, self.meter)
        self.broker = Broker(
            self.limits,
            self.store,
            self.authorizer,
            accounts or {},
            memory=memory,
            authenticator=self.find_authenticator(),
        )
        self.now_ns = START_NS
        self.broker.clock.now_ns = self.now_ns

    @property
    def account(self) -> Account:
        return self.broker.get_account("default")

    def find_authenticator(self) -> Authenticator | None:
        """None: whoever made something is still there."""
        return None

    def use_memory(self, percent: float) -> None:
        """So much of the limit is resident from now on, and the broker knows."""
        self.meter.resident = int(MEMORY_LIMIT * percent / 100)
        self.broker.memory.look()

    def move(self, seconds: float) -> None:
        self.now_ns += int(seconds * NANOSECONDS)
        self.broker.on_tick(self.now_ns, self.now_ns // NANOSECONDS)

    def connect(
        self,
        client_id: str,
        clean_start: bool = False,
        expiry_s: int = NEVER_EXPIRES,
        will: Will | None = None,
        window: int = 65_535,
        user: str = "user",
        account: str = "default",
    ) -> tuple[Session, FakeLine]:
        line = FakeLine(self.broker)
        found = self.broker.get_account(account)
        principal = Principal(user, account, "user")
        session, _ = self.broker.open_session(found, client_id, principal, clean_start, line)
        self.broker.start_session(session, expiry_s, will)
        line.session = session
        session.attach(line, found.window_limit(window))
        return session, line

    def drop(self, session: Session, with_will: bool = True) -> None:
        assert session.line is not None
        self.broker.close_line(session, session.line, with_will)

    def subscribe(
        self, session: Session, name: bytes, guarantee: int = 2, no_local: bool = False, identifier: int = 0
    ) -> None:
        group, filter = split_share(name) or (b"", name)
        wanted = Subscription(session, filter, group, guarantee, no_local, False, identifier)
        self.broker.subscribe(session, wanted)

    def publish(
        self,
        topic: bytes,
        payload: bytes = b"x",
        guarantee: int = 1,
        retain: bool = False,
        expiry_s: int = 0,
        publisher: Session | None = None,
    ) -> Reason:
        expires_ns = self.now_ns + expiry_s * NANOSECONDS if expiry_s else 0
        message = make_message(topic, payload, guarantee, retain, expires_ns)
        return self.broker.publish_internal(self.account, message, publisher)


class EndpointWorld(World):
    """The same with what endpoints share. Without users, all are let in."""

    def __init__(
        self,
        limits: Limits | None,
        store: Store | None,
        authorizer: Authorizer | None,
        accounts: dict[str, AccountOptions] | None,
        users: UserTable | None,
        tokens: TokenVerifier | None = None,
        certificates: bool = False,
    ) -> None:
        self.authenticator = Authenticator(
            users or UserTable({}), users is None, "default", tokens, certificates, b"k" * 32
        )
        super().__init__(limits, store, authorizer, accounts)
        self.wakeup = ManualWakeup()
        self.pool = OutboxPool(self.wakeup)
        self.observer = RecordingObserver()

    def find_authenticator(self) -> Authenticator | None:
        return self.authenticator

    def settle_down(self) -> None:
        """What a loop does after its reads: flush, hand out, write what was settled, until nothing is left."""
        while True:
            self.pool.flush()
            is_more = self.broker.work_off()
            self.broker.write_settled()
            self.pool.flush()
            if not is_more and self.broker.tasks.count() == 0:
                break


class MqttWorld(EndpointWorld):
    """MQTT endpoints on fake links: packets in, packets out."""

    def __init__(
        self,
        limits: Limits | None = None,
        store: Store | None = None,
        authorizer: Authorizer | None = None,
        accounts: dict[str, AccountOptions] | None = None,
        users: UserTable | None = None,
        server_reference: str = "",
    ) -> None:
        super().__init__(limits, store, authorizer, accounts, users)
        self.context = MqttContext(
            self.broker,
            self.authenticator,
            self.pool,
            self.observer,
            CountingEntropy(),
            b"s" * 32,
            server_reference,
        )

    def peer(self, version: int = 5, address: str = "192.0.2.1") -> MqttPeer:
        return MqttPeer(self, self.context, version, address)

    def client(self, packet: Connect) -> MqttPeer:
        """A peer that has sent its CONNECT; CONNACK has been taken off."""
        peer = self.peer(packet.version)
        peer.connack = peer.send(packet)[0]
        return peer


class MqttPeer:
    """The client's end of one endpoint."""

    def __init__(self, world: EndpointWorld, context: MqttContext, version: int, address: str) -> None:
        self.world = world
        self.version = version
        self.link = FakeLink(address)
        self.endpoint = MqttEndpoint(context, self.link, world.now_ns)
        self.connack: Packet | None = None

    def send(self, *packets: Packet) -> list[Packet]:
        """Send packets in one piece, let everybody flush, and take what came back."""
        return self.send_bytes(b"".join([encode_packet(packet, self.version) for packet in packets]))

    def send_bytes(self, data: bytes) -> list[Packet]:
        self.endpoint.receive_data(data, self.world.now_ns)
        return self.take()

    def take(self) -> list[Packet]:
        self.world.settle_down()
        data = self.link.data
        self.link.data = b""
        found: list[Packet] = []
        position = 0
        while position < len(data):
            packet, position = decode_frame(data, position, self.version, SIZE_MAX)
            assert packet is not None, "the broker sent a piece of a packet"
            found.append(packet)
        return found

    def lose(self) -> None:
        self.endpoint.on_lost(self.world.now_ns)
