from __future__ import annotations

from pathlib import Path

import pytest

from millstream.config.faults import ConfigFault
from millstream.config.keys import all_keys
from millstream.config.load import config_of, load
from millstream.config.schema import Config


def refusal(*arguments: Path, **options: object) -> ConfigFault:
    with pytest.raises(ConfigFault) as caught:
        load(*arguments, **options)  # type: ignore[arg-type]
    return caught.value


def test_without_anything_the_defaults_hold() -> None:
    loaded = load()
    assert loaded.config == Config()
    assert loaded.origins == {}
    assert loaded.file is None


def test_flags_win_over_variables_over_the_file_over_defaults(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("mqtt:\n  port: 1\n  receive_maximum: 1\n  topic_alias_maximum: 1\n")
    loaded = load(
        file,
        environment={"MILLSTREAM_MQTT__PORT": "2", "MILLSTREAM_MQTT__RECEIVE_MAXIMUM": "2"},
        overrides=["mqtt.port=3"],
    )
    mqtt = loaded.config.mqtt
    assert (mqtt.port, mqtt.receive_maximum, mqtt.topic_alias_maximum, mqtt.max_keep_alive) == (
        3,
        2,
        1,
        65535,
    )
    assert loaded.origins["mqtt", "port"].text == "--set mqtt.port=3"
    assert loaded.origins["mqtt", "receive_maximum"].text == "variable MILLSTREAM_MQTT__RECEIVE_MAXIMUM"
    assert loaded.origins["mqtt", "topic_alias_maximum"].text == f"{file}:4"


def test_the_last_of_two_flags_wins() -> None:
    assert load(overrides=["mqtt.port=3", "mqtt.port=4"]).config.mqtt.port == 4


@pytest.mark.parametrize(
    "variable", ["MILLSTREAM_MQTT__TLS__PORT", "MILLSTREAM_MQTT_TLS_PORT", "MILLSTREAM_MQTT__TLS_PORT"]
)
def test_a_variable_is_found_with_one_or_two_underscores(variable: str) -> None:
    assert load(environment={variable: "7"}).config.mqtt.tls.port == 7


def test_no_two_keys_share_a_variable() -> None:
    names = ["_".join(key.path) for key in all_keys()]
    assert len(names) == len(set(names))


def test_a_variable_reaches_top_level_keys_and_accounts() -> None:
    environment = {"MILLSTREAM_DATA_DIR": "/d", "MILLSTREAM_ACCOUNTS__PLANT__MAX_CONNECTIONS": "5"}
    config = load(environment=environment).config
    assert config.data_dir == Path("/d")
    assert config.accounts["plant"].max_connections == 5


def test_variables_of_others_are_left_alone() -> None:
    environment = {
        "MILLSTREAM_CONFIG": "x",
        "MILLSTREAM_PASSWORD": "x",
        "MILLSTREAM_SERVICE_HOST": "10.0.0.1",  # what Kubernetes gives beside a service of that name
        "MILLSTREAM_PORT": "tcp://10.0.0.1:1883",
        "MILLSTREAM_PORT_1883_TCP_ADDR": "10.0.0.1",
        "PATH": "/bin",
    }
    assert load(environment=environment).config == Config()


def test_an_unknown_variable_is_refused_with_the_nearest_one() -> None:
    [fault] = refusal(environment={"MILLSTREAM_SESION__MAX_SESSIONS": "1"}).faults
    assert fault.suggestion == "MILLSTREAM_SESSION__MAX_SESSIONS"


def test_the_value_of_an_unknown_variable_is_not_shown_if_it_may_be_a_secret() -> None:
    assert "CANARY" not in str(refusal(environment={"MILLSTREAM_AUTH__JWT__SECRET": "CANARY"}))


def test_a_secret_given_by_value_is_refused_and_its_file_suggested() -> None:
    [fault] = refusal(environment={"MILLSTREAM_AUTH__JWT__SECRET": "x"}).faults
    assert fault.suggestion == "MILLSTREAM_AUTH__JWT__SECRET_FILE"


def test_one_key_set_by_two_variables_is_refused() -> None:
    [fault] = refusal(environment={"MILLSTREAM_MQTT__PORT": "1", "MILLSTREAM_MQTT_PORT": "2"}).faults
    assert fault.key == "mqtt.port"
    assert "second time" in fault.text


@pytest.mark.parametrize(
    ("override", "word"),
    [
        ("mqtt.port", "key=value"),
        ("mqtt=1", "is a section"),
        ("accounts=1", "is a section"),
        ("mqtt.prot=1", "not a known key"),
        ("accounts.<name>.max_connections=1", "not a known key"),
        ("=1", "not a known key"),
        ("mqtt.port.x=1", "not a known key"),
    ],
)
def test_a_flag_that_names_no_key_is_refused(override: str, word: str) -> None:
    assert word in str(refusal(overrides=[override]))


def test_an_empty_variable_does_not_turn_authentication_off() -> None:
    [fault] = refusal(environment={"MILLSTREAM_AUTH__PASSWORD_FILE": ""}).faults
    assert fault.key == "auth.password_file"


def test_null_as_text_is_null() -> None:
    assert load(overrides=["auth.password_file=null", "auth.allow_anonymous=null"]).config == Config()


@pytest.mark.parametrize(
    "text", ["https://a.example,https://b.example", '["https://a.example", "https://b.example"]']
)
def test_a_list_from_a_flag_is_split_at_commas_or_written_as_json(text: str) -> None:
    config = load(overrides=[f"websocket.allowed_origins={text}"]).config
    assert config.websocket.allowed_origins == ("https://a.example", "https://b.example")


def test_a_missing_file_is_refused_unless_it_is_optional(tmp_path: Path) -> None:
    missing = tmp_path / "a.yaml"
    assert "no such file" in str(refusal(missing))
    assert load(missing, is_optional=True).config == Config()


def test_an_optional_file_that_is_wrong_is_still_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("x: 1\n")
    assert "x is not a known key" in str(refusal(file, is_optional=True))


def test_a_path_in_a_file_starts_at_the_file_and_one_in_a_flag_at_the_working_directory(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("data_dir: data\n")
    assert load(file).config.data_dir == tmp_path / "data"
    assert load(file, overrides=["data_dir=data"]).config.data_dir == Path("data")


def test_an_absolute_path_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("data_dir: /var/lib/millstream\n")
    assert load(file).config.data_dir == Path("/var/lib/millstream")


def test_a_section_with_nothing_in_it_is_empty(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("mqtt:\n  # port: 1\n  tls:\naccounts:\n  plant:\n")
    config = load(file).config
    assert config.mqtt == Config().mqtt
    assert list(config.accounts) == ["plant"]


def test_all_faults_come_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("log:\n  level: loud\nmqtt:\n  prot: 1\n  port: x\nauth:\n  acl_file: none.yaml\n")
    faults = refusal(file, environment={"MILLSTREAM_X": "1"}, overrides=["y=1"]).faults
    assert [fault.origin.line for fault in faults[:4]] == [2, 4, 5, 7]
    assert len(faults) == 6


def test_a_flag_cannot_repair_a_section_that_is_a_value(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("mqtt: 5\n")
    [fault] = refusal(file, overrides=["mqtt.port=1"]).faults
    assert (fault.key, fault.origin.line) == ("mqtt", 1)


def test_values_can_be_given_in_code() -> None:
    assert config_of({"mqtt": {"port": 0}, "websocket": {"enabled": False}}).mqtt.port == 0
    with pytest.raises(ConfigFault, match=r"did you mean mqtt\.port"):
        config_of({"mqtt": {"prot": 0}})


def test_a_loaded_configuration_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().mqtt.port = 5
