"""Conversations over HTTP: WebSocket upgrades with MQTT in their frames, and requests to the reader."""

from __future__ import annotations

import random
import struct

from fuzz.live import mqtt
from fuzz.live.script import Script, make_script

BAD_HEADERS = [
    *(
        "Origin: http://evil.example",
        "Origin: null",
        "Host: evil.example",
        "Content-Length: 5",
        "Content-Length: -1",
    ),
    *(
        "Transfer-Encoding: chunked",
        "Expect: 100-continue",
        "Connection: close",
        "Authorization: Basic Zm9vOmJhcg==",
    ),
    *(
        "Authorization: Bearer a.b.c",
        "Authorization: Basic %%%",
        "X: " + "y" * 3000,
        "X:\x00",
        " folded",
        ": empty",
    ),
    *(
        "Content-Type: application/json",
        "Accept: */*",
        "Sec-WebSocket-Key: AAAA",
        "Sec-WebSocket-Version: 12",
    ),
]
METHODS = ("GET", "GET", "GET", "POST", "DELETE", "HEAD", "PUT", "OPTIONS", "get", "G\xc9T", "PRI")
SOME_JSON = (
    b"{}",
    b"[]",
    b'{"offset": 1}',
    b'{"offset": -1}',
    b'{"offset": 1e400}',
    b'{"a":',
    b"\xff",
    b"[" * 500,
    b"null",
)
TARGETS = [
    *(
        "/v1/health",
        "/v1/queues",
        "/v1/queues?fresh=true",
        "/v1/queues?pattern=w.*",
        "/v1/queues?pattern=((((",
        "/",
    ),
    *(
        "/v1/queues/stream",
        "/v1/queues/tasks",
        "/v1/queues/nope",
        "/v1/queues/stream/offset?timestamp=0",
        "/v1/queues/%00",
    ),
    *(
        "/v1/queues/stream/records",
        "/v1/queues/stream/records?first=0&end=5",
        "/v1/queues/stream/records?first=-1",
    ),
    *(
        "/v1/queues/stream/records?columns=payload,topic&rows=1",
        "/v1/queues/stream/records?layout=x&headers=y&gap=z",
    ),
    *("/v1/queues/stream/records?topic=%23&since=0&until=99999999999999999999", "/v1/queues/stream/groups/g"),
    *(
        "/v1/stages?query=q&batch=0&partition=0&attempt=0&queue=tasks",
        "/v1/stages?query=q&batch=0&stage=x",
        "/v1/commits",
    ),
    *(
        "/v1/queues/../../etc/passwd",
        "//v1/health",
        "http://127.0.0.1/v1/health",
        "*",
        "/v1/queues?fresh=perhaps",
        "/%",
    ),
]


def make_head(chance: random.Random, method: str, target: str, headers: list[str]) -> bytes:
    headers = list(headers)
    if chance.random() < 0.25:
        headers.insert(chance.randrange(len(headers) + 1), chance.choice(BAD_HEADERS))
    if chance.random() < 0.1 and headers:
        del headers[chance.randrange(len(headers))]
    version = "HTTP/1.1" if chance.random() < 0.97 else chance.choice(("HTTP/1.0", "HTTP/2", "HTTP/9.9", ""))
    return "\r\n".join((f"{method} {target} {version}", *headers, "", "")).encode("latin-1")


# ------------------------------------------------------------------- WebSocket


def make_frame(chance: random.Random, payload: bytes) -> bytes:
    """Mostly a binary frame with a mask; sometimes any other."""
    opcode, is_final, has_mask = 2, 0x80, 0x80
    if chance.random() < 0.2:
        opcode = chance.choice((0, 1, 2, 8, 8, 9, 10, 3, 15))
        is_final = chance.choice((0, 0x80, 0x80, 0xC0, 0xF0))
        has_mask = chance.choice((0, 0x80, 0x80, 0x80))
    if opcode == 8 and chance.random() < 0.5:
        payload = struct.pack(">H", chance.choice((1000, 1001, 1005, 999, 4000, 65535))) + payload[:20]
    size = len(payload)
    if size < 126 and chance.random() < 0.95:
        length = bytes((size | has_mask,))
    elif chance.random() < 0.9:
        length = bytes((126 | has_mask,)) + struct.pack(">H", size)
    else:
        length = bytes((127 | has_mask,)) + struct.pack(">Q", size if chance.random() < 0.8 else 1 << 62)
    mask = chance.choice((b"\0\0\0\0", chance.randbytes(4))) if has_mask else b""
    if any(mask):
        key = (mask * (size // 4 + 1))[:size]
        payload = (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")
    return bytes((is_final | opcode,)) + length + mask + payload


def make_any_frame(chance: random.Random) -> bytes:
    return make_frame(chance, mqtt.make_any(chance))


def make_websocket(chance: random.Random) -> Script:
    target = (
        "/mqtt" if chance.random() < 0.93 else chance.choice(("/", "/mqtt?x=1", "/mqtt/", "/%6dqtt", "*"))
    )
    head = make_head(
        chance,
        "GET" if chance.random() < 0.97 else chance.choice(METHODS),
        target,
        [
            "Host: 127.0.0.1",
            "Connection: keep-alive, Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Protocol: " + chance.choice(("mqtt", "mqtt", "mqttv3.1", "mqtt, x", "x")),
        ],
    )
    connect, packets = mqtt.make_conversation(chance)
    if chance.random() < 0.2:  # frames know nothing of packets: join them, or cut them elsewhere
        joined = b"".join(packets)
        middle = chance.randrange(len(joined) + 1)
        packets = [joined[:middle], joined[middle:]]
    frames = [make_frame(chance, data) for data in packets]
    return make_script(chance, "websocket", [head, make_frame(chance, connect)], frames, make_any_frame)


# ---------------------------------------------------------------------- reader


def make_request(chance: random.Random) -> bytes:
    target = chance.choice(TARGETS)
    method = chance.choice(METHODS) if chance.random() < 0.4 else "GET"
    headers = ["Host: 127.0.0.1"]
    body = b""
    if method in ("POST", "PUT") or chance.random() < 0.05:
        body = chance.choice(SOME_JSON)
        if chance.random() < 0.3:
            headers.append("Transfer-Encoding: chunked")
            ends = (b"0\r\n\r\n", b"0\r\nx: y\r\n\r\n", b"", b"ffffffffffffffff\r\n", b"-1\r\n", b"zz\r\n")
            body = b"%x\r\n%b\r\n" % (len(body), body) + chance.choice(ends)
        else:
            headers.append(f"Content-Length: {len(body) + chance.choice((0, 0, 0, 0, 1, -1, 100000))}")
    return make_head(chance, method, target, headers) + body


def make_reader(chance: random.Random) -> Script:
    requests = [make_request(chance) for _ in range(chance.randrange(1, 4))]
    return make_script(chance, "reader", [], requests, make_request)
