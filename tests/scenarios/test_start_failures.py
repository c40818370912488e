"""A start that fails says which setting is in the way, where it was written, why, and what to type next; the exit code says
whether starting again can help (1) or not (2)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from conftest import StartBroker

TIMEOUT_S = 60
PROJECT = Path(__file__).resolve().parents[2]
PATHS = [str(Path(path).absolute()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
PORT_HINTS = ("mqtt.port=0", "websocket.port=0", "amqp.port=0")


def serve(
    folder: Path,
    text: str,
    *,
    settings: tuple[str, ...] = (),
    module: str = "millstream",
    before: tuple[str, ...] = (),
) -> tuple[int, str]:
    """Exit code and standard error of a broker that must not start."""
    config = folder / "plant.yaml"
    config.write_text("mqtt:\n  port: 0\nwebsocket:\n  enabled: false\namqp:\n  enabled: false\n" + text)
    command = [*before, sys.executable, "-m", module, "serve", "--config", str(config)]
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([*PATHS, str(PROJECT)])},
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def assert_data_dir_refused(folder: Path, path: Path, *words: str) -> None:
    code, said = serve(folder, f"data_dir: {path}\n")
    assert code == 2, said
    assert "plant.yaml:7: data_dir: " in said
    for word in words:
        assert word in said
    assert "next: " in said
    assert not any(hint in said for hint in PORT_HINTS)


def test_a_data_dir_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("mine")
    assert_data_dir_refused(tmp_path, tmp_path / "data", "is not a directory", "--set data_dir=OTHER_DIR")
    assert (tmp_path / "data").read_text() == "mine"


def test_a_data_dir_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert_data_dir_refused(tmp_path, tmp_path / "file" / "data", "cannot be made", "Not a directory")


def test_a_data_dir_that_cannot_be_made(tmp_path: Path) -> None:
    """Not even by root: the system makes nothing there."""
    assert_data_dir_refused(tmp_path, Path("/proc/millstream/data"), "cannot be made")


def test_a_data_dir_with_a_name_that_is_too_long(tmp_path: Path) -> None:
    assert_data_dir_refused(tmp_path, tmp_path / ("x" * 300), "File name too long")


def test_a_data_dir_whose_parents_are_missing_is_made(start_broker: StartBroker, tmp_path: Path) -> None:
    start_broker(f"data_dir={tmp_path / 'a' / 'b' / 'c'}")
    assert (tmp_path / "a" / "b" / "c" / "log").is_dir()


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "mounted"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,ro", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may mount a read-only file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("name", [".", "data"])
def test_a_data_dir_on_a_read_only_file_system(tmp_path: Path, read_only: Path, name: str) -> None:
    advice = f"mount -o remount,rw {read_only}"
    assert_data_dir_refused(tmp_path, read_only / name, "Read-only file system", advice)


@pytest.mark.parametrize("part", [".", "log", "state", "lock"])
def test_a_data_dir_that_may_not_be_written_to(tmp_path: Path, part: str) -> None:
    """A part that was left by a command of another user counts too."""
    data = tmp_path / "data"
    data.mkdir()
    denied = data / part
    if part == "lock":
        denied.touch()
    else:
        denied.mkdir(exist_ok=True)
    denied.chmod(0o400 if part == "lock" else 0o500)
    code, said = serve(tmp_path, f"data_dir: {data}\n", module="crash.unprivileged")
    assert code == 2, said
    assert "plant.yaml:7: data_dir: " in said
    assert "cannot be written to: Permission denied (the broker runs as " in said
    assert "next: sudo chown -R " in said
    assert said.rstrip().endswith(str(denied))


def test_a_data_dir_in_use(start_broker: StartBroker, tmp_path: Path) -> None:
    """Starting again may help: exit code 1."""
    start_broker(f"data_dir={tmp_path / 'data'}")
    code, said = serve(tmp_path, f"data_dir: {tmp_path / 'data'}\n")
    assert code == 1
    assert "plant.yaml:7: data_dir: " in said
    assert "is in use by another broker" in said
    assert f"next: fuser -v {tmp_path / 'data' / 'lock'}" in said


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, said = serve(
            tmp_path,
            f"data_dir: {tmp_path / 'data'}\nreader:\n  enabled: false\n",
            settings=(f"mqtt.port={port}",),
        )
    assert code == 1
    assert f"--set mqtt.port={port}: mqtt.port: 127.0.0.1 port {port} cannot be listened on" in said
    assert "next: millstream serve --set mqtt.port=0" in said


def test_an_address_of_another_machine(tmp_path: Path) -> None:
    """The host is in the way, not the port."""
    text = f"data_dir: {tmp_path / 'data'}\nauth:\n  allow_anonymous: true\n"
    code, said = serve(tmp_path, text, settings=("mqtt.host=192.0.2.1",))
    assert code == 2
    assert "--set mqtt.host=192.0.2.1: mqtt.host: 192.0.2.1 port 0 cannot be listened on" in said
    assert "next: millstream serve --set mqtt.host=127.0.0.1" in said


def test_a_privileged_port(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may use every port")
    code, said = serve(tmp_path, f"data_dir: {tmp_path / 'data'}\n", settings=("mqtt.port=81",))
    assert code == 2
    assert "CAP_NET_BIND_SERVICE" in said


def make_certificate(folder: Path, name: str) -> None:
    """`NAME.pem` and `NAME.key`, which belong together."""
    made = trustme.CA().issue_cert("localhost")
    made.private_key_pem.write_to_path(folder / f"{name}.key")
    made.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
    (folder / f"{name}.key").chmod(0o600)


@pytest.mark.parametrize(
    ("section", "cert", "key", "named", "words"),
    [
        ("amqp", "good.pem", "other.key", "cert_file", "(key values mismatch)"),
        ("mqtt", "absent.pem", "good.key", "cert_file", "names a file that does not exist"),
        ("mqtt", "good.pem", "absent.key", "key_file", "names a file that does not exist"),
        ("amqp", "nothing.pem", "good.key", "cert_file", "are not a certificate and its key"),
        ("mqtt", ".", "good.key", "cert_file", "must name a file"),
    ],
)
def test_certificates_that_cannot_be_used(
    tmp_path: Path, section: str, cert: str, key: str, named: str, words: str
) -> None:
    make_certificate(tmp_path, "good")
    make_certificate(tmp_path, "other")
    (tmp_path / "nothing.pem").write_text("nothing\n")
    text = f"data_dir: {tmp_path / 'data'}\n"
    tls = (f"{section}.tls.cert_file={cert}", f"{section}.tls.key_file={key}", f"{section}.enabled=true")
    code, said = serve(tmp_path, text, settings=(*tls, f"{section}.tls.port=0"))
    assert code == 2, said
    assert f"{section}.tls.{named}" in said
    assert words in said
    assert "next: " in said
    assert not (tmp_path / "data").exists(), "nothing is opened or changed"


@pytest.mark.parametrize(("folder", "name"), [("log", "syslog"), ("state", "last.db")])
def test_a_directory_of_somebody_else(tmp_path: Path, folder: str, name: str) -> None:
    """As /var would be: its log/ belongs to the system."""
    (tmp_path / "var" / folder).mkdir(parents=True)
    (tmp_path / "var" / folder / name).write_text("mine")
    assert_data_dir_refused(tmp_path, tmp_path / "var", f"it holds {folder}/{name}", "OTHER_DIR")
    assert not (tmp_path / "var" / "lock").exists()


def test_a_directory_on_file_systems_of_its_own_is_used(start_broker: StartBroker, tmp_path: Path) -> None:
    """Each has a folder `lost+found` from the first day on."""
    for folder in (".", "log", "state", "queues"):
        (tmp_path / "data" / folder / "lost+found").mkdir(parents=True)
    settings = f"data_dir={tmp_path / 'data'}"
    assert start_broker(settings).stop() == 0
    assert start_broker(settings).stop() == 0


def test_a_limit_of_descriptors_that_is_too_low(tmp_path: Path) -> None:
    limited = ("sh", "-c", 'ulimit -n 40; exec "$@"', "sh")
    code, said = serve(tmp_path, f"data_dir: {tmp_path / 'data'}\n", before=limited)
    assert code == 2
    assert "the limit of 40 file descriptors is too low" in said
    assert "next: ulimit -n" in said


def test_a_queue_that_is_of_another_kind(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker(f"data_dir={tmp_path / 'data'}", "queues.a.kind=stream")
    assert broker.stop() == 0
    code, said = serve(tmp_path, f"data_dir: {tmp_path / 'data'}\nqueues:\n  a:\n    kind: work\n")
    assert code == 2
    assert "plant.yaml:10: queues.a: " in said
    assert "next: millstream queue show a" in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense: 1\n", "plant.yaml:7: nonsense is not a known key"),
        ("auth:\n  acl_file: absent.yaml\n", "plant.yaml:8: auth.acl_file names a file that does not exist"),
        ("auth:\n  acl_file: plant.yaml\n", "plant.yaml:8: auth.acl_file cannot be used"),
        (
            "auth:\n  password_file: absent\n",
            "plant.yaml:8: auth.password_file names a file that does not exist",
        ),
    ],
)
def test_a_configuration_that_cannot_be_used(tmp_path: Path, text: str, words: str) -> None:
    code, said = serve(tmp_path, text)
    assert code == 2
    assert words in said
    assert "next: " in said
