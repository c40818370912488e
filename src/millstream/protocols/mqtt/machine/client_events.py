"""What happened on the client's side of a connection. Closed is shared with the server's side."""

from __future__ import annotations

from millstream.protocols.mqtt.machine.events import Event
from millstream.protocols.mqtt.wire.packets import Auth, ConnAck, Disconnect, Publish


class Connected(Event):
    """The server accepted; `packet` says on which terms."""

    def __init__(self, packet: ConnAck) -> None:
        self.packet = packet


class ConnectRefused(Event):
    """The server said no; Closed follows."""

    def __init__(self, packet: ConnAck) -> None:
        self.packet = packet


class SessionLost(Event):
    """The server has no session where the client had one: these publishes were never settled."""

    def __init__(self, publishes: list[Publish]) -> None:
        self.publishes = publishes


class MessageReceived(Event):
    """A PUBLISH for us, with its topic in full. QoS 1 and 2 must be settled unless the machine does it."""

    def __init__(self, packet: Publish) -> None:
        self.packet = packet


class PublishSettled(Event):
    """The server's last word on one of our publishes."""

    def __init__(self, packet_id: int, reason: int) -> None:
        self.packet_id = packet_id
        self.reason = reason


class SubscribeAnswered(Event):
    """SUBACK or UNSUBACK: one reason per filter; none from an UNSUBACK before MQTT 5."""

    def __init__(self, packet_id: int, reasons: list[int]) -> None:
        self.packet_id = packet_id
        self.reasons = reasons


class AuthenticationAsked(Event):
    """The server's turn of an enhanced authentication: answer with `authenticate`."""

    def __init__(self, packet: Auth) -> None:
        self.packet = packet


class DisconnectedByServer(Event):
    """The server ended the connection and said why; Closed follows."""

    def __init__(self, packet: Disconnect) -> None:
        self.packet = packet
