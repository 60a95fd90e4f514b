"""A config becomes a chain in its order, with the built-in intents as the last resort."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.providers.fake_openai import FakeOpenAI, text
from zeroclawd.config import parse
from zeroclawd.errors import ConfigError, KeyFileError, ProviderError
from zeroclawd.interfaces import DeviceInfo, ModelRequest, Provider
from zeroclawd.locale import Texts
from zeroclawd.messages import Message, Role
from zeroclawd.providers.build import build
from zeroclawd.providers.chain import ChainProvider
from zeroclawd.providers.pool import Pool
from zeroclawd.tool import Risk, ToolSpec

LAMP = DeviceInfo("lamp", "led", frozenset({"read", "write"}), Risk.LOW)
WRITE = (ToolSpec("device_write", "", {}),)


def cloud(url: str = "http://127.0.0.1:9/v1", more: str = "", name: str = "cloud") -> str:
    return f'[providers.{name}]\nkind = "openai"\nbase_url = "{url}"\nmodel = "m"\nretries = 0\n{more}\n'


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    made = Pool()
    yield made
    await made.close()


def built(toml: str, pool: Pool, environ: dict[str, str] | None = None) -> Provider:
    return build(parse(toml).config, pool, lambda: (LAMP,), Texts("en"), environ or {})


async def said(provider: Provider, words: str) -> str:
    request = ModelRequest((Message(Role.USER, words),), WRITE)
    reply = await provider.complete(request, lambda _text: None)
    return reply.text or str([(call.name, call.arguments) for call in reply.calls])


def names(provider: Provider) -> list[str]:
    assert isinstance(provider, ChainProvider)
    return [one.name for one in provider.providers]


async def test_without_providers_the_intents_answer_alone(pool: Pool) -> None:
    provider = built("", pool)
    assert provider.name == "intent"
    assert "turn on lamp" in await said(provider, "sing a song")


async def test_the_order_of_the_config_and_the_intents_last(pool: Pool) -> None:
    toml = '[agent]\nproviders = ["b", "cloud", "b"]\n' + cloud() + cloud(name="b")
    assert names(built(toml, pool)) == ["b", "cloud", "intent"]


async def test_the_intents_stay_where_they_are_written(pool: Pool) -> None:
    toml = '[agent]\nproviders = ["offline", "cloud"]\n[providers.offline]\nkind = "intent"\n' + cloud()
    assert names(built(toml, pool)) == ["offline", "cloud"]


async def test_with_the_model_away_the_intents_serve_what_they_understand(pool: Pool) -> None:
    provider = built('[agent]\nproviders = ["cloud"]\n' + cloud(), pool)
    assert await said(provider, "turn on the lamp") == "[('device_write', {'device': 'lamp', 'value': True})]"


async def test_and_for_the_rest_the_error_says_why_and_what_would_be_understood(pool: Pool) -> None:
    provider = built('[agent]\nproviders = ["cloud"]\n' + cloud(), pool)
    with pytest.raises(ProviderError, match=r"connection refused.*turn on lamp"):
        await said(provider, "write a poem")


async def test_intents_first_leave_the_rest_to_the_model(pool: Pool) -> None:
    async with FakeOpenAI().running() as server:
        server.answers = [text("a poem")]
        provider = built('[agent]\nproviders = ["intent", "cloud"]\n' + cloud(server.url), pool)
        assert await said(provider, "write a poem") == "a poem"
        assert "device_write" in await said(provider, "turn on the lamp")
        assert len(server.requests) == 1


async def test_the_key_is_read_and_sent(pool: Pool, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sk-from-file\n")
    key.chmod(0o600)
    async with FakeOpenAI().running() as server:
        provider = built('[agent]\nproviders = ["cloud"]\n' + cloud(server.url, f'api_key_file = "{key}"'), pool)
        await said(provider, "hi")
        assert server.headers[0]["authorization"] == "Bearer sk-from-file"


@pytest.mark.parametrize("environ", [{}, {"KEY": "two words"}, {"KEY": "schlüssel"}])
async def test_a_key_that_cannot_be_used_stops_the_start(pool: Pool, environ: dict[str, str]) -> None:
    with pytest.raises(KeyFileError):
        built('[agent]\nproviders = ["cloud"]\n' + cloud(more='api_key_env = "KEY"'), pool, environ)


async def test_a_provider_that_is_not_used_needs_no_key(pool: Pool) -> None:
    assert built(cloud(more='api_key_env = "KEY"'), pool).name == "intent"


MIXED = '[agent]\nproviders = ["cloud", "b"]\n' + cloud() + cloud(name="b", more='tools = "text"')


async def test_two_tool_protocols_in_one_chain_are_refused(pool: Pool) -> None:
    with pytest.raises(ConfigError) as caught:
        built(MIXED, pool)
    assert caught.value.key == "agent.providers"


@pytest.mark.parametrize(("protocol", "native"), [("text", False), ("native", True)])
async def test_one_protocol_for_all_settles_it(pool: Pool, protocol: str, native: bool) -> None:
    provider = built(f'{MIXED}\n[runtime_profiles.default]\ntool_protocol = "{protocol}"\n', pool)
    assert isinstance(provider, ChainProvider)
    assert [one.native_tools for one in provider.providers[:2]] == [native, native]


async def test_a_script_from_the_config(pool: Pool) -> None:
    toml = '[agent]\nproviders = ["play"]\n[providers.play]\nkind = "scripted"\nreplies = ["one", {text = "two"}]\n'
    provider = built(toml, pool)
    assert [await said(provider, "x"), await said(provider, "x")] == ["one", "two"]


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys; from zeroclawd.providers import build, direct; "
        "print(sorted({'httpx2', 'httpcore2', 'anyio', 'hassil', 'yaml'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
