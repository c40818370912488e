"""Which method may come in which state of a connection and of a channel: the moves as tables.

Everything that no table names is refused with the code RabbitMQ refuses it with. Used off the hot path.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from mypy_extensions import i64

from millstream.protocols.amqp091.wire import methods
from millstream.protocols.amqp091.wire.codes import CHANNEL_ERROR, COMMAND_INVALID
from millstream.protocols.amqp091.wire.methods import Method


class ConnectionState(IntEnum):
    AWAIT_HEADER = 0
    STARTING = 1  # connection.start is sent
    AUTHENTICATING = 2  # what the client said is being decided on; nothing is read
    SECURING = 3  # a challenge is sent
    TUNING = 4  # connection.tune is sent
    OPENING = 5  # the terms are agreed on
    DECIDING = 6  # the virtual host is being decided on; nothing is read
    OPEN = 7
    CLOSING = 8  # connection.close is sent
    CLOSED = 9


class ChannelState(IntEnum):
    ABSENT = 0
    OPEN = 1
    ENDING = 2  # it is over, but answers to what came before its end may still be sent
    CLOSING = 3  # channel.close is sent


STATE_NAMES: Final[dict[ConnectionState, str]] = {  # as RabbitMQ calls them
    ConnectionState.STARTING: "starting",
    ConnectionState.SECURING: "securing",
    ConnectionState.TUNING: "tuning",
    ConnectionState.OPENING: "opening",
    ConnectionState.OPEN: "running",
}

ACCEPTED: Final[i64] = 0
IGNORED: Final[i64] = 1  # any other verdict is the code it is refused with


def number_of(method: type[Method]) -> int:
    """Class and method in one number."""
    return (method.class_id << 16) | method.method_id


def numbers_of(kinds: tuple[type[Method], ...]) -> dict[int, None]:
    return {number_of(kind): None for kind in kinds}


# On channel 0. A client may give up in the midst of the handshake, though RabbitMQ does not answer it then.
CONNECTION_MOVES: Final[dict[ConnectionState, dict[int, None]]] = {
    ConnectionState.STARTING: numbers_of((methods.ConnectionStartOk, methods.ConnectionClose)),
    ConnectionState.SECURING: numbers_of((methods.ConnectionSecureOk, methods.ConnectionClose)),
    ConnectionState.TUNING: numbers_of((methods.ConnectionTuneOk, methods.ConnectionClose)),
    ConnectionState.OPENING: numbers_of((methods.ConnectionOpen, methods.ConnectionClose)),
    ConnectionState.OPEN: numbers_of((methods.ConnectionClose, methods.ConnectionUpdateSecret)),
    ConnectionState.CLOSING: numbers_of((methods.ConnectionClose, methods.ConnectionCloseOk)),
}

# On every other channel of an open connection.
CHANNEL_MOVES: Final[dict[ChannelState, dict[int, None]]] = {
    ChannelState.ABSENT: numbers_of((methods.ChannelOpen,)),
    ChannelState.OPEN: numbers_of(
        (
            methods.ChannelFlow,
            methods.ChannelClose,
            methods.AccessRequest,
            methods.ExchangeDeclare,
            methods.ExchangeDelete,
            methods.ExchangeBind,
            methods.ExchangeUnbind,
            methods.QueueDeclare,
            methods.QueueBind,
            methods.QueueUnbind,
            methods.QueuePurge,
            methods.QueueDelete,
            methods.BasicQos,
            methods.BasicConsume,
            methods.BasicCancel,
            methods.BasicCancelOk,  # the answer to our own basic.cancel, from clients that give one
            methods.BasicPublish,
            methods.BasicGet,
            methods.BasicAck,
            methods.BasicReject,
            methods.BasicRecoverAsync,
            methods.BasicRecover,
            methods.BasicNack,
            methods.ConfirmSelect,
            methods.TxSelect,
            methods.TxCommit,
            methods.TxRollback,
        )
    ),
    ChannelState.ENDING: numbers_of((methods.ChannelClose,)),
    ChannelState.CLOSING: numbers_of((methods.ChannelClose, methods.ChannelCloseOk)),
}

CHANNEL_OPEN: Final = number_of(methods.ChannelOpen)


def judge_on_connection(state: ConnectionState, number: int) -> i64:
    """ACCEPTED, IGNORED, or the code that a method on channel 0 is refused with."""
    moves = CONNECTION_MOVES.get(state)
    if moves is not None and number in moves:
        return ACCEPTED
    if state is ConnectionState.CLOSING or state is ConnectionState.CLOSED:
        return IGNORED
    return CHANNEL_ERROR


def judge_on_channel(state: ChannelState, number: int) -> i64:
    """The same for a method on any other channel."""
    if number in CHANNEL_MOVES[state]:
        return ACCEPTED
    if state is ChannelState.ABSENT or number == CHANNEL_OPEN:
        return CHANNEL_ERROR
    if state is ChannelState.OPEN:
        return COMMAND_INVALID
    return IGNORED  # [AMQP091 channel.close] all but close and close-ok is dropped until it is answered
