"""Talks to any server that offers the OpenAI chat completions API, streamed or not, with native or text tool calls."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import msgspec

from zeroclawd.errors import ProviderError
from zeroclawd.frozen import dataclass
from zeroclawd.interfaces import ModelRequest
from zeroclawd.messages import Finish, Reply
from zeroclawd.providers import retry, wire
from zeroclawd.providers.assemble import Assembler, decode, reported
from zeroclawd.providers.pool import Pool
from zeroclawd.redact import Redactor, plain

if TYPE_CHECKING:
    import httpx2

_LARGEST_REPLY = 8_000_000
_LARGEST_ERROR = 65_536
# After the end mark, the wait for the stream's own end, which lets the connection be used again.
_GRACE = 1.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One model endpoint; times in seconds, `largest` in bytes of a whole reply.

    `base_url` is the API's root such as `https://host/v1`; a query in it is kept, a key in it never shown.
    """

    name: str
    base_url: str
    model: str
    key: str = ""
    ca_file: str = ""
    native_tools: bool = True
    stream: bool = True
    connect_timeout: float = 10.0
    idle_timeout: float = 60.0
    total_timeout: float = 300.0
    retries: int = 2
    temperature: float | None = None
    max_tokens: int | None = None
    largest: int = _LARGEST_REPLY

    @property
    def url(self) -> str:
        """Where requests go."""
        parts = urlsplit(self.base_url)
        path = parts.path.rstrip("/")
        path = path if path.endswith("/chat/completions") else f"{path}/chat/completions"
        return urlunsplit(parts._replace(path=path))

    @property
    def shown(self) -> str:
        """The address without user, password, query and fragment, for people and logs."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    @property
    def secrets(self) -> frozenset[str]:
        """What must never be shown: the key, a password and query values in the URL."""
        parts = urlsplit(self.base_url)
        return frozenset({self.key, parts.password or "", *(value for _, value in parse_qsl(parts.query))})


class _Idle(ProviderError):
    """The endpoint took the request and went silent: asking the same one again would only double the wait."""


class OpenAIProvider:
    """A chat completions endpoint. A request is sent again only while nothing of an answer has been given on."""

    def __init__(
        self,
        endpoint: Endpoint,
        pool: Pool,
        *,
        chance: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.name = endpoint.name
        self.native_tools = endpoint.native_tools
        self._endpoint = endpoint
        self._pool = pool
        self._chance, self._sleep, self._now = chance, sleep, now
        self._redactor = Redactor.of(endpoint.secrets)
        self._unwanted: set[str] = set()

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Answer the request; a reply that broke off comes back as CUT. Raises ProviderError, scrubbed of keys."""
        outcome = await self._persist(request, on_text)
        if isinstance(outcome, ProviderError):
            # Raised here, outside of any handler, so that no exception with a full URL hangs on to it.
            raise self._scrubbed(outcome)
        return outcome

    async def close(self) -> None:
        """Nothing to let go of: connections belong to the pool, which its owner closes."""

    async def _persist(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply | ProviderError:
        until = asyncio.get_running_loop().time() + self._endpoint.total_timeout
        attempt = 0
        while True:
            assembler = Assembler(on_text)
            outcome = await self._once(request, assembler, until)
            if assembler.told or not _passing(outcome):
                return outcome
            if isinstance(outcome, _Adapted):
                continue
            wait = retry.pause(attempt, getattr(outcome, "retry_after", None), self._chance())
            attempt += 1
            if attempt > self._endpoint.retries or wait is None or self._left(until) <= wait:
                return outcome
            await self._sleep(wait)

    def _left(self, until: float) -> float:
        return until - asyncio.get_running_loop().time()

    async def _once(self, request: ModelRequest, assembler: Assembler, until: float) -> Reply | ProviderError:
        """One HTTP exchange. What had come before a failure is a CUT reply, not an error."""
        import httpx2

        failure: ProviderError | None = None
        try:
            async with asyncio.timeout_at(until) as deadline:
                await self._exchange(request, assembler, deadline)
        except ProviderError as error:
            return error
        except TimeoutError:
            failure = self._total_passed()
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            failure = self._explain(error)
        if failure is not None and assembler.empty:
            return failure
        if assembler.empty:
            return ProviderError(f"{self._endpoint.shown} closed the connection without an answer", retryable=True)
        return self._signed(assembler.reply())

    def _signed(self, reply: Reply) -> Reply:
        """Mark what only this provider may be shown again."""
        return replace(reply, extra={**reply.extra, "from": self.name}) if reply.extra else reply

    # The exchange

    async def _exchange(self, request: ModelRequest, assembler: Assembler, deadline: asyncio.Timeout) -> None:
        client = await self._pool.client(self._endpoint.base_url, self._endpoint.ca_file)
        async with self._send(client, request) as response:
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if not response.is_success:
                raise await self._refused(response)
            if kind == "text/event-stream":
                await self._read_events(response, assembler, deadline)
            else:
                await self._read_body(response, assembler, kind)

    @contextlib.asynccontextmanager
    async def _send(self, client: httpx2.AsyncClient, request: ModelRequest) -> AsyncIterator[httpx2.Response]:
        import httpx2

        endpoint = self._endpoint
        # Without a stream nothing comes before the whole answer is there: only the total time can bound it.
        silent = endpoint.idle_timeout if endpoint.stream else endpoint.total_timeout
        timeout = httpx2.Timeout(silent, connect=endpoint.connect_timeout, pool=endpoint.total_timeout)
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream, application/json"}
        if endpoint.key:
            headers["Authorization"] = f"Bearer {endpoint.key}"
        body = msgspec.json.encode(self._request(request))
        async with client.stream("POST", endpoint.url, content=body, headers=headers, timeout=timeout) as response:
            yield response

    def _request(self, request: ModelRequest) -> dict[str, Any]:
        endpoint = self._endpoint
        body: dict[str, Any] = {"model": endpoint.model, "messages": wire.messages(request.messages, self.name)}
        if endpoint.native_tools and request.tools:
            body["tools"] = wire.tools(request.tools)
        if endpoint.temperature is not None:
            body["temperature"] = endpoint.temperature
        if endpoint.max_tokens is not None:
            limit = "max_completion_tokens" if "max_tokens" in self._unwanted else "max_tokens"
            body[limit] = endpoint.max_tokens
        if endpoint.stream:
            body["stream"] = True
            if "stream_options" not in self._unwanted:
                body["stream_options"] = {"include_usage": True}
        return body

    async def _read_events(self, response: httpx2.Response, assembler: Assembler, deadline: asyncio.Timeout) -> None:
        import httpx2

        size, over = 0, False
        async for event in httpx2.EventSource(response, max_event_size=self._endpoint.largest):
            data = event.data.strip()
            size += len(data)
            if size > self._endpoint.largest:
                raise self._too_large()
            if over or not data:
                continue
            over = data == "[DONE]"
            if over:
                assembler.done()
            else:
                assembler.event(self._decoded(data, event.event == "error"))
            if assembler.finished:
                self._hurry(deadline)

    def _hurry(self, deadline: asyncio.Timeout) -> None:
        """The reply is complete: what may still come (usage, the stream's end) gets a moment and no more."""
        soon = asyncio.get_running_loop().time() + _GRACE
        when = deadline.when()
        if when is None or soon < when:
            deadline.reschedule(soon)

    def _decoded(self, data: str, is_error: bool) -> Any:
        try:
            event = decode(data)
        except (ValueError, RecursionError):
            event = None
        if is_error:
            raise reported(event.get("error", event) if isinstance(event, Mapping) else data)
        if event is None:
            raise ProviderError(
                f"{self._endpoint.shown} sent an event that is not JSON: {plain(data, 80)}", retryable=True
            )
        return event

    async def _read_body(self, response: httpx2.Response, assembler: Assembler, kind: str) -> None:
        content = bytearray()
        async for piece in response.aiter_bytes():
            content += piece
            if len(content) > self._endpoint.largest:
                raise self._too_large()
        try:
            body = decode(bytes(content))
        except (ValueError, RecursionError):
            body = None
        if body is None:
            raise ProviderError(
                f"{self._endpoint.shown} answered with {plain(kind, 60) or 'no content type'}, which is no chat completion",
                hint="check base_url: it is the API's root, for example http://host:port/v1",
            )
        assembler.body(body)

    # What can go wrong

    def _too_large(self) -> ProviderError:
        return ProviderError(f"the answer of {self._endpoint.shown} is larger than {self._endpoint.largest} bytes")

    def _total_passed(self) -> ProviderError:
        seconds = f"{self._endpoint.total_timeout:g}"
        return ProviderError(
            f"{self._endpoint.shown} gave no answer within {seconds} s",
            hint=f"check the server's load, or raise providers.{self.name}.total_timeout",
        )

    async def _refused(self, response: httpx2.Response) -> ProviderError:
        content = bytearray()
        async for piece in response.aiter_bytes():
            content += piece
            if len(content) > _LARGEST_ERROR:
                break
        said = _reason(bytes(content))
        unwanted = self._named_option(response.status_code, said)
        if unwanted:
            self._unwanted.add(unwanted)
            return _Adapted(f"{self._endpoint.shown} does not take {unwanted}", retryable=True)
        asked = retry.retry_after(response.headers, self._now)
        return refusal(self._endpoint, response.status_code, said, asked)

    def _named_option(self, status: int, said: str) -> str:
        """An optional field of ours that the endpoint says it does not know, and that has not been dropped yet."""
        if status not in (400, 422):
            return ""
        sent = {"stream_options": self._endpoint.stream, "max_tokens": self._endpoint.max_tokens is not None}
        named = (option for option, used in sent.items() if used and option in said and option not in self._unwanted)
        unsupported = (
            "unsupported",
            "not supported",
            "unknown",
            "unrecognized",
            "extra",
            "not permitted",
            "unexpected",
        )
        return next(named, "") if any(word in said.casefold() for word in unsupported) else ""

    def _explain(self, error: Exception) -> ProviderError:
        return explain(error, self._endpoint)

    def _scrubbed(self, error: ProviderError) -> ProviderError:
        return ProviderError(
            self._redactor.text(error.text),
            retryable=error.retryable,
            retry_after=error.retry_after,
            hint=self._redactor.text(error.hint),
        )


class _Adapted(ProviderError):
    """The endpoint refused an optional field; the request goes out again without it."""


def _passing(outcome: Reply | ProviderError) -> bool:
    """Whether the same request may be sent again (if nothing was given on)."""
    if isinstance(outcome, Reply):
        return outcome.finish is Finish.CUT
    return outcome.retryable and not isinstance(outcome, _Idle)


def _reason(content: bytes) -> str:
    """What an error body says, in one bounded line."""
    try:
        body = decode(content)
    except (ValueError, RecursionError):
        return plain(content.decode("utf-8", "replace"), 300)
    error = body.get("error", body) if isinstance(body, Mapping) else body
    if isinstance(error, Mapping):
        error = error.get("message") or error.get("detail") or error.get("code") or error
    return plain(error if isinstance(error, str) else msgspec.json.encode(error).decode(), 300)


def refusal(endpoint: Endpoint, status: int, said: str, asked: float | None) -> ProviderError:
    """The error for an HTTP status, with what an operator may check."""
    at = f"providers.{endpoint.name}"
    hint, retryable = _advice(status, said, at)
    reason = f": {said}" if said else ""
    return ProviderError(
        f"{endpoint.shown} answered {status}{reason}",
        retryable=retryable,
        retry_after=asked if retryable else None,
        hint=hint,
    )


def _advice(status: int, said: str, at: str) -> tuple[str, bool]:
    spent = any(word in said.casefold() for word in ("quota", "billing", "credit", "balance"))
    match status:
        case 401 | 403:
            return f"check the key ({at}.api_key_file, api_key_env or api_key_credential) and what it may use", False
        case 404:
            return f"check {at}.model and {at}.base_url (the API's root, for example http://host:port/v1)", False
        case 400 | 422:
            return f'check {at}.model; if the model has no tool calls, set {at}.tools = "text"', False
        case 413:
            return "the history is too large for this endpoint: lower max_history_messages", False
        case 402:
            return "the account behind the key has to be paid for", False
        case 429 if spent:
            return "the account behind the key has used up what it may spend", False
        case 408 | 425 | 429:
            return "the endpoint asks for fewer requests", True
        case _ if 300 <= status < 400:
            return f"the endpoint has moved: set {at}.base_url to its new address", False
        case _ if status >= 500 and status != 501:
            return "the endpoint has trouble of its own: look at its log", True
    return f"check {at}.base_url", False


def explain(error: Exception, endpoint: Endpoint) -> ProviderError:
    """The error for a failed connection, in words of ours: the library's may quote a whole URL."""
    import httpx2

    at, where = f"providers.{endpoint.name}", endpoint.shown
    certificate = _cause(error, ssl.SSLCertVerificationError)
    if certificate is not None:
        reason = getattr(certificate, "verify_message", "") or "verification failed"
        return ProviderError(
            f"the certificate of {where} is not trusted: {reason}",
            hint=f"check {at}.ca_file, the host name in {at}.base_url, and the clock of this machine",
        )
    match error:
        case httpx2.ConnectTimeout() | httpx2.PoolTimeout():
            text, hint = "cannot be reached in time", f"check the network and {at}.base_url"
        case httpx2.ConnectError():
            text, hint = f"cannot be reached ({_network(error)})", f"check the network, DNS and {at}.base_url"
        case httpx2.ReadTimeout() | httpx2.WriteTimeout():
            silent = endpoint.idle_timeout if endpoint.stream else endpoint.total_timeout
            return _Idle(
                f"{where} went silent for {silent:g} s",
                retryable=True,
                hint=f"check the server's load, or raise {at}.idle_timeout",
            )
        case httpx2.NetworkError() | httpx2.RemoteProtocolError():
            text, hint = "broke the connection", "check the network and the server's log"
        case _:
            return ProviderError(f"{where} could not be asked ({type(error).__name__})", hint=f"check {at}.base_url")
    return ProviderError(f"{where} {text}", retryable=True, hint=hint)


def _network(error: BaseException) -> str:
    import socket

    if _cause(error, socket.gaierror) is not None:
        return "its name cannot be resolved"
    if _cause(error, ConnectionRefusedError) is not None:
        return "connection refused"
    if _cause(error, ssl.SSLError) is not None:
        return "TLS failed"
    system = _cause(error, OSError)
    return plain(getattr(system, "strerror", None) or "no connection", 80)


def _cause(error: BaseException, kind: type[BaseException]) -> BaseException | None:
    """The first exception of a kind in the chain, groups included."""
    waiting: list[BaseException] = [error]
    seen: set[int] = set()
    while waiting:
        here = waiting.pop(0)
        if isinstance(here, kind):
            return here
        if id(here) in seen:
            continue
        seen.add(id(here))
        inner = [*getattr(here, "exceptions", ()), here.__cause__, here.__context__]
        waiting.extend(found for found in inner if isinstance(found, BaseException))
    return None
