"""One pool of HTTP connections for all providers of a process, made at the first request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from zeroclawd import __version__
from zeroclawd.errors import ProviderError

if TYPE_CHECKING:
    import ssl

    import httpx2

_CONNECTIONS = 64
_KEPT = 8
# Home routers forget a quiet connection after a minute or less; a forgotten one would only be noticed by a timeout.
_KEPT_SECONDS = 30.0


class Pool:
    """HTTP clients by what they trust: nothing (plain HTTP), the system's authorities, or one CA file."""

    def __init__(self) -> None:
        self._clients: dict[str, httpx2.AsyncClient] = {}
        self._making = asyncio.Lock()

    async def client(self, base_url: str, ca_file: str = "") -> httpx2.AsyncClient:
        """The client for an endpoint; ProviderError if the CA file cannot be used."""
        trust = "plain" if base_url.startswith("http://") else ca_file or "system"
        async with self._making:
            if trust not in self._clients:
                # The import and the reading of certificates take a while on a small board.
                self._clients[trust] = await asyncio.to_thread(_make, trust)
        return self._clients[trust]

    async def close(self) -> None:
        """Close all connections; the pool may be used again."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()


def _make(trust: str) -> httpx2.AsyncClient:
    import httpx2

    limits = httpx2.Limits(
        max_connections=_CONNECTIONS, max_keepalive_connections=_KEPT, keepalive_expiry=_KEPT_SECONDS
    )
    # Redirects are not followed: the key would travel to a host that nobody named.
    return httpx2.AsyncClient(
        verify=_verify(trust),
        limits=limits,
        follow_redirects=False,
        headers={"User-Agent": f"zeroclawd/{__version__}", "Accept-Encoding": "identity"},
    )


def _verify(trust: str) -> ssl.SSLContext | bool:
    import ssl

    if trust == "system":
        return True
    if trust == "plain":
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts nobody, costs nothing, and is never used
    try:
        return ssl.create_default_context(cafile=trust)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        failure = ProviderError(
            f"the CA file {trust} cannot be used: {reason}", hint="ca_file names a PEM file with the server's authority"
        )
    raise failure
