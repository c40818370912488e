"""MQTT.js in a Node.js process that serves all clients of the run; `mqttjs_driver.mjs` is the other side."""

from __future__ import annotations

import base64
import itertools
import json
import queue
import shutil
import subprocess
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from foreign_client import TIMEOUT_S, Address, ForeignClient, Options, Properties, Received, RefusedError

FOLDER = Path(__file__).parent
NODE = shutil.which("node")
SCHEMES = {"tcp": "mqtt", "tls": "mqtts", "ws": "ws", "wss": "wss"}


def find_missing() -> str | None:
    """What has to be typed before MQTT.js can run, or None."""
    if NODE is None:
        return "Node.js is not installed"
    if not (FOLDER / "node_modules" / "mqtt").is_dir():
        return "MQTT.js is not installed; type: npm install --prefix tests/interop"
    return None


class DriverError(Exception):
    def __init__(self, code: object, text: str) -> None:
        super().__init__(text)
        self.code = code


class Driver:
    """The Node.js process. Answers are matched by number, events go to the client they name."""

    def __init__(self) -> None:
        assert NODE is not None
        self._process = subprocess.Popen(
            [NODE, str(FOLDER / "mqttjs_driver.mjs")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=FOLDER,
        )
        self._numbers = itertools.count(1)
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._clients: dict[int, MqttJsClient] = {}
        self._writing = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def register(self, client: MqttJsClient) -> int:
        number = next(self._numbers)
        self._clients[number] = client
        return number

    def call(self, action: str, **values: object) -> dict[str, Any]:
        number = next(self._numbers)
        answer: queue.Queue[dict[str, Any]] = queue.Queue()
        self._answers[number] = answer
        assert self._process.stdin is not None
        with self._writing:
            self._process.stdin.write(json.dumps({"number": number, "action": action, **values}) + "\n")
            self._process.stdin.flush()
        try:
            line = answer.get(timeout=TIMEOUT_S)
        except queue.Empty:
            raise TimeoutError(f"MQTT.js did not answer {action}") from None
        finally:
            del self._answers[number]
        if "error" in line:
            raise DriverError(line["error"]["code"], line["error"]["text"])
        return dict(line["answer"])

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(TIMEOUT_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            line = json.loads(text)
            if "number" in line:
                answer = self._answers.get(line["number"])
                if answer is not None:  # a second answer, such as a close after a refusal, has nobody
                    answer.put(line)
            else:
                self._clients[line["client"]].on_event(line)


_shared: list[Driver] = []


def shared_driver() -> Driver:
    if not _shared:
        _shared.append(Driver())
    return _shared[0]


def stop_driver() -> None:
    while _shared:
        _shared.pop().stop()


def encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def properties_to_json(properties: Properties | None) -> dict[str, Any] | None:
    if properties is None:
        return None
    data = properties.correlation_data
    return {**asdict(properties), "correlation_data": None if data is None else encode(data)}


def properties_from_json(found: dict[str, Any]) -> Properties:
    data = found["correlation_data"]
    return Properties(
        content_type=found["content_type"],
        response_topic=found["response_topic"],
        correlation_data=None if data is None else base64.b64decode(data),
        expiry_s=found["expiry_s"],
        is_text=found["is_text"],
        user=tuple((name, value) for name, value in found["user"]),
        subscription_ids=tuple(found["subscription_ids"]),
    )


class MqttJsClient(ForeignClient):
    name = "mqttjs"
    shows_publish_reason = True

    def __init__(self, address: Address, options: Options) -> None:
        super().__init__(address, options)
        self._driver = shared_driver()
        self._number = self._driver.register(self)
        self.is_server_proven = False
        self.aliases: list[int] = []

    def _open(self) -> bool:
        return self._connect(None)

    def connect_with_scram(self, username: str, password: str) -> None:
        self._connect({"username": username, "password": password})
        self.is_joined = True

    def _connect(self, scram: dict[str, str] | None) -> bool:
        address, options = self.address, self.options
        path = address.path if address.is_websocket else ""
        will: dict[str, Any] | None = None
        if options.will is not None:
            will = asdict(options.will)
            will["payload"] = encode(options.will.payload)
            will["properties"] = properties_to_json(options.will.properties)
        certificate = options.certificate
        try:
            answer = self._call(
                "connect",
                url=f"{SCHEMES[address.transport]}://{address.host}:{address.port}{path}",
                client_id=options.client_id,
                version=options.version,
                clean=options.clean,
                keep_alive_s=options.keep_alive_s,
                username=options.username,
                password=options.password,
                session_expiry_s=options.session_expiry_s,
                topic_alias_max=options.topic_alias_max,
                ca_file=None if address.ca_file is None else str(address.ca_file),
                cert_file=None if certificate is None else str(certificate.cert_file),
                key_file=None if certificate is None else str(certificate.key_file),
                will=will,
                scram=scram,
            )
        except DriverError as error:
            if not isinstance(error.code, int):
                raise ConnectionError(str(error)) from None
            raise RefusedError(error.code) from None
        self.is_server_proven = bool(answer["is_server_proven"])
        return bool(answer["session_present"])

    def subscribe(
        self,
        filter: str,
        qos: int = 0,
        *,
        identifier: int | None = None,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
    ) -> int:
        answer = self._call(
            "subscribe",
            filter=filter,
            qos=qos,
            is_5=self.options.version == 5,
            identifier=identifier,
            no_local=no_local,
            retain_as_published=retain_as_published,
            retain_handling=retain_handling,
        )
        return int(answer["code"])

    def unsubscribe(self, filter: str) -> None:
        self._call("unsubscribe", filter=filter)

    def publish_all(
        self, topic: str, payloads: list[bytes], qos: int, *, retain: bool, properties: Properties | None
    ) -> list[int | None]:
        answer = self._call(
            "publish",
            topic=topic,
            payloads=[encode(payload) for payload in payloads],
            qos=qos,
            retain=retain,
            properties=properties_to_json(properties),
        )
        return list(answer["codes"])

    def disconnect(self) -> None:
        self._call("disconnect")

    def cut(self) -> None:
        self._call("cut")
        self.inbox.wait_closed()

    def fall_silent(self) -> None:
        """Keep the connection open and send nothing on it any more, no PINGREQ either."""
        self._call("fall_silent")

    def on_event(self, line: dict[str, Any]) -> None:
        match line["event"]:
            case "message":
                if line["alias"] is not None:
                    self.aliases.append(line["alias"])
                self.inbox.put(
                    Received(
                        line["topic"],
                        base64.b64decode(line["payload"]),
                        line["qos"],
                        line["retain"],
                        properties_from_json(line["properties"]),
                    )
                )
            case "ping":
                self.inbox.on_ping_answered()
            case "disconnect":
                self.inbox.on_disconnect_code(line["code"])
            case "closed":
                self.inbox.on_closed()

    def _call(self, action: str, **values: object) -> dict[str, Any]:
        return self._driver.call(action, client=self._number, **values)
