"""Asks one provider after the other until one answers; nothing that was given on is ever said again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from zeroclawd.errors import ProviderError
from zeroclawd.interfaces import ModelRequest, Provider
from zeroclawd.messages import Reply
from zeroclawd.providers.wording import NotUnderstood, results_of

log = logging.getLogger(__name__)

Failed = Callable[[str, ProviderError], None]

REST = 20.0
LONGEST_REST = 300.0


def _note(provider: str, error: ProviderError) -> None:
    log.warning("provider_failed provider=%s error=%s", provider, error.text)


class ChainProvider:
    """The next provider is asked only if the failing one gave no text on; every failure is told to `failed`.

    A provider that could not be reached rests for `rest` seconds (or as long as it asked for), so that a turn of many
    rounds does not wait for it in every round. The last one in line never rests.
    """

    def __init__(
        self,
        providers: Sequence[Provider],
        *,
        failed: Failed = _note,
        rest: float = REST,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if not providers:
            raise ValueError("a chain needs a provider")
        self.providers = tuple(providers)
        self.name = providers[0].name
        self.native_tools = providers[0].native_tools
        self._failed = failed
        self._rest = rest
        self._monotonic = monotonic
        self._resting: dict[str, tuple[float, ProviderError]] = {}

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """The first answer that there is; one error that says what every provider said if there is none."""
        failures: list[ProviderError] = []
        order = self._order(request)
        for provider in order:
            asleep = self._asleep(provider) if provider is not order[-1] else None
            outcome = asleep or await self._ask(provider, request, on_text)
            if isinstance(outcome, Reply):
                return outcome
            failures.append(outcome)
        raise _summed(failures)

    def _order(self, request: ModelRequest) -> tuple[Provider, ...]:
        """As configured; but results go first to the provider that had asked for them."""
        if not results_of(request.messages):
            return self.providers
        caller = next((message for message in reversed(request.messages) if message.calls), None)
        name = caller.extra.get("from") if caller else None
        at = next((place for place, provider in enumerate(self.providers) if provider.name == name), 0)
        return self.providers[at:] + self.providers[:at]

    async def close(self) -> None:
        """Close every provider."""
        for provider in self.providers:
            await provider.close()

    def _asleep(self, provider: Provider) -> ProviderError | None:
        until, error = self._resting.get(provider.name, (0.0, None))
        return error if self._monotonic() < until else None

    async def _ask(
        self, provider: Provider, request: ModelRequest, on_text: Callable[[str], None]
    ) -> Reply | ProviderError:
        """One provider's reply or failure; a failure after text was given on ends the chain."""
        told = False

        def listen(text: str) -> None:
            nonlocal told
            told = told or bool(text)
            on_text(text)

        try:
            reply = await provider.complete(request, listen)
        except NotUnderstood as error:
            return error
        except ProviderError as error:
            self._failed(provider.name, error)
            if told:
                raise
            self._lay_down(provider, error)
            return error
        self._resting.pop(provider.name, None)
        return replace(reply, extra={**reply.extra, "from": provider.name})

    def _lay_down(self, provider: Provider, error: ProviderError) -> None:
        if error.retryable:
            seconds = min(LONGEST_REST, max(self._rest, error.retry_after or 0.0))
            self._resting[provider.name] = (self._monotonic() + seconds, error)


def _summed(failures: Sequence[ProviderError]) -> ProviderError:
    """All that failed, in one error: the first is what the operator wanted, the last is what the user is told besides."""
    first = failures[0]
    text = "; ".join(dict.fromkeys(error.text for error in failures))
    return ProviderError(text, retryable=first.retryable, retry_after=first.retry_after, hint=first.hint)
