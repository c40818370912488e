"""`millstream definitions …` and `millstream exchange …` against a real broker, as an operator types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from conftest import BrokerProcess, StartBroker
from typer.testing import CliRunner, Result

from millstream.commands.tree import app

EXPORT = {
    "rabbit_version": "3.10.8",
    "vhosts": [{"name": "/"}, {"name": "nowhere"}],
    "users": [{"name": "ann", "password_hash": "M69BxXru", "tags": []}],
    "exchanges": [
        {
            "name": "orders",
            "vhost": "/",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "arguments": {},
        },
        {"name": "lost", "vhost": "nowhere", "type": "fanout", "durable": True, "arguments": {}},
    ],
    "queues": [
        {
            "name": "jobs",
            "vhost": "/",
            "durable": True,
            "auto_delete": False,
            "type": "quorum",
            "arguments": {"x-queue-type": "quorum", "x-delivery-limit": 3},
        }
    ],
    "bindings": [
        {
            "source": "orders",
            "vhost": "/",
            "destination": "jobs",
            "destination_type": "queue",
            "routing_key": "#.created",
            "arguments": {},
        },
    ],
}


def data_dir(broker: BrokerProcess) -> Path:
    return broker.log_file.parent / "data"


def run(broker: BrokerProcess, *command: str) -> Result:
    return CliRunner().invoke(app, [*command, "--set", f"data_dir={data_dir(broker)}"])


def ask(broker: BrokerProcess, *command: str) -> Any:
    result = run(broker, *command, "-o", "json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_what_was_imported_survives_a_kill_and_is_exported_again(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker()
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(EXPORT))
    result = run(broker, "definitions", "import", str(file), "-o", "json")
    assert result.exit_code == 1  # a user and a virtual host are not here
    told = json.loads(result.stdout)
    assert told["created"] == 3
    assert [(left["kind"], left["name"]) for left in told["not_imported"]] == [
        ("users", "ann"),
        ("vhosts", "nowhere"),
    ]
    assert "M69BxXru" not in result.stdout + result.stderr
    broker.kill()

    again = start_broker(f"data_dir={data_dir(broker)}")
    written = tmp_path / "written.json"
    result = CliRunner().invoke(
        app,
        [
            *("definitions", "export", str(written), "--set", f"data_dir={data_dir(broker)}", "-o", "json"),
            *("--set", "amqp.policies.short.pattern=^jobs", "--set", "amqp.policies.short.message_ttl=1s"),
        ],
    )
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["lost"] == []
    found = json.loads(written.read_text())
    assert found["bindings"] == EXPORT["bindings"]
    assert found["queues"][0]["arguments"] == {"x-queue-type": "quorum", "x-delivery-limit": 3}
    assert [exchange["name"] for exchange in found["exchanges"]] == ["orders"]
    assert found["policies"][0]["definition"] == {"message-ttl": 1000}
    written.write_text(json.dumps({**found, "policies": []}))
    result = CliRunner().invoke(
        app, ["definitions", "import", str(written), "--set", f"data_dir={data_dir(broker)}"]
    )
    assert (result.exit_code, result.stdout) == (0, "0 made, 3 were there just like this.\n")
    assert again.process.poll() is None


def test_exchanges_are_made_bound_shown_and_deleted_by_command(start_broker: StartBroker) -> None:
    broker = start_broker()
    assert (
        run(broker, "exchange", "declare", "events", "--type", "headers").stdout
        == "events is made (headers).\n"
    )
    assert run(broker, "queue", "create", "red").exit_code == 0
    bind = ("exchange", "bind", "events", "red", "--argument", "x-match=any", "--argument", "size=3")
    assert ask(broker, *bind)["created"]
    shown = ask(broker, "exchange", "show", "events")
    assert shown["bound"][0]["arguments"] == {"x-match": "any", "size": 3}
    assert "events" in run(broker, "exchange", "list").stdout
    refused = run(broker, "exchange", "delete", "events", "--if-unused", "--yes")
    assert refused.exit_code == 4
    assert "in use" in refused.stderr
    assert run(broker, "exchange", "delete", "events", "--yes").exit_code == 0
    assert run(broker, "exchange", "show", "events").exit_code == 4
