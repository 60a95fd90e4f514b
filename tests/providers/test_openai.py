"""The chat completions provider against a strict server: dialect, streams, retries, deadlines, TLS and plain errors."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.providers.fake_openai import Answer, FakeOpenAI, call, stream, text
from zeroclawd.errors import ProviderError
from zeroclawd.interfaces import ModelRequest
from zeroclawd.messages import Finish, Message, Outcome, Reply, Role, ToolCall
from zeroclawd.providers.openai import Endpoint, OpenAIProvider
from zeroclawd.providers.pool import Pool
from zeroclawd.tool import ToolSpec

KEY = "sk-test-0123456789abcdefghij"
TOOLS = (ToolSpec("time", "The time.", {"type": "object", "properties": {}}),)


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    made = Pool()
    yield made
    await made.close()


@pytest.fixture
async def server() -> AsyncIterator[FakeOpenAI]:
    async with FakeOpenAI().running() as running:
        yield running


class Clockwork:
    """Sleeps are noted and not slept; chance is always 1, so that a pause is as long as it can be."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def provider(server: FakeOpenAI, pool: Pool, clockwork: Clockwork | None = None, **more: Any) -> OpenAIProvider:
    given = {"name": "cloud", "base_url": server.url, "model": "m-1", "key": KEY, "stream": False} | more
    works = clockwork or Clockwork()
    return OpenAIProvider(Endpoint(**given), pool, chance=lambda: 1.0, sleep=works.sleep, now=lambda: 1_000_000.0)


def user(words: str = "hi") -> Message:
    return Message(Role.USER, words)


async def ask(
    one: OpenAIProvider, *messages: Message, tools: tuple[ToolSpec, ...] = TOOLS, shown: list[str] | None = None
) -> Reply:
    heard = shown if shown is not None else []
    return await one.complete(ModelRequest(messages or (user(),), tools), heard.append)


async def failure(one: OpenAIProvider, *messages: Message) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ask(one, *messages)
    return caught.value


# Requests


async def test_a_plain_reply(server: FakeOpenAI, pool: Pool) -> None:
    server.answers = [text("hello")]
    shown: list[str] = []
    reply = await ask(provider(server, pool), shown=shown)
    assert (reply.text, reply.finish, shown) == ("hello", Finish.STOP, ["hello"])
    (request,) = server.requests
    assert request["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "time",
                "description": "The time.",
                "parameters": {"type": "object", "properties": {}},
            },
        }
    ]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert server.paths == ["/v1/chat/completions"]


async def test_optional_fields_are_sent_only_if_they_are_set(server: FakeOpenAI, pool: Pool) -> None:
    await ask(provider(server, pool, key=""), tools=())
    assert set(server.requests[0]) == {"model", "messages"}
    assert "authorization" not in server.headers[0]
    await ask(provider(server, pool, temperature=0.0, max_tokens=50, stream=True))
    assert server.requests[1]["temperature"] == 0.0
    assert server.requests[1]["max_tokens"] == 50
    assert server.requests[1]["stream_options"] == {"include_usage": True}


async def test_the_text_protocol_sends_no_tools(server: FakeOpenAI, pool: Pool) -> None:
    one = provider(server, pool, native_tools=False)
    assert not one.native_tools
    await ask(one)
    assert "tools" not in server.requests[0]


async def test_a_conversation_of_two_rounds(server: FakeOpenAI, pool: Pool) -> None:
    server.answers = [call(("call_1", "time", "{}"), ("call_2", "time", '{"zone":"UTC"}')), text("It is noon.")]
    one = provider(server, pool)
    reply = await ask(one)
    assert [(raw.id, raw.name, raw.arguments) for raw in reply.calls] == [
        ("call_1", "time", "{}"),
        ("call_2", "time", '{"zone":"UTC"}'),
    ]
    assert reply.model == "m-1"
    calls = (ToolCall("call_1", "time", {}, "time {}"), ToolCall("call_2", "time", {"zone": "UTC"}, "time"))
    history = (user(), Message(Role.ASSISTANT, "", calls=calls, extra=reply.extra), result("call_1"), result("call_2"))
    assert (await ask(one, *history)).text == "It is noon."
    sent = server.requests[1]["messages"]
    assert sent[1] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "time", "arguments": "{}"}},
            {"id": "call_2", "type": "function", "function": {"name": "time", "arguments": '{"zone":"UTC"}'}},
        ],
    }
    assert sent[2] == {"role": "tool", "tool_call_id": "call_1", "content": "12:00"}
    assert server.refused == []


def result(call_id: str, words: str = "12:00") -> Message:
    return Message(Role.TOOL, words, call_id=call_id, name="time", outcome=Outcome.OK, extra={"plain": words})


def asked(call_id: str, arguments: dict[str, Any] | None = None, **more: Any) -> Message:
    return Message(Role.ASSISTANT, calls=(ToolCall(call_id, "time", arguments or {}, "time"),), **{"text": ""} | more)


async def test_ids_that_come_again_in_a_later_turn_are_told_apart(server: FakeOpenAI, pool: Pool) -> None:
    history = (user(), asked("call_0"), result("call_0"), user(), asked("call_0"), result("call_0"), user())
    await ask(provider(server, pool), *history)
    assert server.refused == []
    sent = server.requests[0]["messages"]
    assert (sent[4]["tool_calls"][0]["id"], sent[5]["tool_call_id"]) == ("call_0_1", "call_0_1")


async def test_half_characters_do_not_break_a_request(server: FakeOpenAI, pool: Pool) -> None:
    half = json.loads('"\\ud83d"')
    history = (user(f"a{half}"), asked("call_0", {"zone": half}), result("call_0", half))
    assert (await ask(provider(server, pool), *history)).finish is Finish.STOP


async def test_reasoning_goes_back_to_who_said_it_and_within_its_turn(server: FakeOpenAI, pool: Pool) -> None:
    extra = {
        "from": "cloud",
        "reasoning_content": "hm",
        "extra_content": {"a": 1},
        "calls": [{"extra_content": {"sig": "x"}}],
    }
    this_turn = (user(), asked("a", extra=extra), result("a"))
    await ask(provider(server, pool), *this_turn)
    sent = server.requests[0]["messages"][1]
    assert (sent["reasoning_content"], sent["extra_content"]) == ("hm", {"a": 1})
    assert sent["tool_calls"][0]["extra_content"] == {"sig": "x"}
    await ask(provider(server, pool), *this_turn, user("more"))
    assert "reasoning_content" not in server.requests[1]["messages"][1]
    await ask(provider(server, pool, name="other"), *this_turn)
    assert set(server.requests[2]["messages"][1]) == {"role", "content", "tool_calls"}
    assert set(server.requests[2]["messages"][1]["tool_calls"][0]) == {"id", "type", "function"}


async def test_a_refused_option_is_left_out_and_stays_out(server: FakeOpenAI, pool: Pool) -> None:
    server.unsupported = {"stream_options", "max_tokens"}
    clockwork = Clockwork()
    one = provider(server, pool, clockwork, stream=True, max_tokens=9)
    server.answers = [stream({"content": "a"}), stream({"content": "b"})]
    assert [(await ask(one)).text, (await ask(one)).text] == ["a", "b"]
    assert len(server.requests) == 4
    assert server.requests[-1]["max_completion_tokens"] == 9
    assert clockwork.slept == []


# Streams


async def test_a_stream_is_given_on_as_it_comes(server: FakeOpenAI, pool: Pool) -> None:
    server.answers = [stream({"content": "Hel"}, {"content": "lo"})]
    shown: list[str] = []
    reply = await ask(provider(server, pool, stream=True), shown=shown)
    assert (reply.text, shown, reply.finish) == ("Hello", ["Hel", "lo"], Finish.STOP)


async def test_a_finished_stream_leaves_the_connection_usable(server: FakeOpenAI, pool: Pool) -> None:
    one = provider(server, pool, stream=True)
    server.answers = [stream({"content": "a"}), stream({"content": "b"}), text("c")]
    for _ in range(3):
        await ask(one)
    assert server.connections == 1


async def test_comments_and_pings_are_no_events(server: FakeOpenAI, pool: Pool) -> None:
    ping = [b": processing\n\n", b"event: ping\ndata: {}\n\n", b"data:\n\n"]
    server.answers = [Answer(events=[*ping, *stream({"content": "a"}).events])]
    assert (await ask(provider(server, pool, stream=True))).text == "a"


async def test_a_server_that_does_not_stream_is_understood(server: FakeOpenAI, pool: Pool) -> None:
    server.answers = [text("whole")]
    assert (await ask(provider(server, pool, stream=True))).text == "whole"


@pytest.mark.parametrize("how", [{"cut": True}, {"done": False}])
async def test_a_stream_that_ends_early_is_cut_and_not_asked_for_again(
    server: FakeOpenAI, pool: Pool, how: dict[str, bool]
) -> None:
    server.answers = [stream({"content": "Hel"}, finish=None, **{"done": False} | how)]
    reply = await ask(provider(server, pool, stream=True))
    assert (reply.text, reply.finish) == ("Hel", Finish.CUT)
    assert len(server.requests) == 1


async def test_a_call_that_breaks_off_is_asked_for_again_as_nothing_was_shown(server: FakeOpenAI, pool: Pool) -> None:
    half = {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "time", "arguments": '{"z'}}]}
    server.answers = [stream(half, finish=None, done=False, cut=True), stream({"content": "ok"})]
    reply = await ask(provider(server, pool, stream=True))
    assert (reply.text, len(server.requests)) == ("ok", 2)


async def test_a_call_that_breaks_off_every_time_comes_back_cut(server: FakeOpenAI, pool: Pool) -> None:
    half = {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "time", "arguments": '{"z'}}]}
    server.answers = [stream(half, finish=None, done=False, cut=True)] * 3
    reply = await ask(provider(server, pool, stream=True))
    assert reply.finish is Finish.CUT
    assert [raw.id for raw in reply.calls] == ["a"]


async def test_a_stream_that_stays_open_after_its_end_mark_is_not_waited_for(server: FakeOpenAI, pool: Pool) -> None:
    server.answers = [stream({"content": "a"}, stall=True)]
    assert (await ask(provider(server, pool, stream=True))).finish is Finish.STOP


async def test_an_error_event_is_an_error(server: FakeOpenAI, pool: Pool) -> None:
    server.answers = [Answer(events=[{"error": {"message": "no such model", "code": 400}}])]
    assert "no such model" in (await failure(provider(server, pool, stream=True))).text
    server.answers = [Answer(events=[b'event: error\ndata: {"message": "out of memory"}\n\n'])]
    assert "out of memory" in (await failure(provider(server, pool, stream=True))).text


async def test_an_error_event_after_text_is_not_retried(server: FakeOpenAI, pool: Pool) -> None:
    broken = Answer(events=[*stream({"content": "a"}, finish=None, done=False).events, {"error": {"code": 503}}])
    server.answers = [broken]
    await failure(provider(server, pool, stream=True))
    assert len(server.requests) == 1


async def test_an_event_that_is_not_json_is_an_error(server: FakeOpenAI, pool: Pool) -> None:
    server.answers = [Answer(events=[*stream({"content": "a"}, finish=None, done=False).events, "{half"])]
    assert "not JSON" in (await failure(provider(server, pool, stream=True))).text


# Retries


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
async def test_passing_trouble_is_tried_again(server: FakeOpenAI, pool: Pool, status: int) -> None:
    server.answers = [Answer(status, {}), Answer(status, {}), text("ok")]
    clockwork = Clockwork()
    assert (await ask(provider(server, pool, clockwork))).text == "ok"
    assert clockwork.slept == [0.5, 1.0]


async def test_retries_are_bounded(server: FakeOpenAI, pool: Pool) -> None:
    server.answers = [Answer(503, {})] * 9
    error = await failure(provider(server, pool, retries=2))
    assert (len(server.requests), error.retryable) == (3, True)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.5),
        ({"retry-after": "Mon, 12 Jan 1970 13:46:45 GMT"}, 5.5),
        # The server's own clock counts where it says what time it has: ours may be wrong.
        ({"retry-after": "Fri, 01 Jan 2100 00:00:07 GMT", "date": "Fri, 01 Jan 2100 00:00:00 GMT"}, 7.5),
        ({"retry-after": "Mon, 12 Jan 1970 00:00:00 GMT"}, 0.5),
        ({"retry-after": "soon"}, 0.5),
        ({"retry-after": "nan"}, 0.5),
    ],
)
async def test_retry_after_is_honoured(server: FakeOpenAI, pool: Pool, headers: dict[str, str], seconds: float) -> None:
    server.answers = [Answer(429, {}, headers=headers), text("ok")]
    clockwork = Clockwork()
    await ask(provider(server, pool, clockwork))
    assert clockwork.slept == [seconds]


async def test_a_long_retry_after_is_told_and_not_waited_for(server: FakeOpenAI, pool: Pool) -> None:
    server.answers = [Answer(429, {}, headers={"retry-after": "600"})]
    clockwork = Clockwork()
    error = await failure(provider(server, pool, clockwork))
    assert (error.retry_after, error.retryable, clockwork.slept) == (600.0, True, [])


async def test_a_pause_never_outlasts_the_total_time(server: FakeOpenAI, pool: Pool) -> None:
    server.answers = [Answer(503, {}, headers={"retry-after": "20"})]
    clockwork = Clockwork()
    await failure(provider(server, pool, clockwork, total_timeout=10.0))
    assert clockwork.slept == []


async def test_an_empty_account_is_not_asked_again(server: FakeOpenAI, pool: Pool) -> None:
    server.answers = [Answer(429, {"error": {"message": "You exceeded your current quota"}})]
    error = await failure(provider(server, pool))
    assert (len(server.requests), error.retryable) == (1, False)


# Errors that an operator can act upon


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (401, "api_key_file"),
        (403, "api_key_file"),
        (404, "model"),
        (400, 'tools = "text"'),
        (413, "history"),
        (302, "base_url"),
    ],
)
async def test_a_lasting_refusal_says_what_to_check(server: FakeOpenAI, pool: Pool, status: int, hint: str) -> None:
    server.answers = [
        Answer(status, {"error": {"message": "the server's own words"}}, headers={"location": "http://x/"})
    ]
    error = await failure(provider(server, pool))
    assert f"answered {status}: the server's own words" in error.text
    assert hint in error.hint
    assert (len(server.requests), error.retryable) == (1, False)


async def test_what_an_error_body_quotes_is_no_call(server: FakeOpenAI, pool: Pool) -> None:
    body = {"error": {"message": "tool use failed", "failed_generation": '{"name":"relay_set","arguments":{}}'}}
    server.answers = [Answer(400, body)]
    assert "relay_set" not in (await failure(provider(server, pool))).text


async def test_no_secret_is_in_an_error(server: FakeOpenAI, pool: Pool) -> None:
    url = server.url.replace("://", "://bob:hunter2secret@") + "?key=querysecret1"
    one = provider(server, pool, base_url=url, retries=0)
    server.answers = [Answer(401, {"error": f"wrong key {KEY} or querysecret1 in {url}\nor hunter2secret"})]
    error = await failure(one)
    for secret in (KEY, "querysecret1", "hunter2secret", "\n"):
        assert secret not in f"{error.text} {error.hint}"
    assert server.paths == ["/v1/chat/completions?key=querysecret1"]


async def test_no_secret_hangs_on_to_the_error_of_a_dead_host(pool: Pool) -> None:
    gone = OpenAIProvider(
        Endpoint("cloud", "http://bob:hunter2secret@no-such-host.invalid/v1?key=querysecret1", "m", retries=0), pool
    )
    error = await failure(gone)
    assert "no-such-host.invalid" in error.text
    assert "querysecret1" not in str(error)
    assert error.__cause__ is None
    assert error.__context__ is None
    assert error.retryable


async def test_a_refused_connection_is_tried_again(pool: Pool) -> None:
    async with FakeOpenAI().running() as server:
        one = provider(server, pool, clockwork := Clockwork())
    error = await failure(one)
    assert "connection refused" in error.text
    assert len(clockwork.slept) == 2


async def test_a_body_that_is_no_completion_says_where_to_look(server: FakeOpenAI, pool: Pool) -> None:
    server.answers = [Answer(body=b"<html>", content_type="text/html")]
    error = await failure(provider(server, pool))
    assert "text/html" in error.text
    assert "base_url" in error.hint
    server.answers = [Answer(body={"object": "list"})]
    assert "without a message" in (await failure(provider(server, pool))).text


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_answer_without_end_is_refused(server: FakeOpenAI, pool: Pool, streamed: bool) -> None:
    server.answers = [stream(*[{"content": "x" * 400}] * 5) if streamed else text("x" * 2_000)]
    error = await failure(provider(server, pool, stream=streamed, largest=1_000, retries=0))
    assert "larger than 1000 bytes" in error.text


# Deadlines


async def test_silence_ends_at_the_idle_time_and_is_not_asked_for_twice(server: FakeOpenAI, pool: Pool) -> None:
    server.answers = [Answer(silent=True)]
    error = await failure(provider(server, pool, stream=True, idle_timeout=0.1))
    assert ("went silent" in error.text, len(server.requests)) == (True, 1)


async def test_silence_in_the_middle_is_a_cut_reply(server: FakeOpenAI, pool: Pool) -> None:
    server.answers = [stream({"content": "a"}, finish=None, done=False, stall=True)]
    reply = await ask(provider(server, pool, stream=True, idle_timeout=0.1))
    assert (reply.text, reply.finish) == ("a", Finish.CUT)


async def test_the_total_time_bounds_everything(server: FakeOpenAI, pool: Pool) -> None:
    server.answers = [Answer(silent=True)]
    assert "within 0.1 s" in (await failure(provider(server, pool, total_timeout=0.1))).text
    server.answers = [stream({"content": "a"}, finish=None, done=False, stall=True)]
    reply = await ask(provider(server, pool, stream=True, total_timeout=0.3))
    assert (reply.text, reply.finish) == ("a", Finish.CUT)


async def test_a_cancelled_request_stays_cancelled(server: FakeOpenAI, pool: Pool) -> None:
    server.answers = [Answer(silent=True), text("next")]
    one = provider(server, pool)
    asking = asyncio.create_task(ask(one), name="asking")
    await server.came.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (await ask(one)).text == "next"


async def test_many_turns_at_once_share_the_pool(server: FakeOpenAI, pool: Pool) -> None:
    server.answers = [text(str(number)) for number in range(16)]
    one = provider(server, pool)
    replies = await asyncio.gather(*(ask(one) for _ in range(16)))
    assert {reply.text for reply in replies} == {str(number) for number in range(16)}


# TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority and a server certificate for localhost, with what Python 3.13 asks of them."""
    folder = tmp_path_factory.mktemp("tls")
    (folder / "ext").write_text(
        "subjectAltName=DNS:localhost,IP:127.0.0.1\nkeyUsage=digitalSignature\nextendedKeyUsage=serverAuth\n"
        "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
    )
    ec = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    for line in (
        f"req -x509 {ec} -keyout ca.key -out ca.pem -days 2 -subj /CN=Authority "
        "-addext keyUsage=critical,keyCertSign,cRLSign",
        f"req {ec} -keyout server.key -out server.csr -subj /CN=localhost",
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 2 -extfile ext",
    ):
        subprocess.run(["openssl", *line.split()], cwd=folder, check=True, capture_output=True)
    return folder


def server_side(certificates: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    return context


async def test_tls_with_the_operators_own_authority(certificates: Path, pool: Pool) -> None:
    async with FakeOpenAI().running(server_side(certificates)) as server:
        server.answers = [stream({"content": "safe"})]
        one = provider(server, pool, ca_file=str(certificates / "ca.pem"), stream=True)
        assert (await ask(one)).text == "safe"


async def test_a_certificate_of_an_unknown_authority_is_refused_at_once(certificates: Path, pool: Pool) -> None:
    async with FakeOpenAI().running(server_side(certificates)) as server:
        error = await failure(provider(server, pool))
        assert "not trusted" in error.text
        assert "ca_file" in error.hint
        assert not error.retryable
        assert server.requests == []


async def test_a_missing_ca_file_is_named(pool: Pool) -> None:
    one = OpenAIProvider(Endpoint("cloud", "https://localhost:1/v1", "m", ca_file="/nowhere/ca.pem"), pool)
    assert "/nowhere/ca.pem" in (await failure(one)).text
