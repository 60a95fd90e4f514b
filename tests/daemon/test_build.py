"""The plan: everything that is wrong is found before anything is opened, and what would run is said."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from zeroclawd.catalog import Catalog
from zeroclawd.cli.init import starter
from zeroclawd.config import parse
from zeroclawd.daemon.build import plan, rulings
from zeroclawd.errors import ConfigError
from zeroclawd.locale import Texts
from zeroclawd.messages import Ingress
from zeroclawd.providers import wire
from zeroclawd.turn.framing import EXPLANATION, user_message


@pytest.mark.parametrize("board", ["sim", "pi"])
def test_the_starter_configs_would_run(board: str) -> None:
    assert plan(parse(starter(board, "n1", "/nowhere"))).catalog.broken == ()


def ruled(text: str) -> dict[str, str]:
    return {f"{row.tool} {row.about}".strip(): row.ruling for row in rulings(plan(parse(text)))}


def test_the_starters_policy_is_what_its_comments_say() -> None:
    found = ruled(starter("sim", "n1", "/nowhere"))
    assert found["device_write lamp"] == "run"
    assert found["device_write pump"] == "ask"
    assert found["device_read"] == "run"
    assert (found["shell ls"], found["shell mkdir x"], found["shell reboot"]) == ("run", "ask", "block")
    assert "device_write greenhouse" not in found


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("[risk_profiles.default]\nalways_ask = ['pmup']", 2, "'pmup'"),
        ("[operators.a]\npublic_key = 'x'", 1, "public key"),
        ("[channels.mqtt.a]\nnode = 'x'\n[channels.mqtt.b]\nnode = 'y'", 1, "one device is one node"),
        ("[channels.mqtt.a]\n[channels.mqtt.a.tls]\nca_file = '/nowhere/ca'", 3, "does not exist"),
        ("[devices.pump]\nkind = 'relay'\npin = 1", 3, ""),
        ("[devices.pump]\nkind = 'relay'\npin = 4\nactive_lo = true", 4, "active_low"),
        ("[devices.pump]\nkind = 'rellay'\npin = 4", 2, "relay"),
        ("[devices.a]\nkind = 'relay'\npin = 4\n[devices.b]\nkind = 'relay'\npin = 4", 4, "pin 4"),
        ("[devices.a]\nkind = 'relay'\npin = 4\ninterlocks = ['tank.value > 3']", 4, "tank"),
        ("[agent]\nlocale = 'jp'", 2, "there are: en, ja"),
        ("[devices.time]\nkind = 'relay'\npin = 4", 1, "that is a tool"),
    ],
)
def test_what_is_wrong_is_found_with_its_line(text: str, line: int, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(parse(text, "f.toml"))
    assert str(caught.value).startswith(f"f.toml:{line}: ")
    assert said in str(caught.value)


def test_secrets_are_known_to_the_redactor(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("correct horse battery\n")
    secret.chmod(0o600)
    planned = plan(parse(f"[channels.mqtt.a]\nusername = 'x'\npassword_file = '{secret}'"))
    assert "horse" not in planned.redactor.text("login with correct horse battery failed")


@pytest.mark.parametrize("language", ["en", "ja"])
def test_the_first_model_request_is_small(language: str) -> None:
    """On a metered link this is the bill: at most 6 KB with all twelve tools."""
    texts = Texts(language)
    catalog = Catalog.load(texts)
    assert len(catalog.tools) >= 12
    system = "\n\n".join(
        (texts("prompt-system", agent="greenhouse", node="greenhouse-1"), EXPLANATION, texts("prompt-receipts"))
    )
    user = user_message("turn on the pump", Ingress("mqtt.home", "mqtt:home:unverified"), "0badcafe")
    body = {
        "model": "some-model-name",
        "stream": True,
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": user.text}],
        "tools": wire.tools(catalog.specs()),
    }
    assert len(msgspec.json.encode(body)) <= 6 * 1024
