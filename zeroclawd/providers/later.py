"""A provider that is made when it is first asked: a daemon that waits for a command need not hold a client in memory."""

from __future__ import annotations

from collections.abc import Callable

from zeroclawd.interfaces import ModelRequest, Provider
from zeroclawd.messages import Reply


class LaterProvider:
    """Stands where its provider will be; `make` imports and builds it."""

    def __init__(self, name: str, make: Callable[[], Provider], *, native_tools: bool = True) -> None:
        self.name = name
        self.native_tools = native_tools
        self._make = make
        self._made: Provider | None = None

    @property
    def provider(self) -> Provider:
        """The provider itself, made now if it was not made yet."""
        if self._made is None:
            self._made = self._make()
        return self._made

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """What the provider answers."""
        return await self.provider.complete(request, on_text)

    async def close(self) -> None:
        """Close the provider, if there is one yet."""
        if self._made is not None:
            await self._made.close()
