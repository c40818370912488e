"""Bunny in Ruby; what it claims stands in `bunny_suite.rb`, one process per claim."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from amqp_names import OURS_ONLY
from certificates import Authority
from conftest import StartBroker
from foreign_client import Certificate

pytest_plugins = ["amqp_broker", "interop_fixtures"]

SUITE = Path(__file__).parent / "bunny_suite.rb"
RUBY = shutil.which("ruby")
TIMEOUT_S = 60.0
CLAIMS = re.findall(r"^  def (\w+)\(connection\)", SUITE.read_text(encoding="utf-8"), re.MULTILINE)


def find_missing() -> str | None:
    """What has to be typed before Bunny can run, or None."""
    if RUBY is None:
        return "Ruby is not installed"
    if subprocess.run([RUBY, "-e", 'require "bunny"'], capture_output=True).returncode != 0:
        return "Bunny is not installed; type: sudo apt-get install ruby-bunny"
    return None


pytestmark = pytest.mark.skipif((missing := find_missing()) is not None, reason=missing or "")


def command(port: int, claim: str, *, scheme: str = "amqp") -> list[str]:
    assert RUBY is not None
    return [RUBY, str(SUITE), f"{scheme}://guest:guest@127.0.0.1:{port}", claim]


@pytest.mark.parametrize("claim", CLAIMS)
def test_with_bunny(amqp_port: int, claim: str) -> None:
    ended = subprocess.run(command(amqp_port, claim), capture_output=True, text=True, timeout=TIMEOUT_S)
    assert ended.returncode == 0, ended.stderr


@OURS_ONLY
@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_bunny_recovers_when_the_broker_comes_back(
    start_broker: StartBroker, tmp_path: Path, is_killed: bool
) -> None:
    """Channels, prefetch, confirms, exchanges, queues, bindings and consumers are there again."""
    broker = start_broker(f"data_dir={tmp_path}")
    port = broker.ports["amqp"]
    with subprocess.Popen(
        command(port, "recover"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as ruby:
        try:
            assert ruby.stdout is not None
            assert ruby.stdout.readline() == "ready\n", ruby.communicate(timeout=TIMEOUT_S)[1]
            if is_killed:
                broker.kill()
            else:
                broker.stop()
            start_broker(f"data_dir={tmp_path}", f"amqp.port={port}")
            complaint = ruby.communicate(timeout=TIMEOUT_S)[1]
            assert ruby.returncode == 0, complaint
        finally:
            if ruby.poll() is None:
                ruby.kill()


@OURS_ONLY
def test_bunny_comes_with_a_certificate(
    start_broker: StartBroker, authority: Authority, alice_certificate: Certificate
) -> None:
    broker = start_broker(*authority.mutual_settings("amqp"), "auth.certificates_as_users=true")
    files = [authority.ca_file, alice_certificate.cert_file, alice_certificate.key_file]
    ended = subprocess.run(
        [*command(broker.ports["amqp_tls"], "speak_tls", scheme="amqps"), *map(str, files)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert ended.returncode == 0, ended.stderr
