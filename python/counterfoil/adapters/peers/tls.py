"""The files by which a listener for peers speaks TLS.

It reads them when it is asked; nothing of them is kept or told.
"""

from __future__ import annotations

import ssl

import msgspec


class ServerTls(msgspec.Struct, frozen=True):
    """Files in PEM by which a listener speaks TLS; with `ca` its clients need a certificate signed by it."""

    certificate: str
    key: str
    ca: str | None = None

    def context(self) -> ssl.SSLContext:
        """Return what a server's end is made with; raises `OSError` for files that cannot be used."""
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.ca)
        made.load_cert_chain(self.certificate, self.key)
        made.verify_mode = ssl.CERT_REQUIRED if self.ca is not None else ssl.CERT_NONE
        return made
