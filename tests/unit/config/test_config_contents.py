from __future__ import annotations

from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from millstream.config.contents import make_token_verifier, read_acl, read_users
from millstream.config.faults import ConfigFault
from millstream.config.load import config_of


def private(path: Path, text: str | bytes) -> str:
    path.touch(0o600)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def fault_of(values: dict[str, object]) -> str:
    with pytest.raises(ConfigFault) as caught:
        config_of(values)
    return str(caught.value)


def test_a_bad_line_of_a_password_file_is_told_with_file_and_line(tmp_path: Path) -> None:
    file = private(tmp_path / "users.txt", "# users\n\nalice:plain\n")
    with pytest.raises(ConfigFault) as caught:
        read_users(Path(file))
    assert caught.value.faults[0].origin.text == f"{file}:3"
    assert "plain" not in str(caught.value)
    assert f"{file}:3" in fault_of({"auth": {"password_file": file}})


def test_a_bad_rule_of_an_access_list_is_told_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "acl.yaml"
    file.write_text(
        "rules:\n  - allow: all\n    topics: ['#']\n  - allow: all\n    topics:\n      - a\n      - a/#/b\n"
    )
    with pytest.raises(ConfigFault) as caught:
        read_acl(file)
    assert caught.value.faults[0].origin.line == 7
    assert "acl_file" in fault_of({"auth": {"acl_file": str(file)}})


def test_a_key_that_stands_twice_in_an_access_list_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "acl.yaml"
    file.write_text("default: deny\nrules: []\ndefault: allow\n")
    with pytest.raises(ConfigFault) as caught:
        read_acl(file)
    assert caught.value.faults[0].origin.line == 3


def test_an_empty_access_list_denies_everything(tmp_path: Path) -> None:
    file = tmp_path / "acl.yaml"
    file.write_text("")
    acl = read_acl(file)
    assert (acl.rules, acl.default_allow) == ([], False)


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o666, 0o602, 0o601])
def test_a_private_file_must_be_private(tmp_path: Path, mode: int) -> None:
    file = private(tmp_path / "users.txt", "")
    (tmp_path / "users.txt").chmod(mode)
    assert f"chmod 600 {file}" in fault_of({"auth": {"password_file": file}})


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o660])
def test_a_private_file_may_be_shared_with_a_group(tmp_path: Path, mode: int) -> None:
    file = private(tmp_path / "users.txt", "")
    (tmp_path / "users.txt").chmod(mode)
    config_of({"auth": {"password_file": file}})


def test_an_access_list_that_everyone_may_change_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "acl.yaml"
    file.touch()
    file.chmod(0o646)
    assert "everyone may change" in fault_of({"auth": {"acl_file": str(file)}})


def test_a_directory_is_no_password_file(tmp_path: Path) -> None:
    assert "must name a file" in fault_of({"auth": {"password_file": str(tmp_path)}})


def test_a_certificate_with_the_key_of_another_is_refused(tmp_path: Path) -> None:
    authority = trustme.CA()
    one, other = authority.issue_cert("a"), authority.issue_cert("b")
    certificate = private(tmp_path / "cert.pem", one.cert_chain_pems[0].bytes())
    key = private(tmp_path / "key.pem", other.private_key_pem.bytes())
    text = fault_of({"mqtt": {"tls": {"cert_file": certificate, "key_file": key}}})
    assert "mqtt.tls.cert_file" in text
    assert "not a certificate and its key" in text


def test_an_encrypted_key_is_refused_instead_of_asking_for_its_password(tmp_path: Path) -> None:
    issued = trustme.CA().issue_cert("a")
    plain = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    encrypted = plain.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    certificate = private(tmp_path / "cert.pem", issued.cert_chain_pems[0].bytes())
    key = private(tmp_path / "key.pem", encrypted)
    assert "openssl pkey" in fault_of({"mqtt": {"tls": {"cert_file": certificate, "key_file": key}}})


def test_an_authority_file_must_hold_a_certificate(tmp_path: Path) -> None:
    issued = trustme.CA().issue_cert("a")
    tls = {
        "cert_file": private(tmp_path / "cert.pem", issued.cert_chain_pems[0].bytes()),
        "key_file": private(tmp_path / "key.pem", issued.private_key_pem.bytes()),
        "ca_file": private(tmp_path / "ca.pem", "nothing"),
    }
    assert "mqtt.tls.ca_file holds no certificate" in fault_of({"mqtt": {"tls": tls}})


def test_a_short_secret_for_tokens_is_refused(tmp_path: Path) -> None:
    jwt = {
        "algorithm": "HS256",
        "issuer": "i",
        "audience": "a",
        "secret_file": private(tmp_path / "s", "short"),
    }
    assert "32 bytes" in fault_of({"auth": {"jwt": jwt}})


def test_the_line_end_after_a_secret_is_not_part_of_it(tmp_path: Path) -> None:
    jwt = {
        "algorithm": "HS256",
        "issuer": "i",
        "audience": "a",
        "secret_file": private(tmp_path / "s", "x" * 31 + "\n"),
    }
    assert "32 bytes" in fault_of({"auth": {"jwt": jwt}})
    private(tmp_path / "s", "x" * 32 + "\n")
    assert make_token_verifier(config_of({"auth": {"jwt": jwt}}).auth.jwt) is not None


def test_without_an_algorithm_there_are_no_tokens() -> None:
    assert make_token_verifier(config_of({}).auth.jwt) is None
