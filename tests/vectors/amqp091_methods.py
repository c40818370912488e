"""Every method of AMQP 0-9-1 and of RabbitMQ's extensions as data, and methods that are none.

Shared by the unit tests and, as seeds, by the fuzzers.
"""

from __future__ import annotations

from vectors.amqp091_vector import FRAME, PRECONDITION, SYNTAX, UNKNOWN, MethodVector, long, method, short

from millstream.protocols.amqp091.wire import methods as m

TICKET = b"\x00\x00"
TAG = b"\x00\x00\x00\x00\x00\x00\x01\x02"
TABLE = long(short(b"k"), b"S", long(b"v"))
VALUES: dict[bytes, object] = {b"k": b"v"}


def good(class_id: int, method_id: int, expected: m.Method, *parts: bytes) -> MethodVector:
    name = type(expected).__name__
    return MethodVector(name, method(class_id, method_id, *parts), expected)


def odd(name: str, data: bytes, expected: m.Method) -> MethodVector:
    return MethodVector(name, data, expected, canonical=False)


def bad(name: str, data: bytes, violation: int = SYNTAX) -> MethodVector:
    return MethodVector(name, data, None, violation)


CONNECTION = [
    good(
        10, 10, m.ConnectionStart(0, 9, VALUES, b"PLAIN AMQPLAIN", b"en_US"),
        b"\x00\x09", TABLE, long(b"PLAIN AMQPLAIN"), long(b"en_US"),
    ),
    good(
        10, 11, m.ConnectionStartOk(VALUES, b"PLAIN", b"\x00guest\x00guest", b"en_US"),
        TABLE, short(b"PLAIN"), long(b"\x00guest\x00guest"), short(b"en_US"),
    ),
    good(10, 20, m.ConnectionSecure(b"\xff\x00"), long(b"\xff\x00")),
    good(10, 21, m.ConnectionSecureOk(b"answer"), long(b"answer")),
    good(10, 30, m.ConnectionTune(2047, 131072, 60), b"\x07\xff", b"\x00\x02\x00\x00", b"\x00\x3c"),
    good(10, 31, m.ConnectionTuneOk(65535, 4294967295, 0), b"\xff\xff", b"\xff\xff\xff\xff", b"\x00\x00"),
    good(10, 40, m.ConnectionOpen(b"/"), short(b"/"), b"\x00", b"\x00"),
    good(10, 41, m.ConnectionOpenOk(), b"\x00"),
    good(
        10, 50, m.ConnectionClose(541, b"INTERNAL_ERROR", 60, 40),
        b"\x02\x1d", short(b"INTERNAL_ERROR"), b"\x00\x3c", b"\x00\x28",
    ),
    good(10, 51, m.ConnectionCloseOk()),
    good(10, 60, m.ConnectionBlocked(b"low on disk"), short(b"low on disk")),
    good(10, 61, m.ConnectionUnblocked()),
    good(10, 70, m.ConnectionUpdateSecret(b"token", b"old"), long(b"token"), short(b"old")),
    good(10, 71, m.ConnectionUpdateSecretOk()),
    good(20, 10, m.ChannelOpen(), b"\x00"),
    good(20, 11, m.ChannelOpenOk(), b"\x00\x00\x00\x00"),
    good(20, 20, m.ChannelFlow(True), b"\x01"),
    good(20, 21, m.ChannelFlowOk(False), b"\x00"),
    good(
        20, 40, m.ChannelClose(404, "NOT_FOUND ä".encode(), 50, 10),
        b"\x01\x94", short("NOT_FOUND ä".encode()), b"\x00\x32", b"\x00\x0a",
    ),
    good(20, 41, m.ChannelCloseOk()),
    good(30, 10, m.AccessRequest(b"/data", True, False, True, False, True), short(b"/data"), b"\x15"),
    good(30, 11, m.AccessRequestOk(1), b"\x00\x01"),
]  # fmt: skip

QUEUES = [
    good(
        40, 10, m.ExchangeDeclare(b"e", b"topic", False, True, False, True, False, VALUES),
        TICKET, short(b"e"), short(b"topic"), b"\x0a", TABLE,
    ),
    good(40, 11, m.ExchangeDeclareOk()),
    good(40, 20, m.ExchangeDelete(b"e", True, False), TICKET, short(b"e"), b"\x01"),
    good(40, 21, m.ExchangeDeleteOk()),
    good(
        40, 30, m.ExchangeBind(b"to", b"from", b"#", True, VALUES),
        TICKET, short(b"to"), short(b"from"), short(b"#"), b"\x01", TABLE,
    ),
    good(40, 31, m.ExchangeBindOk()),
    good(
        40, 40, m.ExchangeUnbind(b"to", b"from", b"", False, {}),
        TICKET, short(b"to"), short(b"from"), short(b""), b"\x00", long(),
    ),
    good(40, 51, m.ExchangeUnbindOk()),
    good(
        50, 10, m.QueueDeclare(b"q" * 255, True, False, True, False, True, VALUES),
        TICKET, short(b"q" * 255), b"\x15", TABLE,
    ),
    good(50, 11, m.QueueDeclareOk(b"q", 4294967295, 2), short(b"q"), b"\xff\xff\xff\xff", b"\x00\x00\x00\x02"),
    good(
        50, 20, m.QueueBind(b"q", b"e", b"a.*", False, VALUES),
        TICKET, short(b"q"), short(b"e"), short(b"a.*"), b"\x00", TABLE,
    ),
    good(50, 21, m.QueueBindOk()),
    good(50, 30, m.QueuePurge(b"q", True), TICKET, short(b"q"), b"\x01"),
    good(50, 31, m.QueuePurgeOk(3), b"\x00\x00\x00\x03"),
    good(50, 40, m.QueueDelete(b"q", False, True, True), TICKET, short(b"q"), b"\x06"),
    good(50, 41, m.QueueDeleteOk(0), b"\x00\x00\x00\x00"),
    good(
        50, 50, m.QueueUnbind(b"q", b"e", b"k", {}),
        TICKET, short(b"q"), short(b"e"), short(b"k"), long(),
    ),
    good(50, 51, m.QueueUnbindOk()),
]  # fmt: skip

BASIC = [
    good(60, 10, m.BasicQos(0, 10, True), b"\x00\x00\x00\x00", b"\x00\x0a", b"\x01"),
    good(60, 11, m.BasicQosOk()),
    good(
        60, 20, m.BasicConsume(b"q", b"t", False, True, True, False, VALUES),
        TICKET, short(b"q"), short(b"t"), b"\x06", TABLE,
    ),
    good(60, 21, m.BasicConsumeOk(b"t"), short(b"t")),
    good(60, 30, m.BasicCancel(b"t", True), short(b"t"), b"\x01"),
    good(60, 31, m.BasicCancelOk(b"t"), short(b"t")),
    good(60, 40, m.BasicPublish(b"e", b"k", True, False), TICKET, short(b"e"), short(b"k"), b"\x01"),
    good(
        60, 50, m.BasicReturn(312, b"NO_ROUTE", b"e", b"k"),
        b"\x01\x38", short(b"NO_ROUTE"), short(b"e"), short(b"k"),
    ),
    good(
        60, 60, m.BasicDeliver(b"t", 258, True, b"e", b"k"),
        short(b"t"), TAG, b"\x01", short(b"e"), short(b"k"),
    ),
    good(60, 70, m.BasicGet(b"q", True), TICKET, short(b"q"), b"\x01"),
    good(
        60, 71, m.BasicGetOk(258, False, b"e", b"k", 7),
        TAG, b"\x00", short(b"e"), short(b"k"), b"\x00\x00\x00\x07",
    ),
    good(60, 72, m.BasicGetEmpty(), b"\x00"),
    good(60, 80, m.BasicAck(258, True), TAG, b"\x01"),
    good(60, 90, m.BasicReject(258, True), TAG, b"\x01"),
    good(60, 100, m.BasicRecoverAsync(True), b"\x01"),
    good(60, 110, m.BasicRecover(False), b"\x00"),
    good(60, 111, m.BasicRecoverOk()),
    good(60, 120, m.BasicNack(258, False, True), TAG, b"\x02"),
    good(85, 10, m.ConfirmSelect(True), b"\x01"),
    good(85, 11, m.ConfirmSelectOk()),
    good(90, 10, m.TxSelect()),
    good(90, 11, m.TxSelectOk()),
    good(90, 20, m.TxCommit()),
    good(90, 21, m.TxCommitOk()),
    good(90, 30, m.TxRollback()),
    good(90, 31, m.TxRollbackOk()),
]  # fmt: skip

# a publisher may write any bytes as a key
KEYS = [
    MethodVector(
        "a publish with any key",
        method(60, 40, TICKET, b"\x00", short(b"\xff\x00"), b"\x00"),
        m.BasicPublish(b"", b"\xff\x00", False, False),
    ),
    MethodVector(
        "a publish to a name beyond ASCII",
        method(60, 40, TICKET, short("ä".encode()), short(b"\xff"), b"\x00"),
        m.BasicPublish("ä".encode(), b"\xff", False, False),
    ),
    MethodVector(
        "a return with any key",
        method(60, 50, b"\x01\x38", b"\x00", b"\x00", short(b"\xff")),
        m.BasicReturn(312, b"", b"", b"\xff"),
    ),
    MethodVector(
        "a deliver with any key",
        method(60, 60, b"\x00", TAG, b"\x00", b"\x00", short(b"\xff")),
        m.BasicDeliver(b"", 258, False, b"", b"\xff"),
    ),
    MethodVector(
        "a deliver from a name beyond ASCII",
        method(60, 60, b"\x00", TAG, b"\x00", short("ä".encode()), short(b"\xff")),
        m.BasicDeliver(b"", 258, False, "ä".encode(), b"\xff"),
    ),
    MethodVector(
        "a get-ok with any key",
        method(60, 71, TAG, b"\x00", b"\x00", short(b"\xff"), b"\x00" * 4),
        m.BasicGetOk(258, False, b"", b"\xff", 0),
    ),
]

# read, but written otherwise
ODD = [
    odd("a ticket", method(60, 70, b"\x00\x65", short(b"q"), b"\x01"), m.BasicGet(b"q", True)),
    odd(
        "a ticket of publish",
        method(60, 40, b"\x00\x65", b"\x00\x00\x00"),
        m.BasicPublish(b"", b"", False, False),
    ),
    odd("bits that mean nothing", method(60, 80, TAG, b"\xff"), m.BasicAck(258, True)),
    odd("an id in get-empty", method(60, 72, short(b"cluster")), m.BasicGetEmpty()),
    odd(
        "capabilities and insist", method(10, 40, short(b"/"), short(b"cap"), b"\x01"), m.ConnectionOpen(b"/")
    ),
    odd("an out of band channel", method(20, 10, short(b"x")), m.ChannelOpen()),
    odd("a channel id", method(20, 11, long(b"id")), m.ChannelOpenOk()),
]

BAD = [
    bad("nothing", b"", FRAME),
    bad("half of the ids", b"\x00\x3c\x00", FRAME),
    bad("an unknown class", method(61, 10), UNKNOWN),
    bad("an unknown method", method(60, 41), UNKNOWN),
    bad("numbers from the far end", b"\xff\xff\xff\xff", UNKNOWN),
    bad("queue.declare without arguments", method(50, 10)),
    bad("a ticket cut short", method(50, 10, b"\x00")),
    bad("no length of a short string", method(50, 10, TICKET)),
    bad("a short string that is too long", method(50, 30, TICKET, b"\x03q", b"\x01")),
    bad("a short string that is not UTF-8", method(50, 30, TICKET, short(b"\xff"), b"\x01")),
    bad("a surrogate", method(50, 30, TICKET, short(b"\xed\xa0\x80"), b"\x01")),
    bad("no bits", method(50, 30, TICKET, short(b"q"))),
    bad("no table", method(50, 10, TICKET, short(b"q"), b"\x00")),
    bad("a table that is too long", method(50, 10, TICKET, short(b"q"), b"\x00", b"\x00\x00\x00\x01")),
    bad("a table of nonsense", method(50, 10, TICKET, short(b"q"), b"\x00", long(b"\x01kZ"))),
    bad("a long string of 4 GiB", method(10, 21, b"\xff\xff\xff\xff", b"x")),
    bad("a length of three bytes", method(10, 21, b"\x00\x00\x00")),
    bad("a reserved string that is too long", method(20, 10, b"\x02x")),
    bad("bytes behind the last argument", method(60, 80, TAG, b"\x01", b"\x00")),
    bad("bytes behind no arguments", method(90, 10, b"\x00")),
    bad("an ack cut short", method(60, 80, TAG)),
    bad(
        "a publish whose exchange is not UTF-8", method(60, 40, TICKET, short(b"\xc3"), short(b"k"), b"\x00")
    ),
    bad("a publish with bytes behind it", method(60, 40, TICKET, short(b"e"), short(b"k"), b"\x00\x00")),
    bad("a publish cut short", method(60, 40, TICKET, short(b"e"), short(b"k"))),
    bad("a deliver cut short", method(60, 60, short(b"t"), TAG, b"\x01", short(b"e"))),
    bad("an empty deliver", method(60, 60)),
    bad(
        "a deliver whose exchange is not UTF-8",
        method(60, 60, short(b"t"), TAG, b"\x01", short(b"\xff"), short(b"k")),
    ),
    bad("a tag nobody counts to", method(60, 80, b"\xff" * 8, b"\x01"), PRECONDITION),
    bad(
        "a deliver of a tag nobody counts to",
        method(60, 60, b"\x00", b"\x80", TAG[1:], b"\x00" * 3),
        PRECONDITION,
    ),
]

GOOD = [*CONNECTION, *QUEUES, *BASIC]
METHOD_VECTORS = [*GOOD, *KEYS, *ODD, *BAD]
