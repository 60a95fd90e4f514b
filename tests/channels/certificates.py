"""Home-made certificates that Python 3.13 accepts too: with key usage and key identifiers (RFC 5280, section 4.2.1)."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_EXTENSIONS = """\
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always
subjectAltName = {names}
[client]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always
"""


@dataclass(frozen=True)
class Authority:
    """A certificate authority in a folder; `issue` signs for servers (`server`) and clients (`client`)."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    def issue(self, name: str, kind: str, names: str = "IP:127.0.0.1") -> tuple[Path, Path]:
        key, request, certificate = (self.folder / f"{name}.{suffix}" for suffix in ("key", "csr", "crt"))
        self._extend(names)
        self._run(
            f"req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} -keyout {key} -out {request}"
        )
        self._run(
            f"x509 -req -in {request} -CA {self.ca} -CAkey {self.folder}/ca.key -CAcreateserial -days 2 "
            f"-extfile {self.folder}/ext -extensions {kind} -out {certificate}"
        )
        return certificate, key

    def _extend(self, names: str) -> None:
        (self.folder / "ext").write_text(_EXTENSIONS.format(names=names))

    @staticmethod
    def _run(arguments: str) -> None:
        subprocess.run(["openssl", *arguments.split()], check=True, capture_output=True)


def authority(folder: Path) -> Authority:
    folder.mkdir(parents=True, exist_ok=True)
    made, key, request = Authority(folder), folder / "ca.key", folder / "ca.csr"
    made._extend("IP:127.0.0.1")
    made._run(
        f"req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=home -keyout {key} -out {request}"
    )
    made._run(f"x509 -req -in {request} -signkey {key} -days 2 -extfile {folder}/ext -extensions ca -out {made.ca}")
    return made
