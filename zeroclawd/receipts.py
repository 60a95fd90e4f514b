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

TOKEN = re.compile(r"zc-receipt-\d{1,20}-[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])")
_LOOSE = re.compile(r"zc-receipt-[A-Za-z0-9_-]+")


@dataclass(slots=True)
class ReceiptScope:
    """Issues and knows the receipts of one channel runtime's life or of one direct turn."""

    key: bytes
    scope_id: str
    issued: dict[str, Receipt] = field(default_factory=dict)
    bound: int = 10_000

    @classmethod
    def derive(cls, device_key: bytes, scope_id: str) -> ReceiptScope:
        """The scope of this id on this device."""
        return cls(signing.derive(device_key, "receipt-scope", scope_id), scope_id)

    def issue(self, call_id: str, tool: str, arguments: Arguments, result: str, now: int) -> Receipt:
        """Make the receipt of one successful call; `now` is Unix seconds."""
        token = f"zc-receipt-{now}-{self._mac(call_id, tool, arguments, result, now)}"
        receipt = Receipt(token, call_id, tool, now)
        self.issued[token] = receipt
        while len(self.issued) > self.bound:
            del self.issued[next(iter(self.issued))]
        return receipt

    def verify(self, token: str, call_id: str, tool: str, arguments: Arguments, result: str) -> bool:
        """True if the token is this scope's, for exactly this call and result."""
        match = re.fullmatch(r"zc-receipt-(\d{1,20})-([A-Za-z0-9_-]{43})", token)
        if not match:
            return False
        return signing.equal(match[2], self._mac(call_id, tool, arguments, result, int(match[1])))

    def _mac(self, call_id: str, tool: str, arguments: Arguments, result: str, now: int) -> str:
        fields = (self.scope_id, call_id, tool, canonical(arguments), result, str(now))
        return signing.b64(hmac.new(self.key, signing.encode(signing.RECEIPT, fields), hashlib.sha256).digest())


def foreign(text: str, given: Iterable[Receipt]) -> list[str]:
    """Receipt-like tokens in a reply that are not among the receipts of the calls it reports on."""
    known = {receipt.token for receipt in given}
    return sorted({token for token in _LOOSE.findall(text) if token not in known})
