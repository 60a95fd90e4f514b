"""A real mosquitto that speaks TLS with a home-made authority, as a deployment would have it."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Python 3.13 refuses an authority without key usage and key identifiers (ssl.VERIFY_X509_STRICT, RFC 5280, section 4.2.1).
_EXTENSIONS = """\
[req]
distinguished_name = name
prompt = no
[name]
CN = {name}
[authority]
basicConstraints = critical, CA:true, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always
[server]
basicConstraints = critical, CA:false
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always
subjectAltName = DNS:localhost, IP:127.0.0.1
"""


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: an authority's certificate, and a certificate and key for `localhost` that it signed."""

    authority: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path) -> Certificates:
    """Make an authority and a certificate for `localhost` and 127.0.0.1 with the openssl program, valid for two days."""
    folder.mkdir(parents=True, exist_ok=True)
    _openssl_request(folder, "authority", "-x509", "-extensions", "authority", "-days", "2")
    _openssl_request(folder, "server")
    signing = ["openssl", "x509", "-req", "-in", "server.pem", "-CA", "authority.pem", "-CAkey", "authority.key"]
    more = ["-CAcreateserial", "-days", "2", "-extfile", "server.cnf", "-extensions", "server", "-out", "signed.pem"]
    _run([*signing, *more], folder)
    return Certificates(folder / "authority.pem", folder / "signed.pem", folder / "server.key")


def _openssl_request(folder: Path, name: str, *more: str) -> None:
    (folder / f"{name}.cnf").write_text(_EXTENSIONS.format(name=f"benchmark {name}"), "ascii")
    command = ["openssl", "req", "-new", "-config", f"{name}.cnf", "-nodes", "-newkey", "ec"]
    files = ["-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", f"{name}.key", "-out", f"{name}.pem"]
    _run([*command, *files, *more], folder)


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")


@dataclass(frozen=True, slots=True)
class TlsBroker:
    """A broker that listens on `localhost`, with TLS and without; anybody may connect."""

    port: int
    plain_port: int
    authority: Path


@contextlib.contextmanager
def tls_broker(folder: Path) -> Iterator[TlsBroker]:
    """Run mosquitto with TLS on a free port of the loopback interface."""
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if not program:
        raise SystemExit("mosquitto is not installed. On Debian: sudo apt-get install mosquitto")
    files, port, plain = make_certificates(folder), _free_port(), _free_port()
    lines = ["user root", "allow_anonymous true", "persistence false", "log_dest none", f"listener {port} 127.0.0.1"]
    lines += [f"cafile {files.authority}", f"certfile {files.certificate}", f"keyfile {files.key}"]
    lines += [f"listener {plain} 127.0.0.1"]
    (folder / "mosquitto.conf").write_text("\n".join(lines) + "\n", "utf-8")
    with (folder / "mosquitto.log").open("wb") as log:
        process = subprocess.Popen([program, "-c", str(folder / "mosquitto.conf")], stdout=log, stderr=log)
    try:
        _wait_for(port, process, folder / "mosquitto.log")
        yield TlsBroker(port, plain, files.authority)
    finally:
        process.terminate()
        process.wait(20)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise SystemExit(f"mosquitto does not listen:\n{log.read_text()}")
