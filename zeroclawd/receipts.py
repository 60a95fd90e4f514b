"""In-band receipts: evidence, for the reader of one reply, that a successful result came from this runtime.

`zc-receipt-<unix seconds>-<base64url HMAC-SHA256>` over length-prefixed tool, canonical arguments, full result and time. A
scope's key derives from the device key and the scope's id, so that a receipt can be checked after a restart.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from zeroclawd import signing
from zeroclawd.messages import Receipt
from zeroclawd.schema import canonical
from zeroclawd.tool import Arguments

TOKEN = re.compile(r"zc-receipt-([0-9]{1,20})-[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])")
_LOOSE = re.compile(r"zc-receipt-[A-Za-z0-9_-]+", re.IGNORECASE)


@dataclass(slots=True)
class ReceiptScope:
    """Issues and knows the receipts of one channel runtime's life or of one direct turn."""

    key: bytes = field(repr=False)
    scope_id: str
    issued: dict[str, Receipt] = field(default_factory=dict)
    bound: int = 256

    @classmethod
    def derive(cls, device_key: bytes, scope_id: str) -> ReceiptScope:
        """The scope of this id on this device."""
        return cls(signing.derive(device_key, "receipt-scope", scope_id), scope_id)

    def issue(self, call_id: str, tool: str, arguments: Arguments, result: str, now: int) -> Receipt:
        """Make the receipt of one successful call; `now` is Unix seconds."""
        receipt = Receipt(self._token(call_id, tool, arguments, result, now), call_id, tool, now)
        self.issued[receipt.token] = receipt
        while len(self.issued) > self.bound:
            del self.issued[next(iter(self.issued))]
        return receipt

    def verify(self, token: str, call_id: str, tool: str, arguments: Arguments, result: str) -> bool:
        """True if the token is this scope's, for exactly this call and result."""
        match = TOKEN.fullmatch(token)
        return match is not None and signing.equal(token, self._token(call_id, tool, arguments, result, int(match[1])))

    def _token(self, call_id: str, tool: str, arguments: Arguments, result: str, now: int) -> str:
        fields = (self.scope_id, call_id, tool, canonical(arguments), result, str(now))
        mac = hmac.new(self.key, signing.encode(signing.RECEIPT, fields), hashlib.sha256).digest()
        return f"zc-receipt-{now}-{signing.b64(mac)}"


def foreign(text: str, given: Iterable[Receipt]) -> list[str]:
    """Receipt-like tokens in a reply that are not among the receipts of the calls it reports on.

    A dash or underscore right after a whole token is the reply's own (emphasis in Markdown), not part of it.
    """
    known = tuple(receipt.token for receipt in given)

    def is_known(token: str) -> bool:
        return any(token.startswith(one) and not token[len(one) :].strip("_-") for one in known)

    return sorted({token for token in _LOOSE.findall(text) if not is_known(token)})
