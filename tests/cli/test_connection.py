"""Where a command finds its broker, its login and its key, and what it says when it does not."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from tests.cli.people import write_key
from zeroclawd.cli import connection
from zeroclawd.cli.connection import KEYS, VARIABLE, Where, resolve
from zeroclawd.errors import ConfigError, KeyFileError
from zeroclawd.signing import Keypair


def client(folder: Path, text: str) -> dict[str, str]:
    file = folder / "client.toml"
    file.write_text(text)
    return {VARIABLE: str(file)}


@pytest.mark.parametrize(
    ("broker", "found"),
    [
        ("mqtt://broker", ("broker", 1883, False)),
        ("mqtts://broker", ("broker", 8883, True)),
        ("mqtt://broker:1", ("broker", 1, False)),
        ("broker", ("broker", 1883, False)),
        ("10.0.0.7:1884", ("10.0.0.7", 1884, False)),
        ("mqtts://[fe80::1]:8884/", ("fe80::1", 8884, True)),
    ],
)
def test_an_address_is_host_port_and_whether_it_is_tls(broker: str, found: tuple[str, int, bool]) -> None:
    where = resolve({"broker": broker}, {})
    assert (where.host, where.port, where.tls) == found


@pytest.mark.parametrize("broker", ["http://x", "mqtt://", "mqtt://x:y", "mqtt://x/topic", "mqtt://[::1", ":1883"])
def test_what_is_no_address_is_a_usage_error(broker: str) -> None:
    with pytest.raises(click.UsageError, match="no broker"):
        resolve({"broker": broker}, {})


def test_a_login_in_the_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(click.UsageError, match="--password-file") as error:
        resolve({"broker": "mqtt://anna:secret@broker"}, {})
    assert "secret" not in error.value.message


def test_nothing_given_names_all_three_ways() -> None:
    with pytest.raises(click.UsageError) as error:
        resolve({}, {"HOME": "/nonexistent", VARIABLE: ""})
    assert all(way in error.value.message for way in ("--broker", "--config", "client.toml", VARIABLE))


def test_options_go_before_the_file_and_files_are_beside_it(tmp_path: Path) -> None:
    environ = client(
        tmp_path,
        'broker = "mqtts://home"\nnode = "n1"\nbase_topic = "farm"\nusername = "anna"\npassword_file = "secret"\n'
        'ca_file = "/etc/ca.pem"\noperator = "anna"\noperator_key = "keys/anna.key"\n',
    )
    where = resolve({"node": "n2"}, environ)
    assert (where.host, where.base, where.node, where.only, where.username) == ("home", "farm", "n2", "n2", "anna")
    assert where.password_file == str(tmp_path / "secret")
    assert where.ca_file == "/etc/ca.pem"
    assert where.operator_key == str(tmp_path / "keys/anna.key")
    plain = resolve({}, environ)
    assert (plain.node, plain.only) == ("n1", "")
    mqtt = plain.mqtt
    assert (mqtt.host, mqtt.port, mqtt.base_topic, mqtt.username) == ("home", 8883, "farm", "anna")
    assert mqtt.tls is not None
    assert mqtt.tls.ca_file == "/etc/ca.pem"


def test_another_broker_is_never_given_the_login_of_the_file(tmp_path: Path) -> None:
    environ = client(
        tmp_path,
        'broker = "mqtts://home"\nusername = "anna"\npassword_file = "secret"\nca_file = "ca.pem"\noperator = "anna"\n'
        'operator_key = "k"\nnode = "n1"\n',
    )
    where = resolve({"broker": "mqtt://elsewhere"}, environ)
    assert (where.host, where.tls, where.username, where.password_file, where.ca_file) == (
        "elsewhere",
        False,
        "",
        "",
        "",
    )
    assert (where.operator, where.node) == ("anna", "n1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('brokr = "mqtt://x"', "brokr: unknown key; did you mean 'broker'?"),
        ("broker = 5", "broker: must be text"),
        ("broker = [", "cannot be read: "),
        ('broker = "mqtt://x"\npassword = "secret"', "password: unknown key; did you mean 'password_file'?"),
    ],
)
def test_a_client_file_is_read_strictly(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        resolve({}, client(tmp_path, text))
    assert said in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "client.toml"))


def test_every_key_of_the_client_file_is_on_the_page_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs/cli.md").read_text("utf-8")
    table = page[page.index("| key | meaning |") : page.index("An unknown key is an error")]
    named = "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)`", named)) == set(KEYS)


def test_a_named_client_file_must_be_there() -> None:
    with pytest.raises(ConfigError, match="no such file"):
        resolve({}, {VARIABLE: "/nonexistent/client.toml"})


def test_certificates_mean_tls() -> None:
    with pytest.raises(click.UsageError, match="mqtts://"):
        resolve({"broker": "mqtt://x", "ca_file": "ca.pem"}, {})


DAEMON = """\
[channels.mqtt.home]
host = "10.0.0.1"
node = "n7"
base_topic = "farm"
username = "n7"
password_env = "BROKER_PASSWORD"

[channels.mqtt.home.tls]
ca_file = "/etc/ca.pem"
"""


def test_a_daemons_config_says_broker_node_and_login(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(DAEMON)
    where = resolve({"config": str(file)}, {})
    assert where[:6] == ("10.0.0.1", 8883, True, "farm", "n7", "")
    assert (where.mqtt.password_env, where.ca_file) == ("BROKER_PASSWORD", "/etc/ca.pem")
    assert resolve({"config": str(file), "node": "n8"}, {}).node == "n8"
    with pytest.raises(click.UsageError, match="--config and --broker"):
        resolve({"config": str(file), "broker": "mqtt://x"}, {})


def test_of_several_brokers_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[channels.mqtt.home]\nhost = "a"\n[channels.mqtt.away]\nhost = "b"\n')
    with pytest.raises(click.UsageError, match="--channel: home, away"):
        resolve({"config": str(file)}, {})
    assert resolve({"config": str(file), "channel": "away"}, {}).host == "b"
    with pytest.raises(click.UsageError, match=r"channels\.mqtt\.here"):
        resolve({"config": str(file), "channel": "here"}, {})
    file.write_text("")
    with pytest.raises(click.UsageError, match="has no"):
        resolve({"config": str(file)}, {})


# Who signs


def test_a_key_is_read_for_its_owner_alone(tmp_path: Path) -> None:
    pair = Keypair.generate()
    key = write_key(tmp_path, "anna", pair)
    made = Where("x", 1883, operator="anna", operator_key=str(key)).signed()
    assert (made.operator, made.signer) == ("anna", pair)
    key.chmod(0o640)
    with pytest.raises(KeyFileError) as error:
        connection.read_key(key)
    assert error.value.hint == f"chmod 600 {key}"


@pytest.mark.parametrize("content", ["", "not base64!", "AAAA", "ä" * 43])
def test_what_is_no_key_says_what_to_take(tmp_path: Path, content: str) -> None:
    key = tmp_path / "k"
    key.write_text(content)
    key.chmod(0o600)
    with pytest.raises(KeyFileError, match="no operator's key") as error:
        connection.read_key(key)
    assert "keygen" in error.value.hint


def test_a_missing_key_and_half_an_operator_are_said(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="cannot be read"):
        connection.read_key(tmp_path / "none")
    with pytest.raises(click.UsageError, match="--key FILE is missing"):
        Where("x", 1883, operator="anna").signature()
    with pytest.raises(click.UsageError, match="--operator NAME is missing"):
        Where("x", 1883, operator_key="k").signature()
    with pytest.raises(click.UsageError, match="keygen"):
        Where("x", 1883).signed()
    assert Where("x", 1883).signature() is None


def test_an_error_comes_out_alone_and_says_which_broker_was_tried() -> None:
    async def fails() -> None:
        raise ExceptionGroup("two", [ExceptionGroup("one", [BrokenPipeError()])])

    with pytest.raises(BrokenPipeError):
        connection.run(Where("x", 1883), fails())
