"""Who signed what: the operators' keys, each read when it is first needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zeroclawd.config import OperatorConfig, secret
from zeroclawd.errors import KeyFileError
from zeroclawd.signing import Verifier


class Identities:
    """Knows the configured operators and checks their signatures."""

    def __init__(self, operators: Mapping[str, OperatorConfig]) -> None:
        self._operators = operators
        self._verifiers: dict[str, Verifier] = {}

    def replace(self, operators: Mapping[str, OperatorConfig]) -> None:
        """Know these operators from now on; keys are read anew."""
        self._operators = operators
        self._verifiers.clear()

    def operator(self, name: str) -> OperatorConfig | None:
        """The operator of this name, if there is one."""
        return self._operators.get(name)

    def signed(self, name: str, signature: str, label: str, fields: Sequence[str | bytes]) -> bool:
        """True if the named operator signed exactly these fields; a key that cannot be read has signed nothing."""
        operator = self._operators.get(name)
        if operator is None or not signature:
            return False
        try:
            return self._verifier(name, operator).verify(signature, label, fields)
        except (KeyFileError, ValueError):
            return False

    def _verifier(self, name: str, operator: OperatorConfig) -> Verifier:
        if name not in self._verifiers:
            self._verifiers[name] = verifier_of(name, operator)
        return self._verifiers[name]


def verifier_of(name: str, operator: OperatorConfig) -> Verifier:
    """The operator's public key, or the bytes of the text in the HMAC key file; KeyFileError if that cannot be read."""
    if operator.public_key:
        return Verifier(public_key=operator.public_key)
    return Verifier(hmac_key=secret(f"operators.{name}.hmac_key_file", file=operator.hmac_key_file).encode("utf-8"))
