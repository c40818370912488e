"""An AMQP 0.9.1 client of raw frames over a real socket: sends what it is told and shows all that comes.

The codec is pika's, so that ours is judged by another. Nothing here sleeps. That nothing comes is shown by a
question whose answer must be the next frame.
"""

from __future__ import annotations

import select
import socket
import struct
from types import TracebackType
from typing import Any, NoReturn, TypeVar

from pika import frame as frames
from pika import spec
from pika.spec import Basic, BasicProperties, Channel, Connection, Exchange
from raw_amqp_channel import TIMEOUT_S, AmqpChannel, ChannelClosed, Content

HEADER = b"AMQP\x00\x00\x09\x01"
CAPABILITIES = {
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "exchange_exchange_bindings": True,
    "authentication_failure_close": True,
}

M = TypeVar("M")


class ConnectionClosed(Exception):
    def __init__(self, code: int, text: str, method: tuple[int, int]) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text
        self.method = method


class ConnectionLost(Exception):
    """The broker ended the connection without a word."""


class AmqpClient:
    """One connection. What comes for a channel waits in the channel's inbox; its close is answered at once."""

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        self.port = port
        self.queues: list[str] = []
        self.exchanges: list[str] = []
        self.channels: dict[int, AmqpChannel] = {}
        self.control: list[Any] = []  # methods on channel 0
        self.heartbeats = 0
        self.tune: Any = None
        self.start: Any = None
        self.frame_max = 131_072
        self.ending: Exception | None = None
        self._unread = b""
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S, (source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def open(
        self,
        *,
        user: str = "guest",
        password: str = "guest",
        virtual_host: str = "/",
        heartbeat_s: int = 0,
        frame_max: int = 131_072,
        channel_max: int = 0,
        capabilities: dict[str, bool] = CAPABILITIES,
    ) -> AmqpClient:
        self.socket.sendall(HEADER)
        self.start = self.expect(Connection.Start)
        self.send(
            0,
            Connection.StartOk(
                client_properties={"capabilities": capabilities, "product": "raw"},
                mechanism="PLAIN",
                response=f"\0{user}\0{password}",
                locale="en_US",
            ),
        )
        self.tune = self.expect(Connection.Tune)
        self.frame_max = frame_max
        self.send(
            0,
            Connection.TuneOk(
                channel_max=channel_max or self.tune.channel_max, frame_max=frame_max, heartbeat=heartbeat_s
            ),
        )
        self.send(0, Connection.Open(virtual_host=virtual_host))
        self.expect(Connection.OpenOk)
        return self

    def channel(self) -> AmqpChannel:
        number = 1
        while number in self.channels:
            number += 1
        channel = self.channels[number] = AmqpChannel(self, number)
        channel.call(Channel.Open(), Channel.OpenOk)
        return channel

    # ---- frames

    def send(self, channel: int, method: Any) -> None:
        self.send_bytes(frames.Method(channel, method).marshal())

    def send_content(self, channel: int, method: Any, raw_properties: bytes, body: bytes) -> None:
        """Method, header and body in one write."""
        pieces = [frames.Method(channel, method).marshal()]
        header = struct.pack(">HHQ", 60, 0, len(body)) + raw_properties
        pieces.append(encode_frame(spec.FRAME_HEADER, channel, header))
        step = self.frame_max - 8
        pieces += [
            encode_frame(spec.FRAME_BODY, channel, body[at : at + step]) for at in range(0, len(body), step)
        ]
        self.send_bytes(b"".join(pieces))

    def send_bytes(self, data: bytes) -> None:
        """Reads while it writes: a broker that waits for us to read must not stand still."""
        view = memoryview(data)
        self.socket.setblocking(False)
        try:
            while view:
                readable, writable, _ = select.select([self.socket], [self.socket], [], TIMEOUT_S)
                if writable:
                    try:
                        view = view[self.socket.send(view) :]
                    except BlockingIOError:
                        pass  # there was less room than it seemed
                elif readable:
                    self._unread += self.socket.recv(1 << 20)
                else:
                    raise TimeoutError("the broker takes no more bytes")
        finally:
            self.socket.settimeout(TIMEOUT_S)

    def pump(self) -> None:
        """Read one frame, put it where it belongs."""
        if self.ending is not None:
            raise self.ending
        while True:
            used, found = frames.decode_frame(self._unread)
            if used:
                raw, self._unread = self._unread[:used], self._unread[used:]
                break
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionResetError:
                data = b""
            if not data:
                self.ending = ConnectionLost("the broker ended the connection")
                raise self.ending
            self._unread += data
        self._on_frame(found, raw)

    def pump_for_ever(self) -> NoReturn:
        """Until the connection ends, which raises."""
        while True:
            self.pump()

    def _on_frame(self, found: Any, raw: bytes) -> None:
        if isinstance(found, frames.Heartbeat):
            self.heartbeats += 1
        elif isinstance(found, frames.ProtocolHeader):
            self.control.append(found)
        elif found.channel_number == 0:
            if isinstance(found.method, Connection.Close):
                method = found.method
                self.ending = ConnectionClosed(
                    method.reply_code, method.reply_text, (method.class_id, method.method_id)
                )
                self.send(0, Connection.CloseOk())
                raise self.ending
            self.control.append(found.method)
        else:
            assert len(raw) <= self.frame_max, "the broker sent a frame above the agreed size"
            self._on_channel_frame(self.channels[found.channel_number], found, raw)

    def _on_channel_frame(self, channel: AmqpChannel, found: Any, raw: bytes) -> None:
        if isinstance(found, frames.Method):
            assert channel.contents is None, "a method among the frames of a content"
            if isinstance(found.method, Basic.Deliver | Basic.GetOk | Basic.Return):
                channel.contents = Content(found.method, BasicProperties(), b"", b"", 0)
                return
            if isinstance(found.method, Channel.Close):
                self.send(channel.number, Channel.CloseOk())
                channel.is_closed = True
                del self.channels[channel.number]
            channel.inbox.append(found.method)
            return
        content = channel.contents
        assert content is not None
        if isinstance(found, frames.Header):
            content.properties = found.properties
            content.raw_properties = raw[19:-1]
            channel.missing = found.body_size
        else:
            content.body += found.fragment
            content.body_frames += 1
            channel.missing -= len(found.fragment)
        if channel.missing == 0:
            channel.contents = None
            channel.inbox.append(content)

    def expect(self, answer: type[M]) -> M:
        """The next method on channel 0."""
        while not self.control:
            self.pump()
        found = self.control.pop(0)
        assert isinstance(found, answer), found
        return found

    def expect_closed(self, code: int, part: str = "", *, ends: bool = True) -> ConnectionClosed:
        """The broker closes the connection with this code, and then the socket, if that is waited for."""
        while self.ending is None:
            try:
                self.pump()
            except (ConnectionClosed, ConnectionLost):
                break
        assert isinstance(self.ending, ConnectionClosed), self.ending
        assert self.ending.code == code, self.ending
        assert part in self.ending.text, self.ending
        if ends:
            self.expect_end()
        return self.ending

    def expect_end(self) -> None:
        """The socket ends."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass  # it ends this way too when bytes of ours were not read

    # ---- the end

    def cut(self) -> None:
        """As when the machine is gone."""
        self.ending = self.ending or ConnectionLost("we have left")
        self.socket.close()

    def close(self) -> None:
        if self.ending is None:
            self.send(0, Connection.Close(200, "done", 0, 0))
            while not any(isinstance(item, Connection.CloseOk) for item in self.control):
                self.pump()
        self.cut()


class AmqpClients:
    """Opens connections to one broker, leaves none behind, and removes what they declared."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.opened: list[AmqpClient] = []

    def connect(self) -> AmqpClient:
        """A socket; not a byte is sent."""
        client = AmqpClient(self.port)
        self.opened.append(client)
        return client

    def open(self, **options: Any) -> AmqpClient:
        return self.connect().open(**options)

    def channel(self, **options: Any) -> AmqpChannel:
        """A channel on a connection of its own."""
        return self.open(**options).channel()

    def __enter__(self) -> AmqpClients:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        queues = [name for client in self.opened for name in client.queues]
        exchanges = [name for client in self.opened for name in client.exchanges]
        for client in self.opened:
            client.cut()
        if not queues and not exchanges:
            return
        sweeper = AmqpClient(self.port).open()
        channel = sweeper.channel()
        for name in dict.fromkeys(queues):
            try:
                channel.delete(name)
            except ChannelClosed:
                channel = sweeper.channel()  # an exclusive queue that is just going
        for name in dict.fromkeys(exchanges):
            channel.call(Exchange.Delete(exchange=name), Exchange.DeleteOk)
        sweeper.close()


def encode_frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"
