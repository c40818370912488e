"""The asyncio client against a broker that plays a script: what it says when things go wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from millstream.client.mqtt_client import Authenticator, ExitKind, MqttClient, MqttClientError
from millstream.protocols.mqtt.wire.packets import Will

CONNACK = b"\x20\x03\x00\x00\x00"
Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[int]:
    """A server on a free port that answers every connection with `script`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await script(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left first; the test looks at what the client says
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def read_packet(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(2)
    return head + await reader.readexactly(head[1])


def answering(*data: bytes) -> Script:
    """Reads a packet before each answer, then one more until the client leaves."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in data:
            await read_packet(reader)
            writer.write(answer)
        await reader.read()

    return script


async def fault_of(work: Awaitable[object]) -> MqttClientError:
    with pytest.raises(MqttClientError) as caught:
        await work
    return caught.value


async def test_nothing_listening_is_said_with_what_to_do() -> None:
    async with scripted(answering()) as port:
        pass
    fault = await fault_of(MqttClient.connect("127.0.0.1", port))
    assert fault.exit_kind is ExitKind.UNREACHABLE
    assert f"127.0.0.1:{port}" in fault.text
    assert "millstream serve" in fault.text


@pytest.mark.parametrize(("host", "port"), [("x" * 300, 1883), ("127.0.0.1", 99999)])
async def test_an_impossible_address_is_said(host: str, port: int) -> None:
    assert (await fault_of(MqttClient.connect(host, port))).exit_kind is ExitKind.UNREACHABLE


async def test_a_server_that_says_nothing_is_given_up() -> None:
    async with scripted(answering()) as port:
        fault = await fault_of(MqttClient.connect("127.0.0.1", port, timeout_s=0.05))
    assert fault.exit_kind is ExitKind.TIMEOUT


async def test_a_refusal_carries_the_brokers_reason() -> None:
    refusal = b"\x20\x0c\x00\x86\x09\x1f\x00\x06sorry!"
    async with scripted(answering(refusal)) as port:
        fault = await fault_of(MqttClient.connect("127.0.0.1", port))
    assert (fault.exit_kind, fault.reason) == (ExitKind.REFUSED, 0x86)
    assert fault.text == "the broker refused the connection: bad user name or password (sorry!)"


async def test_a_311_refusal_is_in_the_words_of_311() -> None:
    async with scripted(answering(b"\x20\x02\x00\x02")) as port:
        fault = await fault_of(MqttClient.connect("127.0.0.1", port, version=4))
    assert fault.text == "the broker refused the connection: identifier rejected"


async def test_a_server_of_another_protocol_is_told_apart() -> None:
    async with scripted(answering(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as port:
        fault = await fault_of(MqttClient.connect("127.0.0.1", port))
    assert fault.exit_kind is ExitKind.CLOSED
    assert "does not speak MQTT" in fault.text


async def test_a_server_without_websocket_is_told_apart() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        await reader.read()

    async with scripted(script) as port:
        fault = await fault_of(MqttClient.connect("127.0.0.1", port, websocket_path="/mqtt"))
    assert fault.exit_kind is ExitKind.UNREACHABLE
    assert "404" in fault.text


async def test_a_publish_that_is_never_confirmed_times_out() -> None:
    async with scripted(answering(CONNACK)) as port:
        client = await MqttClient.connect("127.0.0.1", port, timeout_s=0.1)
        fault = await fault_of(client.publish("a", b"x", 1))
        assert fault.exit_kind is ExitKind.TIMEOUT
        await client.disconnect()


async def test_all_who_wait_learn_that_the_connection_ended() -> None:
    async with scripted(answering(CONNACK, b"", b"", b"\xe0\x01\x8b")) as port:
        client = await MqttClient.connect("127.0.0.1", port)
        results = await asyncio.gather(
            client.publish("a", b"x", 1),
            client.publish("a", b"x", 2),
            client.subscribe([("a", 1)]),
            anext(client.messages()),
            return_exceptions=True,
        )
    for result in results:
        assert isinstance(result, MqttClientError)
        assert result.reason == 0x8B
        assert "server shutting down" in result.text
    assert (await fault_of(client.publish("a", b""))).reason == 0x8B


async def test_messages_that_came_before_the_end_are_still_given() -> None:
    async with scripted(answering(CONNACK + b"\x30\x05\x00\x01a\x00x\xe0\x01\x8b")) as port:
        client = await MqttClient.connect("127.0.0.1", port)
        messages = client.messages()
        assert (await anext(messages)).payload == b"x"
        assert (await fault_of(anext(messages))).reason == 0x8B


@pytest.mark.parametrize("topic", ["", "a/+", "#", "a\x00b", "\udc80"])
async def test_a_topic_that_cannot_be_sent_is_refused_at_once(topic: str) -> None:
    async with scripted(answering(CONNACK)) as port:
        client = await MqttClient.connect("127.0.0.1", port)
        assert (await fault_of(client.publish(topic, b"", 1))).exit_kind is ExitKind.USAGE
        await client.disconnect()


@pytest.mark.parametrize(
    "filters", [[], [("", 0)], [("a/#/b", 0)], [("a", 3)], [("$share/g", 0)], [("\udc80", 0)]]
)
async def test_filters_that_cannot_be_sent_are_refused_at_once(filters: list[tuple[str, int]]) -> None:
    async with scripted(answering(CONNACK)) as port:
        client = await MqttClient.connect("127.0.0.1", port)
        assert (await fault_of(client.subscribe(filters))).exit_kind is ExitKind.USAGE
        await client.disconnect()


async def test_options_that_cannot_be_sent_are_refused_at_once() -> None:
    for work in (
        MqttClient.connect("127.0.0.1", 1, version=6),
        MqttClient.connect("127.0.0.1", 1, version=4, password=b"x"),
        MqttClient.connect("127.0.0.1", 1, keep_alive_s=70_000),
        MqttClient.connect("127.0.0.1", 1, client_id="x" * 70_000),
        MqttClient.connect("127.0.0.1", 1, username="\udc80"),
        MqttClient.connect("127.0.0.1", 1, will=Will(b"t" * 70_000, b"")),
    ):
        assert (await fault_of(work)).exit_kind is ExitKind.USAGE


class Echo(Authenticator):
    method = b"ECHO"

    def start(self) -> bytes:
        return b"hello"

    def answer(self, data: bytes) -> bytes:
        return data.upper()


async def test_an_authenticator_answers_the_server() -> None:
    heard: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await read_packet(reader))
        writer.write(b"\xf0\x0e\x18\x0c\x15\x00\x04ECHO\x16\x00\x02ab")
        heard.append(await read_packet(reader))
        writer.write(CONNACK)
        await reader.read()

    async with scripted(script) as port:
        client = await MqttClient.connect("127.0.0.1", port, authenticator=Echo())
        await client.disconnect()
    assert b"\x15\x00\x04ECHO\x16\x00\x05hello" in heard[0]
    assert heard[1].endswith(b"\x16\x00\x02AB")


async def test_a_cancelled_connect_leaves_nothing_open() -> None:
    left = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_packet(reader)
        connected.set()
        try:
            await reader.read()
        finally:
            left.set()

    connected = asyncio.Event()
    async with scripted(script) as port:
        attempt = asyncio.create_task(MqttClient.connect("127.0.0.1", port))
        await connected.wait()
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
        await left.wait()
