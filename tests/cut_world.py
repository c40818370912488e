"""A broker whose log is synced only when a test says so, on a disk whose power can be cut; and clients that remember."""

from __future__ import annotations

from fakes import MqttPeer, MqttWorld

from millstream.model.limits import Limits
from millstream.protocols.mqtt.wire.packets import (
    ConnAck,
    Connect,
    Packet,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Subscribe,
    SubscribeEntry,
)
from millstream.protocols.mqtt.wire.properties import Properties
from millstream.runtime.disk.failpoints import NoFailpoints
from simulation.disk import Mood, SimulatedDisk
from simulation.node import Node
from simulation.table import SimulatedTable

FOREVER = 0xFFFF_FFFF


class CutWorld:
    """`world` is the broker of this life; after `cut` it is another one, which knows what was synced."""

    def __init__(self, with_sync: bool = False, limits: Limits | None = None) -> None:
        self._disk = SimulatedDisk()
        self._table = SimulatedTable()
        self._with_sync = with_sync
        self._limits = limits
        self.now_ns = 0
        self._start()

    def _start(self) -> None:
        self.node = Node(self._disk, self._table, NoFailpoints(), 1 << 16, self._with_sync)
        for session in self.node.state.sessions:
            session.may_lack_end = self.node.recovered.has_marks or not self._with_sync
        self.world = MqttWorld(self._limits, self.node.store)
        self.world.now_ns += self.now_ns
        self.world.broker.restore(self.world.now_ns)

    def work(self) -> None:
        """Until all that was appended is written, and everybody was told."""
        self.world.settle_down()
        while self.node.log.durable < self.node.log.position:
            self.node.log.flush()
            self.node.writer.work()
            self.world.broker.on_durable()
            self.world.settle_down()

    def sync(self) -> None:
        self.work()
        self.node.files.sync()

    def fold(self) -> None:
        """What was written becomes part of the table."""
        self.work()
        self.node.files.end_file()
        self.node.checkpoint()

    def cut(self) -> None:
        """The power goes: what was not synced is gone."""
        self.work()
        self._disk = self._disk.crash(Mood.NOTHING)
        self._table = self._table.crash()
        self._start()


class Client:
    """Keeps its state over connections; what it is sent waits until it `reads`."""

    def __init__(self, cut_world: CutWorld, client_id: str, version: int = 5) -> None:
        self._cut_world = cut_world
        self._client_id = client_id
        self._version = version
        self._peer: MqttPeer | None = None
        self._unread: list[Packet] = []
        self.taken_ids: dict[int, None] = {}
        self.messages: list[bytes] = []
        self.ids: list[int] = []  # of these
        self.seen: list[Packet] = []
        self.ignores_unknown = False  # a release of what it does not know gets no answer

    def connect(self) -> None:
        peer = self._peer = self._cut_world.world.peer(self._version)
        properties = Properties()
        properties.session_expiry_interval = FOREVER
        self._unread = peer.send(Connect(self._version, self._client_id, False, 0, properties=properties))
        self._unread += self._take(peer)
        connack = self._unread.pop(0)
        assert isinstance(connack, ConnAck)
        assert connack.reason == 0

    def lose(self) -> None:
        assert self._peer is not None
        self._peer.lose()

    def is_connected(self) -> bool:
        return self._peer is not None and not self._peer.link.is_closed

    def send(self, *packets: Packet) -> None:
        assert self._peer is not None
        self._unread += self._peer.send(*packets)

    def subscribe(self, filter: bytes, qos: int) -> None:
        self.send(Subscribe(1, [SubscribeEntry(filter, qos)]))
        self.read()

    def publish(self, packet_id: int, payload: bytes, dup: bool = False, topic: bytes = b"t") -> None:
        self.send(Publish(topic, payload, 2, False, dup, packet_id))

    def receive(self) -> list[Packet]:
        """Read without an answer."""
        assert self._peer is not None
        found = self._unread + self._take(self._peer)
        self._unread = []
        self.seen += found
        return found

    def read(self) -> list[Packet]:
        """Read and answer, until nothing comes any more."""
        everything: list[Packet] = []
        while found := self.receive():
            everything += found
            for packet in found:
                self._on_packet(packet)
        return everything

    def take(self, packet: Publish) -> None:
        """As a receiver of exactly once does, without telling anybody."""
        if packet.packet_id not in self.taken_ids:
            self.taken_ids[packet.packet_id] = None
            self.messages.append(bytes(packet.payload))
            self.ids.append(packet.packet_id)

    def _on_packet(self, packet: Packet) -> None:
        if isinstance(packet, PubRel):
            if packet.packet_id in self.taken_ids or not self.ignores_unknown:
                self.send(PubComp(packet.packet_id))
            self.taken_ids.pop(packet.packet_id, None)
        elif isinstance(packet, Publish) and packet.qos == 2:
            self.take(packet)
            self.send(PubRec(packet.packet_id))
        elif isinstance(packet, Publish):
            self.messages.append(bytes(packet.payload))
            self.ids.append(packet.packet_id)
            self.send(PubAck(packet.packet_id))

    def _take(self, peer: MqttPeer) -> list[Packet]:
        self._cut_world.work()
        return peer.take()
