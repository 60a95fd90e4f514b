"""Says in one sentence for the operator what is wrong with a connection, and makes its TLS context."""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING

from zeroclawd.errors import KeyFileError, ZeroclawdError

if TYPE_CHECKING:
    from typing import Protocol

    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode

    from zeroclawd.config import TlsConfig

    class Broker(Protocol):
        """Where a connection goes, and as whom."""

        @property
        def host(self) -> str:
            """Name or address."""
            ...

        @property
        def port(self) -> int:
            """TCP port."""
            ...

        @property
        def username(self) -> str:
            """The login, or empty."""
            ...


CONNECT_SECONDS = 10.0
BAD_LOGIN = frozenset({0x86, 0x87})
UNSUPPORTED_PROTOCOL = 0x84


def explain(error: Exception, broker: Broker) -> str:
    """What failed, where, and what to look at."""
    where = f"{broker.host}:{broker.port}"
    match error:
        case ZeroclawdError():
            return f"{error.text}{f' ({error.hint})' if error.hint else ''}"
        case socket.gaierror():
            return f"the name {broker.host} cannot be resolved: {error.strerror}"
        case ssl.SSLCertVerificationError():
            return f"the certificate of {where} is not accepted: {error.verify_message}"
        case ssl.SSLError():
            return f"TLS with {where} failed: {error.reason or error}; does this port speak TLS?"
        case TimeoutError():
            return f"no answer from {where} within {CONNECT_SECONDS:.0f} seconds"
        case ConnectionRefusedError():
            return f"nothing listens at {where} (connection refused)"
        case OSError():
            return f"{where} cannot be reached: {error.strerror or error}"
    return f"the connection to {where} failed: {type(error).__name__}: {_line(str(error))}"


def refusal(broker: Broker, reason: ReasonCode, properties: Properties | None) -> str:
    """Why the broker does not let this login in."""
    if reason.value in BAD_LOGIN:
        said = worded(reason, properties)
        return f"the broker refuses the login of user {broker.username or '(none)'}: {said}; check name and password"
    return f"the broker refuses the connection: {worded(reason, properties)}"


def silent(broker: Broker, last_error: str = "") -> str:
    """What a connection means that closed before any answer."""
    why = f" ({_line(last_error)})" if last_error else ""
    where = f"{broker.host}:{broker.port}"
    return f"{where} closed the connection without an answer{why}; is it an MQTT broker, and does the port want TLS?"


def worded(reason: ReasonCode, properties: Properties | None) -> str:
    """A reason code with the broker's own words, if it gave any (MQTT 5.0, section 3.2.2.3.9)."""
    said = getattr(properties, "ReasonString", "")
    return f"{reason}{f': {_line(said)}' if said else ''}"


def _line(text: str) -> str:
    from zeroclawd.redact import plain

    return plain(text, 120)


class _TlsSocket(ssl.SSLSocket):
    """Closes itself when the handshake fails, which paho leaves to the garbage collector."""

    def do_handshake(self, block: bool = False) -> None:
        """Shake hands, or be closed."""
        try:
            super().do_handshake(block)
        except BaseException:
            self.close()
            raise


def tls_context(tls: TlsConfig) -> ssl.SSLContext:
    """Certificates and hostname are always checked, TLS 1.2 at least; KeyFileError names the file that fails."""
    try:
        context = ssl.create_default_context(cafile=tls.ca_file or None)
    except OSError as error:
        raise KeyFileError(f"tls.ca_file: {tls.ca_file}: {_os_reason(error)}") from None
    context.sslsocket_class = _TlsSocket
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.cert_file:
        try:
            context.load_cert_chain(tls.cert_file, tls.key_file)
        except OSError as error:
            raise KeyFileError(f"tls.cert_file: {tls.cert_file} with {tls.key_file}: {_os_reason(error)}") from None
    return context


def _os_reason(error: OSError) -> str:
    return (error.reason if isinstance(error, ssl.SSLError) else error.strerror) or str(error)
